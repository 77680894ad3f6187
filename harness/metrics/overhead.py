"""What the layers cost in time, per seam, on the real clock of live trials.

In: computing, durable writes, queues and locks of the arm, and whatever else ran in the orchestrator meanwhile. Out:
what the layers waited for beyond them (the call itself, probes of a boundary) and pauses that they made on purpose and
saw to their end (`harness.core.stopwatch`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from harness.core.records import Metric, NotApplicable, ScoredTrial

SEAMS = {
    "model": "S1, model calls",
    "tool": "S2, tool invocations",
    "effect": "S2, effects of tools' processes",
    "commit": "S3, commits",
}
VIRTUAL = NotApplicable("time is virtual in the sim world: layers cost nothing there")


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _at(seam: str, share: float) -> Callable[[ScoredTrial], float | NotApplicable]:
    def value(scored: ScoredTrial) -> float | NotApplicable:
        if scored.trial.record.world == "sim":
            return VIRTUAL
        trace = scored.trial.trace
        here = {e.data["call_id"] for e in trace if e.kind == "call" and e.data["call"] == seam}
        ended = [e.data for e in trace if e.kind == "outcome" and e.data["call_id"] in here]
        taken = [data["arm_us"] for data in ended if "arm_us" in data]
        if ended and not taken:
            return NotApplicable("the trial was recorded before the time within layers was")
        return float(quantile(taken, share)) if taken else NotApplicable("no call crossed this seam and came back")

    return value


OVERHEAD: dict[str, Metric] = {
    f"overhead_{seam}_{name}": Metric(
        name=f"overhead_{seam}_{name}",
        unit="µs",
        better="lower",
        about=f"real time within the arm's layers per call at {words}: {name} over the calls of a trial, nearest rank"
        + ("" if share < 0.9 else " (the largest, below 100 calls)"),
        source="seam overhead of the paper's inventory",
        of=_at(seam, share),
    )
    for seam, words in SEAMS.items()
    for name, share in (("p50", 0.5), ("p99", 0.99))
}
