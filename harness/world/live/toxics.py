"""The harms that a fault proxy can do to one direction of one connection, as Toxiproxy 2.12 defines them.

Each is one short coroutine over a `Stage`, listed in `KINDS`; what a toxic does to live connections when it is added,
changed or removed follows from the stage, so that a new harm needs no thought about it.

Source of the semantics: the folder toxics/ and link.go of Shopify/toxiproxy v2.12, and probes of that server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from harness.world.live.toxistage import Chunk, End, Ending, Kind, Stage

LATENCY_INBOX_BYTES = 4 * 1024 * 1024  # data in flight on a slow line must not throttle it (Toxiproxy: 1024 chunks)


async def _until(at: float) -> None:
    await asyncio.sleep(max(0.0, at - asyncio.get_running_loop().time()))


async def noop(stage: Stage) -> None:
    while isinstance(await stage.head(), Chunk):
        stage.forward()


async def latency(stage: Stage) -> None:
    """Each chunk leaves `latency` +- `jitter` ms after it came in; throughput is not limited, order is kept."""
    while isinstance(item := await stage.head(), Chunk):
        jitter = stage.number("jitter") * (2 * stage.draw("jitter", stage.passed) - 1)
        due = item.at + (stage.number("latency") + jitter) / 1000
        if due > asyncio.get_running_loop().time():
            stage.harm("delayed")
            await _until(due)
        stage.forward()


async def bandwidth(stage: Stage) -> None:
    """At most `rate` KB/s (1 KB = 1000 bytes), in pieces of at most 100 ms; nothing passes at a rate of 0."""
    line_free = 0.0
    while isinstance(item := await stage.head(), Chunk):
        rate = stage.number("rate")
        if rate <= 0:
            stage.harm("held")
            await asyncio.Event().wait()
        size = min(len(item.data), rate * 100)
        line_free = max(line_free, item.at) + size / (rate * 1000)
        if line_free > asyncio.get_running_loop().time():
            stage.harm("delayed")
            await _until(line_free)
        stage.forward(size)


async def slicer(stage: Stage) -> None:
    """Pieces of `average_size` +- `size_variation` bytes, `delay` us apart.

    Where the stream is cut depends on the draws alone, not on how the bytes arrived.
    """
    mark = stage.passed
    while isinstance(item := await stage.head(), Chunk):
        if stage.passed >= mark:
            variation = stage.number("size_variation") * (2 * stage.draw("slice", mark) - 1)
            mark += max(1, stage.number("average_size") + round(variation))
        if len(item.data) > mark - stage.passed:
            stage.harm("sliced")
        stage.forward(mark - stage.passed)
        await asyncio.sleep(stage.number("delay") / 1e6)
        if stage.number("delay") and stage.held:
            stage.harm("delayed")


async def limit_data(stage: Stage) -> None:
    """Close the connection once `bytes` have passed; the first byte beyond them is lost."""
    while isinstance(item := await stage.head(), Chunk):
        left = stage.number("bytes") - stage.passed
        if left > 0:
            stage.forward(min(left, len(item.data)))
        if left <= len(item.data):
            return stage.kill(Ending.CUT, "cut")


async def timeout(stage: Stage) -> None:
    """Swallow everything and close after `timeout` ms without data; with 0, close when the toxic is removed."""
    limit_s = stage.number("timeout") / 1000 if stage.number("timeout") > 0 else None
    while True:
        try:
            async with asyncio.timeout(limit_s):
                item = await stage.head(room=False)
        except TimeoutError:
            return stage.kill(Ending.CUT, "cut")
        if isinstance(item, End):
            return
        stage.drop()
        stage.harm("held")


async def reset_peer(stage: Stage) -> None:
    """Reset both sockets `timeout` ms after the first data (which is lost) or the end of the stream."""
    if not stage.armed:
        if isinstance(await stage.head(room=False), Chunk):
            stage.drop()
        stage.armed = True
    await asyncio.sleep(stage.number("timeout") / 1000)
    stage.kill(Ending.RST)  # the harm is reported by the side that really sends the RST


async def slow_close(stage: Stage) -> None:
    """The end of the stream is handed on `delay` ms late."""
    await noop(stage)
    if stage.number("delay") > 0:
        stage.harm("delayed")
        await asyncio.sleep(stage.number("delay") / 1000)


KINDS: Mapping[str, Kind] = {
    "latency": Kind("LatencyToxic", {"latency": "int64", "jitter": "int64"}, latency, LATENCY_INBOX_BYTES),
    "bandwidth": Kind("BandwidthToxic", {"rate": "int64"}, bandwidth),
    "slow_close": Kind("SlowCloseToxic", {"delay": "int64"}, slow_close),
    "timeout": Kind("TimeoutToxic", {"timeout": "int64"}, timeout, cuts_when_removed=True),
    "reset_peer": Kind("ResetToxic", {"timeout": "int64"}, reset_peer),
    "slicer": Kind("SlicerToxic", {"average_size": "int", "size_variation": "int", "delay": "int"}, slicer),
    "limit_data": Kind("LimitDataToxic", {"bytes": "int64"}, limit_data),
    "noop": Kind("NoopToxic", {}, noop),
}
