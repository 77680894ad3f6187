"""The time within an arm's layers: what is in, what is out, on a clock that the test turns."""

from __future__ import annotations

import asyncio

import pytest

from harness.core.stopwatch import Stopwatch, covered


class Hands:
    """A clock that stands still until it is told to move."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    async def take(self, seconds: float) -> str:
        """Something that lasts."""
        self.now_s += seconds
        return "done"


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ([], 0.0),
        ([(1, 3)], 2.0),
        ([(1, 3), (2, 4)], 3.0),
        ([(2, 4), (1, 3), (1, 2)], 3.0),
        ([(-5, 2), (9, 20)], 3.0),
        ([(1, 9), (2, 3)], 8.0),
        ([(20, 30)], 0.0),
    ],
)
def test_overlapping_waits_count_once_and_within_the_crossing_only(waits: list, expected: float) -> None:
    assert covered(waits, 0.0, 10.0) == expected


def test_only_what_the_layers_did_themselves_is_theirs() -> None:
    hands = Hands()
    watch = Stopwatch(hands)
    inner, pause = watch.beyond(hands.take), watch.beyond(hands.take, broken_off=False)

    async def crossing() -> dict[str, int]:
        lap = watch.lap()
        await hands.take(0.002)  # a layer computes
        assert await inner(5.0) == "done"
        await pause(3.0)
        await hands.take(0.001)
        return lap.end()

    assert asyncio.run(crossing()) == {"arm_us": 3000}


def test_a_sabotaged_layer_that_dawdles_shows() -> None:
    hands = Hands()
    watch = Stopwatch(hands)

    async def crossing(dawdle_s: float) -> int:
        lap = watch.lap()
        await hands.take(dawdle_s)
        await watch.beyond(hands.take)(1.0)
        return lap.end()["arm_us"]

    assert asyncio.run(crossing(0.5)) - asyncio.run(crossing(0.0)) == 500_000


def test_a_watch_that_is_broken_off_is_no_pause_and_hides_nothing() -> None:
    hands = Hands()
    watch = Stopwatch(hands)

    async def forever() -> None:
        await asyncio.sleep(3600)

    async def crossing() -> int:
        lap = watch.lap()
        limit = asyncio.ensure_future(watch.beyond(forever, broken_off=False)())
        await asyncio.sleep(0)
        await hands.take(0.25)  # the layer's own work, while the watch runs beside it
        limit.cancel()
        await asyncio.gather(limit, return_exceptions=True)
        return lap.end()["arm_us"]

    assert asyncio.run(crossing()) == 250_000


def test_a_call_that_fails_was_waited_for_all_the_same() -> None:
    hands = Hands()
    watch = Stopwatch(hands)

    async def fails() -> None:
        await hands.take(2.0)
        raise ValueError("down")

    async def crossing() -> int:
        lap = watch.lap()
        with pytest.raises(ValueError, match="down"):
            await watch.beyond(fails)()
        return lap.end()["arm_us"]

    assert asyncio.run(crossing()) == 0


def test_crossings_side_by_side_and_within_each_other_are_kept_apart() -> None:
    hands = Hands()
    watch = Stopwatch(hands)
    inner = watch.beyond(hands.take)

    async def effect() -> int:
        lap = watch.lap()
        await hands.take(0.010)
        await inner(1.0)
        return lap.end()["arm_us"]

    async def tool() -> tuple[int, int]:
        lap = watch.lap()
        await hands.take(0.020)
        within = await watch.beyond(effect)()  # the effect of a tool's process crosses while the tool is under way
        await inner(1.0)  # booked on the tool again
        return lap.end()["arm_us"], within

    assert asyncio.run(tool()) == (20_000, 10_000)

    async def both() -> list[int]:
        return await asyncio.gather(effect(), effect())

    assert asyncio.run(both()) == [10_000, 10_000]


def test_without_a_clock_nothing_is_told_and_nothing_is_wrapped() -> None:
    watch, wait = Stopwatch(), Hands().take
    assert watch.beyond(wait) is wait
    assert watch.lap().end() == {}
