"""What metrics have in common about how a trial was recorded: what older recorders did not see, and looking only once.

Why once: several metrics of one trial come from one look at its logs, which are long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from harness.core.records import NotApplicable, ScoredTrial

T = TypeVar("T")

BEFORE = NotApplicable("the trial was recorded before the harness told what an arm lets go of and what a fault does")


def once(of: Callable[[ScoredTrial], T]) -> Callable[[ScoredTrial], T]:
    """The same function, which remembers its last trial."""
    last: list[Any] = [None, None]

    def value(scored: ScoredTrial) -> T:
        if last[0] is not scored:
            last[:] = [scored, of(scored)]
        return last[1]

    return value
