"""Hops of delegation trees over a run: rates by attempt and by hop, and how far they foretell whether a run succeeds.

Why beside the observed success: a rate to the power of the number of hops foretells it only where hops fail
independently and a failing hop is the only way in which a run fails. Neither has to be so, and the two err in opposite
directions; so the prediction is shown with what was observed, and with the failed runs in which every hop was clean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from harness.core.records import HOP_STATES
from harness.metrics.hops import DEFINITIONS, NO_HOPS, HopCounts
from harness.report.rows import Row
from harness.stats.asymptotic import clopper_pearson

ASSUMES = "every hop fails independently, and nothing else makes a run fail"
CLEAN = "brief_satisfied"


def section(rows: Mapping[str, Sequence[Row]], twins: Mapping[str, Sequence[Row]]) -> dict[str, dict[str, Any]]:
    """{arm: {with_faults, without_faults}}: the hops of the valid trials with scheduled faults and without any, each
    as `hop_rates` says, or {not_applicable}."""
    found: dict[str, dict[str, Any]] = {}
    for arm, here in rows.items():
        trials = [*here, *twins.get(arm, ())]
        found[arm] = {
            "with_faults": hop_rates([row for row in trials if row.faults_scheduled]),
            "without_faults": hop_rates([row for row in trials if not row.faults_scheduled]),
        }
    return found


def hop_rates(rows: Sequence[Row]) -> dict[str, Any]:
    """Rates of these trials, pooled: {trials, hops_per_run, attempts, hops, per_attempt, per_hop, usable, states,
    run_success, independence, residual, verifier}.

    per_attempt, per_hop: clean share by definition. independence: {per_attempt, per_hop, assumes}, the chance that a
    run succeeds when all of its hops are clean by themselves. residual: failed runs, and those of them in which every
    hop of the plan was clean. Shares that have no denominator are {not_applicable}.
    """
    told = [(row, row.hops) for row in rows if row.valid and row.hops is not None]
    if not told:
        return {"not_applicable": NO_HOPS.because if rows else "no such trial"}
    counts = [hops for _, hops in told]
    attempts, hops = sum(c.attempts for c in counts), sum(c.dispatched for c in counts)
    per_run = sum(c.planned for c in counts) / len(counts)
    by_attempt = {name: sum(c.by_attempt[name] for c in counts) for name in DEFINITIONS}
    by_hop = {name: sum(c.by_hop[name] for c in counts) for name in DEFINITIONS}
    per_attempt = {name: _share(clean, attempts, "no attempt") for name, clean in by_attempt.items()}
    per_hop = {name: _share(clean, hops, "no hop") for name, clean in by_hop.items()}
    good = sum(row.success for row, _ in told)
    low, high = clopper_pearson(good, len(told))
    return {
        "trials": len(told),
        "hops_per_run": per_run,
        "attempts": attempts,
        "hops": hops,
        "per_attempt": per_attempt,
        "per_hop": per_hop,
        "usable": _usable(counts, attempts),
        "states": {state: sum(c.states.get(state, 0) for c in counts) for state in HOP_STATES},
        "run_success": {"estimate": good / len(told), "ci_low": low, "ci_high": high, "runs": good},
        "independence": {
            "per_attempt": _power(per_attempt[CLEAN], per_run),
            "per_hop": _power(per_hop[CLEAN], per_run),
            "assumes": ASSUMES,
        },
        "residual": _residual(told),
        "verifier": _verifier(counts),
    }


def _usable(counts: Sequence[HopCounts], attempts: int) -> dict[str, int]:
    """Attempts by what is known of their use: yes, no, and not yet."""
    no, unknown = sum(c.repaired for c in counts), sum(c.unknown for c in counts)
    return {"yes": attempts - no - unknown, "no": no, "unknown": unknown}


def _residual(told: Sequence[tuple[Row, HopCounts]]) -> dict[str, Any]:
    failed = [counts for row, counts in told if not row.success]
    clean = sum(counts.by_hop[CLEAN] == counts.planned for counts in failed)
    return {"failed_runs": len(failed), "all_hops_clean": clean, "share": _share(clean, len(failed), "no run failed")}


def _verifier(counts: Sequence[HopCounts]) -> dict[str, Any]:
    """The confusion matrix of the verifiers, what came of their complaints, and rates of both."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update({name: getattr(one.verified, name) for name in one.verified.__struct_fields__})
    cells = {name: total[name] for name in ("caught", "missed", "false_alarms", "passed", "fixed", "regressed")}
    return {
        **cells,
        "catch_rate": _share(cells["caught"], cells["caught"] + cells["missed"], "nothing was wrong"),
        "fix_rate": _share(cells["fixed"], cells["caught"], "nothing was caught"),
        "false_alarm_rate": _share(cells["false_alarms"], cells["false_alarms"] + cells["passed"], "nothing was right"),
        "regression_rate": _share(cells["regressed"], cells["false_alarms"], "there was no false alarm"),
    }


def _share(part: int, whole: int, otherwise: str) -> dict[str, Any]:
    return {"estimate": part / whole} if whole else {"not_applicable": otherwise}


def _power(rate: Mapping[str, Any], hops: float) -> dict[str, Any]:
    return {"estimate": rate["estimate"] ** hops} if "estimate" in rate else dict(rate)
