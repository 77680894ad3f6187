"""One proxied address: its listener, its live connections, its toxics and its totals.

It knows nothing of HTTP; the control API in `toxiproxy.py` drives it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from msgspec import Struct

from harness.world.live.toxilink import DOWNSTREAM, UPSTREAM, Connection
from harness.world.live.toxistage import Toxic

BACKLOG = 512
LOOPBACK = "127.0.0.1"


class ProxyError(Exception):
    """The proxy cannot listen where it should; the message is worded as Toxiproxy words it."""


class ProxyStats(Struct, frozen=True):
    """Totals of one proxy since it was created.

    connections: accepted; bytes_up, bytes_down: handed to the receiving socket; resets_sent: connections ended by RST;
    bytes_dropped_*: read but never handed on, for whatever reason; toxics_applied: connections that each toxic (by
    name) was put to work on, whether or not it then did harm.
    """

    connections: int
    bytes_up: int
    bytes_down: int
    resets_sent: int
    bytes_dropped_up: int
    bytes_dropped_down: int
    toxics_applied: Mapping[str, int]


class Proxy:
    """A listening address, an upstream address and the toxics between them. Both are "host:port"."""

    def __init__(
        self, name: str, listen: str, upstream: str, seed: int, emit: Callable[[dict[str, Any]], None]
    ) -> None:
        self.name, self.listen, self.upstream, self.seed, self.emit = name, listen, upstream, seed, emit
        self.toxics: dict[str, Toxic] = {}
        self.applied: Counter[str] = Counter()
        self._accepted = self._resets = 0
        self._past = {UPSTREAM: [0, 0], DOWNSTREAM: [0, 0]}  # forwarded, dropped by connections that are over
        self._live: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    @property
    def enabled(self) -> bool:
        return self._listener is not None

    async def start(self) -> None:
        """Listen; `listen` then names the real port. Raises ProxyError. An empty host means loopback only."""
        if self._listener is not None:
            return
        try:
            host, port = split_address(self.listen)
            host = LOOPBACK if host in ("", "localhost") else host
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            loop = asyncio.get_running_loop()
            self._listener = await loop.create_server(
                lambda: Connection(self).client, host, port, family=family, backlog=BACKLOG
            )
        except ProxyError as error:
            raise ProxyError(f"listen tcp: {error}") from None
        except OSError as error:
            reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
            raise ProxyError(f"listen tcp {self.listen}: bind: {reason}") from None
        shown, port = self._listener.sockets[0].getsockname()[:2]
        self.listen = f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}"

    async def stop(self, *, reported: bool) -> None:
        """Close the listener and drop the connections; returns when no socket and no task is left.

        reported: the loss of a live connection is a harm to tell of, not the end of the proxy's use.
        """
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            for _ in range(3):  # let sockets that were accepted before it was closed turn up, to be dropped too
                await asyncio.sleep(0)
        await asyncio.gather(*(connection.drop(reported=reported) for connection in list(self._live)))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def dial(self, protocol: Callable[[], asyncio.Protocol]) -> bool:
        """Connect to the upstream; False when it cannot be reached."""
        try:
            host, port = split_address(self.upstream)
            await asyncio.get_running_loop().create_connection(protocol, host or LOOPBACK, port)
        except (OSError, ProxyError):
            return False
        return True

    def set_toxic(self, toxic: Toxic) -> None:
        """Add a toxic at the end of its chain, or change it where it stands; live connections follow."""
        self.toxics[toxic.name] = toxic
        self._reconcile()

    def remove_toxics(self, names: Iterable[str]) -> None:
        for name in list(names):
            del self.toxics[name]
            self._reconcile()

    def _reconcile(self) -> None:
        for connection in list(self._live):
            connection.apply_toxics()

    def admit(self, connection: Connection) -> int:
        self._live.add(connection)
        self._accepted += 1
        return self._accepted

    def dismiss(self, connection: Connection) -> None:
        self._live.discard(connection)
        self._resets += connection.reset
        for lane in (connection.up, connection.down):
            self._past[lane.stream][0] += lane.forwarded
            self._past[lane.stream][1] += lane.dropped

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": f"fault proxy {self.name}: a toxic broke", "exception": error, "task": task}
            task.get_loop().call_exception_handler(context)

    def stats(self) -> ProxyStats:
        up, down = list(self._past[UPSTREAM]), list(self._past[DOWNSTREAM])
        for connection in self._live:
            for total, lane in ((up, connection.up), (down, connection.down)):
                total[0] += lane.forwarded
                total[1] += lane.dropped
        resets = self._resets + sum(connection.reset for connection in self._live)
        return ProxyStats(self._accepted, up[0], down[0], resets, up[1], down[1], dict(self.applied))


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[v6]:port". Raises ProxyError in the words of Go's net package."""
    host, colon, port = address.rpartition(":")
    if not colon:
        if address:
            raise ProxyError(f"address {address}: missing port in address")
        return "", 0
    if not port.isdecimal():
        raise ProxyError(f"lookup tcp/{port}: unknown port")
    if int(port) > 65535:
        raise ProxyError(f"address {port}: invalid port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def canonical_listen(address: str) -> str:
    """The address in one spelling, to tell whether two are the same. Raises ProxyError."""
    host, port = split_address(address)
    return f"{LOOPBACK if host in ('', 'localhost') else host}:{port}"
