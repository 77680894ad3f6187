"""What a registration fixes, in the terms in which sizes are planned."""

from __future__ import annotations

from typing import Any

from harness.report.prereg import Prereg
from harness.stats.power import Design, pairs_least


def design_of(prereg: Prereg) -> Design:
    """The registered design for `harness.stats.power`."""
    return Design(
        kill=prereg.kill_plan(),
        tau_duplicates=prereg.thresholds.duplicate_effect_rate,
        tau_work=prereg.work_threshold,
        rho=prereg.claims.superiority_rho,
        loss_margin=prereg.claims.loss_margin,
        success_margin=prereg.claims.success_margin,
        alpha_superiority=prereg.errors.superiority,
        alpha_non_inferiority=prereg.errors.non_inferiority,
        effects=prereg.design.intended_effects_per_trial,
    )


def section(prereg: Prereg) -> dict[str, Any]:
    """`power` as it stands in `summary.json`: by claim, the least number of pairs that can show it at all."""
    return {
        claim: {"pairs_least": n} if isinstance(n, int) else {"not_applicable": n}
        for claim, n in pairs_least(design_of(prereg)).items()
    }
