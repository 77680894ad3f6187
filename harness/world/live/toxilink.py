"""The data path of the fault proxy: a connection, its two sockets and its two lanes.

Without toxics a lane writes what one socket read straight to the other, inside the protocol callback: no task, no
queue, no copy. With toxics the same callback feeds a chain of stages. Both ways share one exit, and a chain is changed
in one synchronous step, so switching under traffic loses and reorders nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from harness.core import rng
from harness.world.live.toxics import KINDS
from harness.world.live.toxistage import Chunk, End, Ending, Sink, Stage, Toxic

if TYPE_CHECKING:
    from harness.world.live.toxiport import Proxy

UPSTREAM, DOWNSTREAM = "upstream", "downstream"
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close() sends RST and discards what is unsent


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
        self.write: Callable[[bytes], Any] = self._discard

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
        elif not self.ended:
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

    def _discard(self, data: bytes) -> None:
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


class Endpoint(asyncio.Protocol):
    """One of the two sockets of a connection. `lane_out` begins here, `lane_in` ends here."""

    transport: asyncio.Transport
    lane_out: Lane
    lane_in: Lane

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.connected = False
        self.at_eof = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self.connection.lost.done():  # the client was dropped while this one was being made
            return transport.abort()
        self.transport, self.connected = transport, True
        transport.pause_reading()  # until the other side is there
        self.connection.endpoint_made(self)

    def data_received(self, data: bytes) -> None:
        self.lane_out.feed(data)

    def eof_received(self) -> bool:
        self.at_eof = True
        self.lane_out.end_input(Ending.FIN)
        return True  # keep the other direction open

    def connection_lost(self, exc: Exception | None) -> None:
        self.connected = False
        self.connection.endpoint_lost(self)

    def pause_writing(self) -> None:
        self._set_full(True)

    def resume_writing(self) -> None:
        self._set_full(False)

    def _set_full(self, full: bool) -> None:
        lane = self.lane_in
        lane.full = full
        if lane.stages:
            lane.stages[-1].wake()
        else:
            lane.throttle()

    def pause(self) -> None:
        if self.connected:
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.connected and not self.at_eof:  # asyncio would report the end again and again
            self.transport.resume_reading()

    def write_eof(self) -> None:
        with contextlib.suppress(OSError):  # the peer was faster and is gone
            self.transport.write_eof()

    def reset(self) -> None:
        with contextlib.suppress(OSError):
            raw = self.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.abort()

    def abort(self) -> None:
        if self.connected:
            self.lane_in.unsent(self.transport.get_write_buffer_size())
            self.transport.abort()


class Connection:
    """A client's connection and the one made for it to the upstream server. number: nth of its proxy, from 1."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy, self.loop = proxy, asyncio.get_running_loop()
        self.number = 0
        self.reset = False
        self.client, self.server = Endpoint(self), Endpoint(self)
        self.up = Lane(self, UPSTREAM, self.client, self.server)
        self.down = Lane(self, DOWNSTREAM, self.server, self.client)
        self.client.lane_out = self.server.lane_in = self.up
        self.server.lane_out = self.client.lane_in = self.down
        self.lost: asyncio.Future[None] = self.loop.create_future()
        self._dial: asyncio.Task[None] | None = None

    def endpoint_made(self, endpoint: Endpoint) -> None:
        if endpoint is self.client:
            if not self.proxy.enabled:  # accepted in the moment in which the listener was closed
                return endpoint.transport.abort()
            self.number = self.proxy.admit(self)
            self._dial = self.proxy.spawn(self._connect())
            return
        for lane in (self.up, self.down):
            lane.write = lane.dest.transport.write
        self.apply_toxics()

    async def _connect(self) -> None:
        if not await self.proxy.dial(lambda: self.server):
            self.client.transport.close()

    def apply_toxics(self) -> None:
        if self.server.connected:
            for lane in (self.up, self.down):
                lane.reconcile(
                    toxic for toxic in self.proxy.toxics.values() if toxic.direction == lane.stream and self._hit(toxic)
                )

    def _hit(self, toxic: Toxic) -> bool:
        return rng.draw(self.proxy.seed, "toxicity", self.proxy.name, toxic.name, self.number) < toxic.toxicity

    def new_stage(self, toxic: Toxic, lane: Lane) -> Stage:
        self.proxy.applied[toxic.name] += 1
        seed, owner, number = self.proxy.seed, self.proxy.name, self.number

        def draw(what: str, k: int) -> float:
            return rng.draw(seed, what, owner, toxic.name, number, k)

        return Stage(toxic, KINDS[toxic.type], draw, partial(self.report, lane), lane)

    def report(self, lane: Lane, stage: Stage, event: str) -> None:
        self._emit(event, stage.toxic.name, lane.stream, lane.forwarded, stage.dropped)

    def _emit(self, event: str, toxic: str | None, stream: str | None, forwarded: int, dropped: int) -> None:
        self.proxy.emit(
            {
                **{"proxy": self.proxy.name, "event": event, "toxic": toxic, "stream": stream},
                **{"connection": self.number, "bytes_forwarded": forwarded, "bytes_dropped": dropped},
            }
        )

    def opposite(self, lane: Lane) -> Lane:
        return self.down if lane is self.up else self.up

    def lane_closed(self) -> None:
        if self.up.done and self.down.done:
            self.client.transport.close()
            self.server.transport.close()

    def endpoint_lost(self, endpoint: Endpoint) -> None:
        if self.lost.done():
            return
        endpoint.lane_in.close()  # nobody is left to receive
        if self.server.connected or self.client.connected:
            endpoint.lane_out.end_input(Ending.CUT)
            self.lane_closed()
            return
        if self._dial is not None:
            self._dial.cancel()
        for lane in (self.up, self.down):
            lane.abandon()
            for stage in filter(lambda stage: stage.harmed, lane.history):
                self.report(lane, stage, "closed")
        self.proxy.dismiss(self)
        self.lost.set_result(None)

    async def drop(self, *, reported: bool) -> None:
        """Close both sockets at once. reported: tell of the loss as the event "severed", which no toxic caused."""
        was_live = self.server.connected
        for endpoint in (self.client, self.server):
            endpoint.abort()
        await self.lost
        if reported and was_live:
            forwarded, dropped = self.up.forwarded + self.down.forwarded, self.up.dropped + self.down.dropped
            self._emit("severed", None, None, forwarded, dropped)
