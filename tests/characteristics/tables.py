"""The tables of the simulations: rows as they go into CSV, and a page of them with what each says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.stats.power import Design
from tests.characteristics import comparison, gate
from tests.characteristics.coverage import Misses, together

Row = dict[str, str]


def gate_row(cell: gate.Cell, runs: Sequence[gate.Result]) -> Row:
    decided = [run.decided_at for run in runs if run.outcome in ("GO", "STOP")]
    share = {o: f"{np.mean([r.outcome == o for r in runs]):.4f}" for o in ("GO", "GO_NARROW", "STOP", "INCONCLUSIVE")}
    wrong = {o: f"{np.mean([r.false and r.outcome == o for r in runs]):.4f}" for o in ("GO", "STOP")}
    return {
        "duplicates_of_threshold": f"{cell.duplicates:g}",
        "work_of_threshold": f"{cell.work:g}",
        "clustering": cell.clustering,
        "spread": cell.spread,
        **share,
        "false_GO": wrong["GO"],
        "false_STOP": wrong["STOP"],
        "class_named_wrongly": f"{np.mean([r.named_wrongly for r in runs]):.4f}",
        "pairs_median": f"{np.median(decided):.0f}" if decided else "",
        "pairs_90": f"{np.quantile(decided, 0.9):.0f}" if decided else "",
        "peeking_GO": f"{np.mean([r.naive == 'GO' for r in runs]):.4f}",
        "peeking_STOP": f"{np.mean([r.naive == 'STOP' for r in runs]):.4f}",
        "replications": str(len(runs)),
    }


def comparison_row(cell: comparison.Cell, runs: Sequence[comparison.Result]) -> Row:
    return {
        "control_duplicates": f"{cell.duplicates:g}",
        "control_work": f"{cell.work:g}",
        "ratio_duplicates": f"{cell.ratio_duplicates:g}",
        "ratio_work": f"{cell.ratio_work:g}",
        "clustering": cell.clustering,
        "lost_of_margin": f"{cell.lost:g}",
        "failed_of_margin": f"{cell.failed:g}",
        "superiority": f"{np.mean([r.claimed for r in runs]):.4f}",
        "harm_below_rho": f"{np.mean([r.better for r in runs]):.4f}",
        "harm_below_rho_wrongly": f"{np.mean([r.better_wrongly for r in runs]):.4f}",
        "loss_within_margin": f"{np.mean([r.loss for r in runs]):.4f}",
        "success_within_margin": f"{np.mean([r.success for r in runs]):.4f}",
        "replications": str(len(runs)),
    }


def coverage_row(method: str, case: str, n: int, found: Misses) -> Row:
    return {
        "method": method,
        "case": case,
        "pairs": str(n),
        "coverage": f"{found.coverage:.4f}",
        "truth_above_interval": f"{found.below / found.replications:.4f}",
        "truth_below_interval": f"{found.above / found.replications:.4f}",
        "replications": str(found.replications),
    }


def stopped_rows(cell: gate.Cell, parts: Sequence[dict[str, Misses]]) -> list[Row]:
    where = {
        "duplicates_of_threshold": f"{cell.duplicates:g}",
        "work_of_threshold": f"{cell.work:g}",
        "clustering": cell.clustering,
    }
    rows = []
    for method in parts[0]:
        row = coverage_row(method, "", 0, together([part[method] for part in parts]))
        rows.append({**where, **{key: value for key, value in row.items() if key not in ("case", "pairs")}})
    return rows


def page(tables: dict[str, list[Row]], registration: str, design: Design, replications: int, seed: int) -> str:
    """The tables as Markdown, each with what it says."""
    plan_ = design.kill
    said = {
        "gate": (
            f"The kill criterion (`harness.stats.kill.decide`) with the registered rates and weights, at most "
            f"{plan_.pairs_max} pairs, looked at after each. Harm in operation is given in multiples of the registered "
            f"threshold: at 1 GO and STOP are both wrong. Registered: false GO {plan_.alpha_go:g}, false STOP "
            f"{plan_.alpha_stop:g}, a class named wrongly {plan_.alpha_narrow:g}. Beside it what one gets by peeking "
            "at one-sided 95 % t bounds every ten pairs."
        ),
        "comparison": (
            f"Superiority (harm below {design.rho:g} x control on a primary, closed test) with both non-inferiority "
            f"claims, after {plan_.pairs_max} pairs looked at after each. A ratio of {design.rho:g} or more makes it "
            f"wrong (registered {design.alpha_superiority:g}), as does an excess of 1 margin "
            f"({design.alpha_non_inferiority:g} each)."
        ),
        "coverage": (
            "Coverage of two-sided 95 % intervals where the number of pairs is fixed. `truth_above_interval` is the "
            "dangerous side: harm is larger than the interval says. Mixture and STaR are guaranteed; the hull is shown "
            "from 200 pairs on only, and the others for comparison."
        ),
        "stopped": (
            "Coverage of two-sided 95 % intervals where the kill criterion ended the run. The mixture is guaranteed "
            "there; STaR is not, for it needs a number of pairs that was fixed beforehand."
        ),
    }
    lines = [
        "# Operating characteristics of the gate",
        "",
        f"Made by `make characteristics`; registration {registration}, seed {seed}, {replications} simulated runs a "
        "cell (a quarter of it for resampled and stopped intervals).",
    ]
    for name, rows in tables.items():
        lines += ["", f"## {name.capitalize()}", "", said[name], "", "| " + " | ".join(rows[0]) + " |"]
        lines += ["|" + "---|" * len(rows[0]), *("| " + " | ".join(row.values()) + " |" for row in rows)]
    return "\n".join(lines) + "\n"
