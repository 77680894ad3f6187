"""The only file that knows real time; everybody else is handed a `Clock` that speaks nominal milliseconds.

One registered `time_scale` turns nominal into real durations, for every arm and fault alike: with 0.05 a timeout of
60 s lasts 3 s. Virtual time is an event loop whose selector jumps to the next timer instead of waiting.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Mapping

from msgspec import Struct

from harness.core.errors import HarnessBug


class Clock(Struct, frozen=True):
    """Nominal time over the running loop. scale: real seconds per nominal second; origin_s: loop time of 0 ms."""

    scale: float = 1.0
    origin_s: float = 0.0

    def now_ms(self) -> float:
        return round((self.loop_s() - self.origin_s) / self.scale * 1000, 3)

    def loop_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep_ms(self, nominal_ms: float) -> None:
        await asyncio.sleep(self.real_s(nominal_ms))

    def real_s(self, nominal_ms: float) -> float:
        """Real seconds that a nominal duration lasts."""
        return nominal_ms / 1000 * self.scale


def monotonic_s() -> float:
    """Real monotonic seconds; equal across processes of one machine (CLOCK_MONOTONIC)."""
    return time.monotonic()


def wall_iso() -> str:
    """UTC wall-clock time for manifests; never used in a decision."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class _JumpingSelector(selectors.BaseSelector):
    """A selector without files: waiting means moving the virtual clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._keys: dict[object, selectors.SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise HarnessBug("virtual time: every task waits and no timer is due (a hang without a deadline)")
        self.now_s += max(timeout, 0.0)
        return []

    def register(self, fileobj, events, data=None) -> selectors.SelectorKey:  # type: ignore[no-untyped-def]
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj) -> selectors.SelectorKey:  # type: ignore[no-untyped-def]
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping:
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time: a trial of minutes takes milliseconds, in an order that depends on nothing else.

    Raises HarnessBug when nothing can run any more, since waiting for ever would block the caller.
    """

    def __init__(self) -> None:
        self._virtual = _JumpingSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s
