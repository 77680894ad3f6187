"""What the tests of the fault proxy share: a server that remembers, a client that tells how it ended, both proxies."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from toxiproxy import Toxiproxy
from toxiproxy.api import APIConsumer

from harness.world.live.toxiproxy import ToxiproxyServer, launch_real

PATIENCE_S = 10.0
STREAMS = ("upstream", "downstream")


@dataclass
class Peer:
    """What the upstream server saw of one connection. ending: "", "eof" or "reset"."""

    writer: asyncio.StreamWriter
    data: bytes = b""
    reads: list[int] = field(default_factory=list)
    ending: str = ""


@dataclass
class Upstream:
    """An echo server that remembers; with `echo` False it only listens."""

    port: int = 0
    echo: bool = True
    peers: list[Peer] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(writer)
        self.peers.append(peer)
        try:
            while data := await reader.read(65536):
                peer.data += data
                peer.reads.append(len(data))
                if self.echo:
                    writer.write(data)
                    await writer.drain()
            peer.ending = "eof"
        except ConnectionError:
            peer.ending = "reset"
        finally:
            writer.close()


@dataclass
class Proxying:
    """A running fault proxy and its blocking client. server and events are None and empty for the real one."""

    port: int
    upstream: Upstream
    server: ToxiproxyServer | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    client: Toxiproxy = field(default_factory=Toxiproxy)

    async def call(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return await asyncio.to_thread(function, *args, **named)

    async def proxy(self, name: str = "p", **named: Any) -> Any:
        return await self.call(self.client.create, f"127.0.0.1:{self.upstream.port}", name, **named)

    async def api(self, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        url = f"http://127.0.0.1:{self.port}{path}"
        async with aiohttp.ClientSession() as session, session.request(method, url, data=body) as answer:
            return answer.status, (await answer.json(content_type=None) if answer.status not in (204, 405) else None)

    def harms(self, *, closed: bool = False) -> list[tuple[str, str, int]]:
        return [
            (event["event"], event["toxic"], event["connection"])
            for event in self.events
            if (event["event"] == "closed") == closed
        ]


@contextlib.asynccontextmanager
async def running(kind: str, seed: int = 7) -> AsyncIterator[Proxying]:
    upstream = Upstream()
    listener = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    upstream.port = listener.sockets[0].getsockname()[1]
    before = APIConsumer.host, APIConsumer.port
    process = server = None
    events: list[dict[str, Any]] = []
    if kind == "real":
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = await launch_real(port, seed)
    else:
        server = ToxiproxyServer(seed, lambda event: events.append(dict(event)))
        port = await server.start()
    proxying = Proxying(port, upstream, server, events)
    proxying.client.update_api_consumer("127.0.0.1", port)
    try:
        yield proxying
    finally:
        APIConsumer.host, APIConsumer.port = before
        if server is not None:
            await server.stop()
        if process is not None:
            process.terminate()
            await process.wait()
        listener.close()
        for peer in upstream.peers:
            peer.writer.close()


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self, size: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(size), PATIENCE_S)

    async def ending(self) -> tuple[bytes, str]:
        """All that still comes, and how the connection ended."""
        data = b""
        try:
            while more := await asyncio.wait_for(self.reader.read(65536), PATIENCE_S):
                data += more
        except ConnectionError:
            return data, "reset"
        return data, "eof"


@contextlib.asynccontextmanager
async def connected(proxy: Any) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.listen.rsplit(":", 1)[1]))
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


def seconds() -> float:
    return asyncio.get_running_loop().time()


async def struck(kind: str, seed: int, *, toxicity: float, disturb: bool = False, connections: int = 24) -> list[bool]:
    """Which of the connections, one after the other, were struck by a toxic that swallows everything."""
    result = []
    async with running(kind, seed) as proxying:
        proxy = await proxying.proxy()
        if disturb:
            await proxying.call(proxy.add_toxic, type="latency", name="other", toxicity=0.5)
        await proxying.call(proxy.add_toxic, type="limit_data", name="l", stream="upstream", toxicity=toxicity)
        for _ in range(connections):
            async with connected(proxy) as client:
                await client.send(b"x")
                result.append(await asyncio.wait_for(client.reader.read(1), PATIENCE_S) == b"")
    return result
