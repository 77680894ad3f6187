"""How long the work stood still after the orchestrator died."""

from __future__ import annotations

from collections.abc import Iterable

from harness.core.records import Event, Metric, NotApplicable, ScoredTrial


def _first(events: Iterable[Event], kind: str, after_ms: float) -> float | None:
    return next((event.at_ms for event in events if event.kind == kind and event.at_ms >= after_ms), None)


def _time_to_recover(scored: ScoredTrial) -> float | NotApplicable:
    """Mean over the deaths that another process followed; the last exit of a trial has no successor and is its end."""
    trace = scored.trial.trace
    spans, unfinished = [], 0
    for death in (event for event in scored.trial.truth if event.kind == "exit"):
        restart = _first(trace, "epoch", death.at_ms)
        if restart is None:
            continue
        checkpoint = _first(trace, "checkpoint", restart)
        if checkpoint is None:
            unfinished += 1
        else:
            spans.append(checkpoint - death.at_ms)
    if spans:
        return sum(spans) / len(spans)
    if unfinished:
        return NotApplicable("the orchestrator was started again and never reached a checkpoint")
    return NotApplicable("the orchestrator was not restarted")


TIME_TO_RECOVER = Metric(
    name="time_to_recover",
    unit="ms",
    better="lower",
    about="nominal time from the death of the orchestrator to the first durable checkpoint of its successor, mean",
    source="time to recover of the paper's inventory",
    of=_time_to_recover,
)
