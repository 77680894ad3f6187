"""The Redis face of the effect gateway: one client connection, answered command by command.

Why a closed list of commands: what is not known to only read must not reach the transport around the seam.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from harness.world.live import native, resp
from harness.world.live.resp import OK, Reply, ReplyError
from harness.world.live.upstream import NETWORK_ERRORS, network_error

if TYPE_CHECKING:
    from harness.world.live.gateway import Gateway, Ticket

KEY_FIRST = {b"XRANGE", b"XREVRANGE", b"XLEN", b"TYPE", b"TTL", b"XPENDING", b"XACK", b"EXISTS"}
"""Passed on, with a key as the first argument. XACK, like XREADGROUP and XGROUP, changes nothing but the bookkeeping of
a reader."""

KEY_SECOND = {b"XGROUP", b"XINFO"}
KEYS_AFTER_STREAMS = {b"XREAD", b"XREADGROUP"}

NO_AUTH = ReplyError("NOAUTH Authentication required.")


class RespClient:
    """A connection of a check's process. The ticket is its password."""

    def __init__(self, gateway: Gateway, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._gateway, self._reader, self._writer = gateway, reader, writer
        self._token = ""
        self._resp3 = False
        self._queue: list[list[bytes]] | None = None  # commands between MULTI and EXEC
        self._upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def serve(self) -> None:
        """Until the client leaves or says something that is not RESP."""
        try:
            while True:
                command = await resp.read_command(self._reader)
                self._writer.write(resp.encode(await self._answer(command), self._resp3))
                await self._writer.drain()
        except resp.ProtocolError as error:
            self._writer.write(resp.encode(ReplyError(f"ERR Protocol error: {error}")))
        except (EOFError, OSError):
            pass  # the client left
        finally:
            self._hang_up()
            self._writer.close()

    async def _answer(self, command: list[bytes]) -> Reply:
        name = command[0].upper()
        match name:
            case b"HELLO":
                return self._hello(command)
            case b"AUTH":
                return OK if self._authenticate(command[-1]) else ReplyError("WRONGPASS invalid password")
        ticket = self._gateway.ticket(self._token)
        if ticket is None:
            return NO_AUTH
        if self._queue is not None and name not in (b"EXEC", b"DISCARD", b"MULTI"):
            self._queue.append(command)
            return resp.Status("QUEUED")
        match name:
            case b"MULTI":
                self._queue = []
                return OK
            case b"DISCARD":
                self._queue = None
                return OK
            case b"EXEC":
                queue, self._queue = self._queue, None
                if queue is None:
                    return ReplyError("ERR EXEC without MULTI")
                return [await self._run(ticket, queued) for queued in queue]
        return await self._run(ticket, command)

    async def _run(self, ticket: Ticket, command: list[bytes]) -> Reply:
        name = command[0].upper()
        match name:
            case b"XADD":
                asked = native.xadd(command)
                return (
                    asked
                    if isinstance(asked, ReplyError)
                    else native.resp_reply(await self._gateway.effect(ticket, asked))
                )
            case b"PING":
                return command[1] if len(command) > 1 else resp.Status("PONG")
            case b"SELECT" | b"QUIT":
                return OK
            case b"CLIENT" if command[1:2] and command[1].upper() in (b"SETINFO", b"SETNAME"):
                return OK
        prefixed = _prefixed(command, f"{self._gateway.ns}:".encode())
        if prefixed is None:
            return ReplyError(f"ERR unknown command '{command[0].decode(errors='replace')}'")
        return await self._pass_on(prefixed)

    def _authenticate(self, password: bytes) -> bool:
        token = password.decode(errors="replace")
        if self._gateway.ticket(token) is None:
            return False
        self._token = token
        return True

    def _hello(self, command: list[bytes]) -> Reply:
        """HELLO [version [AUTH user password] [SETNAME name]]"""
        version = command[1] if len(command) > 1 else b"2"
        if version not in (b"2", b"3"):
            return ReplyError("NOPROTO unsupported protocol version")
        words = [word.upper() for word in command]
        if b"AUTH" in words[2:] and not self._authenticate(b"".join(command[words.index(b"AUTH") + 2 :][:1])):
            return ReplyError("WRONGPASS invalid username-password pair")
        if self._gateway.ticket(self._token) is None:
            return NO_AUTH
        self._resp3 = version == b"3"
        about = {"server": "redis", "version": "7.0.0", "proto": int(version), "id": 1, "mode": "standalone"}
        return about | {"role": "master", "modules": []}

    async def _pass_on(self, command: list[bytes]) -> Reply:
        """Ask the real transport, over a connection that lasts until it fails or the client leaves."""
        try:
            if self._upstream is None:
                self._upstream = await asyncio.open_connection(*self._gateway.upstreams.transport)
            reader, writer = self._upstream
            writer.write(resp.command(*command))
            await writer.drain()
            reply = await resp.read_reply(reader)
        except NETWORK_ERRORS as error:
            self._hang_up()
            return ReplyError(f"ERR {network_error(error).code}")
        if command[0].upper() in KEYS_AFTER_STREAMS and isinstance(reply, list):
            prefix = f"{self._gateway.ns}:".encode()
            streams = [(key.removeprefix(prefix), entries) for key, entries in reply]
            return dict(streams) if self._resp3 else [list(stream) for stream in streams]
        return reply

    def _hang_up(self) -> None:
        if self._upstream is not None:
            self._upstream[1].transport.abort()
        self._upstream = None


def _prefixed(command: list[bytes], prefix: bytes) -> list[bytes] | None:
    """The command with the namespace before each key; None for one that is not passed on."""
    name = command[0].upper()
    places: range
    if name in KEY_FIRST:
        places = range(1, len(command) if name == b"EXISTS" else 2)
    elif name in KEY_SECOND:
        places = range(2, 3)
    elif name in KEYS_AFTER_STREAMS:
        words = [word.upper() for word in command]
        if b"STREAMS" not in words:
            return None
        first = words.index(b"STREAMS") + 1
        places = range(first, first + (len(command) - first) // 2)
    else:
        return None
    return [prefix + part if place in places else part for place, part in enumerate(command)]
