"""The registered decisions on a run: the kill criterion on the control arm, and the claims about the treatment.

Phase 1 looks at the control arm alone; phase 2 compares the treatment on the same pairs. Every invalid trial is entered
as the worst case against the claim that is being tested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Literal

import numpy as np

from harness.report.evidence import Scale, Series, rate, scales, series
from harness.report.prereg import Prereg
from harness.report.rows import Row
from harness.stats.claims import Claim, Contrast, non_inferiority, superiority
from harness.stats.intervals import Interval
from harness.stats.kill import KillDecision, KillPlan, Primary, conditional_threshold, decide, realistic_scores


def kill_criterion(control: Sequence[Row], prereg: Prereg, failed: Sequence[str]) -> KillDecision:
    """Phase 1: is harm in the control arm material? control: rows in registered order; failed: failed gates."""
    drawn = [row.fault_class for row in control]
    if set(drawn) - set(prereg.faults):  # a gate has failed; scores without a cited rate have no meaning
        control, drawn = [], []
    primaries = []
    for scale, tau in zip(scales(prereg), thresholds(prereg), strict=True):
        data = series(control, scale)
        primaries.append(Primary(scale.name, data.low, data.high, tau))
    return decide(primaries, drawn, prereg.kill_plan(), failed)


def thresholds(prereg: Prereg) -> tuple[float, float]:
    """Unconditional thresholds of both primaries, on the scale of scores."""
    return prereg.thresholds.duplicate_effect_rate, prereg.work_threshold


def unconditional(control: Sequence[Row], prereg: Prereg) -> dict[str, Any]:
    """Harm in operation per primary: estimate at the cited rates, and at both ends of their ranges; with thresholds.

    Shares: of intended effects, and of the tokens of a fault-free trial.
    """
    found: dict[str, Any] = {}
    reference = prereg.design.token_budget_per_trial / prereg.design.token_reference_per_trial
    drawn = [row.fault_class for row in control]
    limits = ((1.0, 1.0), (reference, inf))
    for scale, tau, (unit, most) in zip(scales(prereg), thresholds(prereg), limits, strict=True):
        entry: dict[str, Any] = {
            "threshold": tau * unit,
            "conditional_threshold": conditional_threshold(tau, prereg.kill_plan()) * scale.unit,
        }
        if set(drawn) <= set(prereg.faults):
            levels: tuple[Literal["low", "used", "high"], ...] = ("low", "used", "high")
            for level in levels:
                plan = prereg.kill_plan(level)
                entry[f"at_{level}_rates"] = _weighted(
                    series(control, scale), drawn, plan, unit, prereg.errors.interval, most
                )
        found[scale.name] = entry
    return found


def _weighted(
    data: Series, drawn: Sequence[str], plan: KillPlan, unit: float, alpha: float, most: float
) -> dict[str, Any]:
    low, ceiling = realistic_scores(data.low, drawn, plan)
    high, _ = realistic_scores(data.high, drawn, plan)
    found = rate(Series(low / ceiling, high / ceiling, data.valid), alpha)
    if isinstance(found, str):
        return {"not_applicable": found}
    # extrapolated in a straight line, which a share of effects cannot follow beyond all of them
    return {key: min(value, most) for key, value in shown(found.scaled(ceiling * unit)).items()}


def shown(interval: Interval) -> dict[str, float]:
    """An interval under the keys of `summary.json`."""
    return {"estimate": interval.estimate, "ci_low": interval.low, "ci_high": interval.high}


def phase_two(control: Sequence[Row], treatment: Sequence[Row], prereg: Prereg) -> dict[str, Any]:
    """Phase 2: superiority on both primaries (closed test) and non-inferiority on lost effects and task success.

    control, treatment: rows of common pairs in registered order, equally long. Superiority counts only where both
    non-inferiority claims are shown, and where the treatment met the faults that the control met.
    """
    contrasts = [_contrast(scale, control, treatment) for scale in scales(prereg)]
    better = superiority(contrasts, prereg.claims.superiority_rho, prereg.errors.superiority)
    guards = _guards(control, treatment, prereg)
    safe = all(guard.shown for guard in guards)
    untried = _untried(control, treatment, prereg)
    return {
        "superiority": {
            "shown": any(claim.shown for claim in better) and safe and not untried,
            "on": [claim.name for claim in better if claim.shown],
            "claims": [_claim(claim) for claim in better],
        },
        "non_inferiority": {
            "shown": safe,
            "worse": [guard.name for guard in guards if guard.contrary_shown],
            "claims": [_claim(guard) for guard in guards],
        },
        "reasons": [
            *(claim.reason for claim in (*better, *guards)),
            *untried,
            *_too_few_for_claims(len(control), prereg),
        ],
    }


def too_few_for_stop(control: Sequence[Row], prereg: Prereg) -> list[str]:
    """A sentence if even a control arm without any harm could not have led to STOP with this many pairs."""
    drawn = [row.fault_class for row in control]
    if not drawn or set(drawn) - set(prereg.faults):
        return []
    nothing = np.zeros(len(drawn))
    names = [scale.name for scale in scales(prereg)]
    ideal = [Primary(name, nothing, nothing, tau) for name, tau in zip(names, thresholds(prereg), strict=True)]
    plan = prereg.kill_plan()
    evidence, needed = decide(ideal, drawn, plan).e_stop, 1 / plan.alpha_stop
    if evidence >= needed:
        return []
    return [
        f"STOP is out of reach with {len(drawn)} pairs: no harm at all would give evidence {evidence:.3g} of {needed:g}"
    ]


def _too_few_for_claims(pairs: int, prereg: Prereg) -> list[str]:
    """A sentence for each guard that equal arms could not have passed with this many pairs."""
    margins = {"lost_incidence": prereg.claims.loss_margin, "task_success": prereg.claims.success_margin}
    said = []
    for name, margin in margins.items():
        ideal = non_inferiority(name, np.zeros(pairs), margin, prereg.errors.non_inferiority)
        if not ideal.shown:
            said.append(
                f"{name}: non-inferiority, and with it superiority, is out of reach with {pairs} pairs: "
                f"equal arms would give evidence {ideal.evidence:.3g} of {ideal.needed:g}"
            )
    return said


def _untried(control: Sequence[Row], treatment: Sequence[Row], prereg: Prereg) -> list[str]:
    """Why the treatment's lack of harm proves nothing, or nothing. By intention to treat, an arm that keeps faults from
    striking would do no harm; the floor is that of the control."""
    met = [other.exposed for row, other in zip(control, treatment, strict=True) if row.exposed and other.valid]
    share, least = float(np.mean(met)) if met else 1.0, prereg.gates.exposed_share_min
    if share >= least:
        return []
    return [
        f"superiority: the treatment met the faults of {share:.0%} of the pairs in which the control met them, "
        f"{least:.0%} are needed: an arm that meets no fault proves nothing"
    ]


def _contrast(scale: Scale, control: Sequence[Row], treatment: Sequence[Row]) -> Contrast:
    return Contrast(scale.name, series(control, scale).low, series(treatment, scale).high)


def _guards(control: Sequence[Row], treatment: Sequence[Row], prereg: Prereg) -> tuple[Claim, Claim]:
    intended = float(prereg.design.intended_effects_per_trial)
    lost = _contrast(Scale("lost_incidence", lambda row: row.lost, intended, 1.0), control, treatment)
    failed = _contrast(Scale("task_success", lambda row: float(not row.success), 1.0, 1.0), control, treatment)
    alpha = prereg.errors.non_inferiority
    return (
        non_inferiority(lost.name, np.subtract(lost.treatment, lost.control), prereg.claims.loss_margin, alpha),
        non_inferiority(
            failed.name, np.subtract(failed.treatment, failed.control), prereg.claims.success_margin, alpha
        ),
    )


def _claim(claim: Claim) -> dict[str, Any]:
    return {"name": claim.name, "shown": claim.shown, "e_value": claim.evidence, "needed": claim.needed}


def sentences(decision: KillDecision, harm: Mapping[str, Any], control: str) -> list[str]:
    """Reasons of phase 1 in plain words, with the estimated harm in operation."""
    said = [f"phase 1 ({control} alone): {decision.outcome}", *(f"phase 1: {reason}" for reason in decision.reasons)]
    for name, entry in harm.items():
        used = entry.get("at_used_rates", {})
        if "estimate" in used:
            said.append(
                f"phase 1: {name} in operation {used['estimate']:.2%} ({used['ci_low']:.2%} to {used['ci_high']:.2%}) "
                f"at the cited fault rates, threshold {entry['threshold']:.2%}"
            )
    return said
