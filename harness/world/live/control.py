"""The wire between an orchestrator process and its supervisor: requests to harm the network or the provider.

Services, proxies and the proxy's control client live in the supervisor, so a fault that an orchestrator's injector
decided is carried there; the answer comes when the harm is in place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
from msgspec import Struct

from harness.core.errors import HarnessBug
from harness.core.roles import Cut


class Request(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """op: cut and heal (a boundary, by the name of its harm) or fail (the provider's next answer has this status).
    after_ms: nominal time until the healing. site: whose request fails."""

    op: str
    boundary: str = ""
    name: str = ""
    cut: Cut | None = None
    status: int = 0
    after_ms: float = 0.0
    site: str = ""


class Control:
    """The orchestrator's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._lock = reader, writer, asyncio.Lock()

    @classmethod
    async def connect(cls, path: str) -> Control:
        return cls(*await asyncio.open_unix_connection(path))

    async def ask(self, request: Request) -> None:
        """Wait until the supervisor has done it. Raises HarnessBug when it could not."""
        async with self._lock:
            self._writer.write(msgspec.json.encode(request) + b"\n")
            answer = (await self._reader.readline()).decode().strip()
        if answer != "ok":
            raise HarnessBug(f"supervisor could not {request.op}: {answer or 'it is gone'}")

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


async def serve(path: str, act: Callable[[Request], Awaitable[None]]) -> asyncio.AbstractServer:
    """The supervisor's end: one request at a time per connection."""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                try:
                    await act(msgspec.json.decode(line, type=Request))
                    writer.write(b"ok\n")
                except Exception as error:
                    writer.write(f"{error!r}\n".encode())
                await writer.drain()
        except OSError:
            pass  # the orchestrator was killed in the middle of a request
        finally:
            writer.close()

    return await asyncio.start_unix_server(peer, path)
