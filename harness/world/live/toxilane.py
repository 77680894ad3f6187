"""One direction of a proxied connection: where data enters, the toxics it passes, and the socket it leaves by.

Without toxics a lane writes what one socket read straight to the other, inside the protocol callback: no task, no
queue, no copy. With toxics the same callback feeds a chain of stages. Both ways share one exit, and a chain is changed
in one synchronous step, so switching under traffic loses and reorders nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from harness.world.live.toxistage import Chunk, End, Ending, Sink, Stage, Toxic

if TYPE_CHECKING:
    from harness.world.live.toxilink import Connection, Endpoint


class Lane:
    """One direction of one connection; it is also the exit of its chain of stages."""

    def __init__(self, connection: Connection, stream: str, source: Endpoint, dest: Endpoint) -> None:
        self.connection, self.stream, self.source, self.dest = connection, stream, source, dest
        self.first: Stage | None = None  # where data enters; None: straight to `write`
        self.stages: list[Stage] = []
        self.history: list[Stage] = []
        self.forwarded = self.lost = 0  # bytes; `lost` without those that stages count themselves
        self.full = False  # the receiving socket takes no more for now
        self.ended = False  # no more input
        self.done = False  # no more output
        self.write: Callable[[bytes | memoryview], Any] = self._discard

    def feed(self, data: bytes) -> None:
        """Data was read from the source (hot path)."""
        if self.first is None:
            self.forwarded += len(data)
            self.write(data)
        else:
            self.first.put(Chunk(data, self.connection.loop.time()))

    def end_input(self, how: Ending) -> None:
        if not self.ended:
            self.ended = True
            (self.first or self).finish(End(how))

    def throttle(self) -> None:
        """Read from the source exactly as long as somebody takes the data."""
        if self.done or (self.first or self).full:
            self.source.pause()
        elif not self.ended:  # after the end, asyncio would report it again and again
            self.source.resume()

    # -- the exit

    def put(self, chunk: Chunk) -> None:
        self.forwarded += len(chunk.data)
        self.write(chunk.data)

    def finish(self, end: End) -> None:
        if self.done:
            return
        if end.how is Ending.FIN:
            self.close()
            self.dest.write_eof()
            return self.connection.lane_closed()
        if end.how is Ending.RST:
            self.connection.reset = True
            self.dest.reset()
            if end.by is not None:
                end.by.harm("reset")
        else:
            self.dest.transport.close()  # what was already handed on is still sent
        self.close()
        self.connection.opposite(self).end_input(end.how)

    def close(self) -> None:
        self.done = self.ended = True
        self.write = self._discard
        self.throttle()

    def _discard(self, data: bytes | memoryview) -> None:
        self.forwarded -= len(data)
        self.lost += len(data)

    def unsent(self, size: int) -> None:
        """So many bytes were handed on, but will be thrown away with the socket."""
        self.forwarded -= size
        self.lost += size

    # -- the chain

    @property
    def dropped(self) -> int:
        return self.lost + sum(stage.dropped for stage in self.history)

    def reconcile(self, toxics: Iterable[Toxic]) -> None:
        """Make the chain that of `toxics` (those that strike this connection, in order), keeping stages that stay."""
        wanted = list(toxics)
        names = {toxic.name for toxic in wanted}
        for stage in [stage for stage in self.stages if stage.toxic.name not in names]:
            stage.release()
            self.stages.remove(stage)
            self._link()
        staying = {stage.toxic.name: stage for stage in self.stages}
        chain: list[Stage] = []
        to_start: list[Stage] = []
        for toxic in wanted:
            if toxic.name in staying:
                stage = staying[toxic.name]
            elif not self.done:
                stage = self.connection.new_stage(toxic, self)
                self.history.append(stage)
                to_start.append(stage)
            else:
                continue
            if stage.toxic != toxic:
                stage.toxic = toxic
                to_start.append(stage)
            chain.append(stage)
        self.stages = chain
        self._link()
        for stage in to_start:
            stage.start(self.connection.proxy.spawn)

    def _link(self) -> None:
        feeder = self.throttle
        sinks: list[Sink] = [*self.stages[1:], self]
        for stage, following in zip(self.stages, sinks, strict=False):
            stage.next, stage.feeder = following, feeder
            feeder = stage.wake
        for stage in self.stages:
            stage.wake()  # the new neighbour may have room
        self.first = self.stages[0] if self.stages else None
        self.throttle()

    def abandon(self) -> None:
        """Both sockets are gone: account for what never got through."""
        killer = next((stage for stage in self.history if stage.killed), None)
        for stage in self.stages:
            stage.halt()
            stage.lose_held(killer or stage)
        for stage in self.history:
            if stage.dropped:
                stage.harm("held")
