"""How long a crossing stayed within an arm's layers, on a real clock that is handed in.

An arm pays for its guarantees in time: its own computing, its durable writes, and queues of its own. What it waited for
beyond itself is no cost of the layers: the call that it wraps, a question to a boundary, a pause made on purpose and
seen to its end. A pause that was broken off is a watch beside the call and no pause; what other tasks did meanwhile
cannot be told apart and is in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar, Token
from typing import Any

Interval = tuple[float, float]


def covered(waits: Iterable[Interval], begin: float, end: float) -> float:
    """How much of [begin, end] the intervals cover, overlaps counted once."""
    total, reached = 0.0, begin
    for start, stop in sorted(waits):
        start, stop = max(start, reached), min(stop, end)
        if stop > start:
            total += stop - start
            reached = stop
    return total


class Lap:
    """One crossing on its way through the layers. Nobody measures: `end` tells nothing."""

    def end(self) -> dict[str, int]:
        """{arm_us: microseconds within the layers}, or nothing."""
        return {}


class _Measured(Lap):
    def __init__(self, now_s: Callable[[], float]) -> None:
        self.waits: list[Interval] = []
        self._now_s, self._began_s = now_s, now_s()
        self._token: Token[_Measured | None] = _CURRENT.set(self)

    def end(self) -> dict[str, int]:
        ended_s = self._now_s()
        _CURRENT.reset(self._token)
        own_s = ended_s - self._began_s - covered(self.waits, self._began_s, ended_s)
        return {"arm_us": max(0, round(own_s * 1e6))}


_CURRENT: ContextVar[_Measured | None] = ContextVar("lap", default=None)
_UNMEASURED = Lap()


class Stopwatch:
    """now_s: real seconds, None where time is virtual and there is nothing to measure."""

    def __init__(self, now_s: Callable[[], float] | None = None) -> None:
        self._now_s = now_s

    def lap(self) -> Lap:
        """Begin to measure the crossing that the current task is about to make."""
        return _UNMEASURED if self._now_s is None else _Measured(self._now_s)

    def beyond(self, wait: Callable[..., Awaitable[Any]], *, broken_off: bool = True) -> Callable[..., Awaitable[Any]]:
        """The same function, with its time booked as waiting on the crossing that it is called in. broken_off: also
        when it was cancelled or failed."""
        now_s = self._now_s
        if now_s is None:
            return wait

        async def waiting(*args: Any) -> Any:
            lap, began_s, whole = _CURRENT.get(), now_s(), False
            try:
                result = await wait(*args)
                whole = True
                return result
            finally:
                if lap is not None and (whole or broken_off):
                    lap.waits.append((began_s, now_s()))

        return waiting
