"""`example`: how often the agent was let run a check."""

from __future__ import annotations

from harness.core.records import Metric, ScoredTrial


def _runs(scored: ScoredTrial) -> float:
    """A number of one judged trial, or `NotApplicable(because)`; never a 0.0 that means "could not tell"."""
    return float(sum(e.kind == "call" and e.data.get("tool") == "run_check" for e in scored.trial.trace))


EXAMPLE = Metric(
    name="example",
    unit="check runs",
    better="lower",
    about="check runs that the agent asked for",
    source="where the definition comes from",
    of=_runs,
)
