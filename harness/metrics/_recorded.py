"""What metrics have in common about how a trial was recorded: versions of the recorder, and looking only once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from harness.core.records import NotApplicable, ScoredTrial

T = TypeVar("T")

BEFORE = NotApplicable("the trial was recorded before the harness told what an arm lets go of and what a fault does")


def version(scored: ScoredTrial) -> int:
    """The recorder's version of the trial's first process; 1 where it does not say."""
    told = (event.data.get("recorder", 1) for event in scored.trial.trace if event.kind == "epoch")
    return int(next(told, 1))


def once(of: Callable[[ScoredTrial], T]) -> Callable[[ScoredTrial], T]:
    """The same function, which remembers its last trial: several metrics of one trial come from one look at it."""
    last: list[Any] = [None, None]

    def value(scored: ScoredTrial) -> T:
        if last[0] is not scored:
            last[:] = [scored, of(scored)]
        return last[1]

    return value
