"""A proxied connection: its two sockets, its two lanes, and the report of what harmed it.

A direction that its sender closed is closed towards the receiver, the other one stays open: a proxy without toxics
must not be noticed. (Toxiproxy closes both, and an answer to a half-closed client is lost.)
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from functools import partial
from typing import TYPE_CHECKING

from harness.core import rng
from harness.world.live.toxics import KINDS
from harness.world.live.toxilane import Lane
from harness.world.live.toxistage import Ending, Stage, Toxic

if TYPE_CHECKING:
    from harness.world.live.toxiport import Proxy

UPSTREAM, DOWNSTREAM = "upstream", "downstream"
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close() sends RST and discards what is unsent


class Endpoint(asyncio.Protocol):
    """One of the two sockets of a connection. `lane_out` begins here, `lane_in` ends here."""

    transport: asyncio.Transport
    lane_out: Lane
    lane_in: Lane

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.connected = False

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
        if self.connected:
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
        self.proxy.emit(
            {
                "proxy": self.proxy.name,
                "event": event,
                "toxic": stage.toxic.name,
                "stream": lane.stream,
                "connection": self.number,
                "bytes_forwarded": lane.forwarded,
                "bytes_dropped": stage.dropped,
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
            self.proxy.emit(
                {
                    "proxy": self.proxy.name,
                    "event": "severed",
                    "toxic": None,
                    "stream": None,
                    "connection": self.number,
                    "bytes_forwarded": self.up.forwarded + self.down.forwarded,
                    "bytes_dropped": self.up.dropped + self.down.dropped,
                }
            )
