"""Made-up parts of a report for its tests: the optional keys of a summary, and a pair's courses."""

from __future__ import annotations

import copy
from typing import Any

from harness.report.timeline import Course, Mark, PairCourse, Span

REASON = "the run is too small"


def complete(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary with every optional key; among the values are some that cannot be given."""
    found = copy.deepcopy(summary)
    arms = found["arms"]
    found |= {
        "status": {"confirmatory": False, "because": ["the analysis code is not the sealed one"]},
        "stopping": {"rule": "kill_criterion", "decided_at": 24, "stopped_at": 24, "pairs_max": 800, "because": "GO"},
        "calibration": calibration(),
        "dependence": {arm: chain() for arm in arms[:-1]} | {arms[-1]: {"not_applicable": REASON}},
        "specs": {"checked": 14, "violated": {"verdict_for_every_refusal": {arms[0]: 2}}},
        "blame": {arm: {"loops": blamed(), "effects": {"not_applicable": REASON, "trials": 0}} for arm in arms},
        "levels": {"L3": {arm: {"trials": 24, "duplicates": event(4), "misses": event(0)} for arm in arms}},
        "power": {"superiority": {"pairs_needed": 370}, "lost": {"pairs_needed": {"not_applicable": REASON}}},
    }
    for primary in found["primary"].values():
        for entry in (*(primary[arm] for arm in arms), *primary["differences"], primary["difference"]):
            entry["star"] = {"estimate": 0.0, "ci_low": -0.5, "ci_high": 0.25}
            entry["hull"] = {"not_applicable": f"{entry['pairs']} pairs, the hull needs 200"}
        for entry in (*primary["differences"], primary["difference"]):
            entry |= {"ratio": {"estimate": 0.1875, "upper": 0.75}, "improved": 9, "worsened": 2, "tied": 13}
    return found


def chain() -> dict[str, Any]:
    bounds = {"certificate": 0.25, "direct": 0.75, "observed": 0.875, "ci_low": 0.7, "ci_high": 0.96}
    links = {"orders": 0.9375, "inventory": 1.0}
    return {"trials": 24, "links": links, "product": 0.9375, "alpha": 0.05, "because": "", **bounds}


def blamed() -> dict[str, Any]:
    cells = {"guilty_stopped": 12, "guilty_spared": 4, "healthy_killed": 1, "healthy_spared": 300}
    return {
        **cells,
        "trials": 24,
        "precision": {"estimate": 12 / 13, "stops": 13},
        "recall": {"not_applicable": REASON},
    }


def event(count: int) -> dict[str, Any]:
    entry = {"count": count, "among": 264, "unit": "intended effects", "rate": count / 264, "trials": 24}
    return entry if count else {**entry, "share_of_trials_at_most": 0.125}


def calibration(floor: float = 1e-9, passed: bool = True) -> dict[str, Any]:
    checks = [
        {
            "name": "idempotent",
            "question": "does a workload that cannot be harmed end in STOP?",
            "expected": "STOP",
            "got": "STOP" if passed else "GO",
            "passed": passed,
            "because": "no effect was duplicated",
            "numbers": {"pairs": 400, "e_stop": 23.5, "outcome": "STOP"},
        }
    ]
    lowest = {"duplicate_effect_rate": floor, "work_destroyed_per_fault": floor, "pairs": 200, "because": "A/A"}
    return {
        "schema": "agentmesh-calibration/1",
        "world": "sim",
        "passed": passed,
        "checks": checks,
        "noise_floor": lowest,
    }


def pair(index: int = 0, arms: tuple[str, ...] = ("naive", "mesh")) -> PairCourse:
    """A pair whose courses show every kind of sign."""
    marks = (
        Mark(2_000, "faults", "fired", "fault #0 hung_check/hung fired"),
        Mark(2_500, "faults", "suffered", "unit_orders: stopped"),
        Mark(3_000, "process", "exit", "orchestrator process 0 ended: SIGKILL"),
        Mark(5_000, "orders", "verdict", "timed-out: implementation S2 run_check"),
        Mark(6_000, "orders", "error", "unavailable: <implementation> S1 chat"),
        Mark(7_000, "transport", "effect", "XADD orders"),
        Mark(9_000, "faults", "observed", "fault #0 hung_check/hung observed"),
        Mark(9_000, "faults", "expired", "fault #1 hung_check/slow expired"),
    )
    courses = tuple(
        Course(
            trial=f"{arm}-{index}-hung_check",
            arm=arm,
            status="ended",
            duration_ms=10_000 + 1_000 * nth,
            spans=(
                Span(0, 3_000, "process", "cut", "orchestrator process 0"),
                Span(500, 8_000, "orders", "done", "orders, attempt 1: done"),
            ),
            marks=marks,
            calls={"orders": ((1_000, "S1"), (1_500, "S2"), (2_000, "S3"))},
            findings=("duplicate: transport orders/A-1 (required 1, observed 2)",) if not nth else (),
            judged=True,
        )
        for nth, arm in enumerate(arms)
    )
    return PairCourse(
        index=index,
        pair=f"pair-{index}",
        fault_class="hung_check",
        variant="hung",
        because="first pair of hung_check",
        courses=courses,
    )


def at(summary: Any, key: str) -> Any:
    """The value under a dotted key."""
    here = summary
    for name in key.replace("\\.", "\0").split("."):
        name = name.replace("\0", ".")
        here = here[int(name)] if isinstance(here, list) else here[name]
    return here
