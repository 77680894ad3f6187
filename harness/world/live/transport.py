"""A Redis-protocol server for event streams that reports every event which was really appended.

Why not ``fakeredis.TcpFakeServer``: it keeps one thread per connection, wakes each of them a hundred times a second,
and has no place to observe an applied command. Here fakeredis still executes every command, but its sessions are fed
by asyncio, so hundreds of idle clients cost nothing and the sink itself can say what happened.

Streams are named ``{namespace}:{stream}``; an event is CloudEvents 1.0 JSON in the field ``event``.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import chain, cycle
from typing import Any

import msgspec
import redis.asyncio
from fakeredis import FakeServer
from fakeredis._commands import Key
from fakeredis._helpers import SimpleError, SimpleString
from fakeredis.aioredis import AsyncFakeSocket

Truth = Callable[[str, str, dict[str, Any]], None]

SERVER_VERSION = (7, 0)
"""The Redis that is imitated: 7.0 has everything streams need, and no server-side deduplication of ``XADD``."""

SHARED = frozenset({"flushall", "flushdb", "swapdb", "select", "move", "shutdown"})
"""Commands that would reach beyond one namespace; refused the way a Redis ACL refuses them."""


def encode(value: Any, resp3: bool) -> bytes:
    """One reply in RESP2 or RESP3, from the value that fakeredis computed for that protocol.

    Strings go out as bulk strings and only Redis' own status words as simple strings, as a real server does.
    Raises ``TypeError`` for a value that has no encoding. Source: the RESP specification of redis.io.
    """
    match value:
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(value), value)
        case None:
            return b"_\r\n" if resp3 else b"$-1\r\n"
        case bool():
            return (b"#t\r\n" if value else b"#f\r\n") if resp3 else b":%d\r\n" % value
        case int():
            return b":%d\r\n" % value
        case list() | tuple():
            return b"*%d\r\n" % len(value) + b"".join(encode(item, resp3) for item in value)
        case SimpleString():
            return b"+%b\r\n" % value.value
        case SimpleError():
            return b"-%b\r\n" % value.value.encode()
        case str():
            return encode(value.encode(), resp3)
        case dict():
            items = b"".join(encode(item, resp3) for item in chain.from_iterable(value.items()))
            return (b"%%%d\r\n" % len(value) if resp3 else b"*%d\r\n" % (2 * len(value))) + items
        case set() | frozenset():
            return (b"~%d\r\n" if resp3 else b"*%d\r\n") % len(value) + b"".join(encode(i, resp3) for i in value)
        case float():
            return b",%b\r\n" % repr(value).encode() if resp3 else encode(repr(value).encode(), resp3)
    raise TypeError(f"no RESP encoding for {type(value).__name__}")


class _Commands(AsyncFakeSocket):
    """What fakeredis keeps per client, with its replies sent to the wire and its applied commands observed."""

    def __init__(self, service: "TransportService", send: Callable[[bytes], None]) -> None:
        self._service = service
        self._send = send
        self._ended = False
        self.blocked_task: asyncio.Task[None] | None = None
        super().__init__(service.redis, 0, client_class=redis.asyncio.Redis)

    def put_response(self, msg: Any) -> None:
        if not self._ended:
            self._send(encode(msg, self._client_info.protocol_version == 3))

    def _decode_result(self, result: Any) -> Any:
        return result  # fakeredis would unwrap status words and errors for an in-process client; the wire needs them

    def _run_command(self, func: Any, sig: Any, args: list[Any], from_script: bool) -> Any:
        """The one point that every command passes when it is applied, also those queued in a transaction."""
        refusal = self._service.refusal(sig.name, _keys(sig, args))
        if refusal is not None:
            return refusal
        result = super()._run_command(func, sig, args, from_script)
        if sig.name == "xadd" and isinstance(result, bytes):  # bytes: the new id; nil or an error appended nothing
            fields = args[2 + self._parse_add_trim_args(tuple(args[1:]), xadd=True).id_index :]
            self._service.appended(args[0], fields, result)
        return result

    async def _async_blocking(self, *args: Any, **kwargs: Any) -> None:
        self.blocked_task = asyncio.current_task()
        try:
            await super()._async_blocking(*args, **kwargs)
        finally:
            self.blocked_task = None

    def resume(self) -> None:
        if not self._ended:  # a client that left takes its unread commands with it, as in Redis
            super().resume()

    async def end(self) -> None:
        """Forget the client, whatever it waits for. Called once."""
        self._ended = True
        await asyncio.sleep(0)  # a command that began to block just now has not named its task yet
        if self.blocked_task is not None:
            self.blocked_task.cancel()
            await asyncio.wait([self.blocked_task])
        self.close()


class _Connection(asyncio.Protocol):
    """One TCP client: bytes in, replies of all complete commands out in one write."""

    def __init__(self, service: "TransportService") -> None:
        self._service = service
        self._pending: list[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._commands = _Commands(self._service, self._send)
        self._service.connections.add(self)

    def _send(self, reply: bytes) -> None:
        if self._pending is None:  # not inside data_received: the late reply of a blocking command
            self.transport.write(reply)
        else:
            self._pending.append(reply)

    def data_received(self, data: bytes) -> None:
        self._pending, broken = [], False
        try:
            self._commands.sendall(data)
        except SimpleError as error:
            self._pending.append(encode(error, False))
            broken = True
        except Exception as error:  # a defect of fakeredis ends this client, never the service, and is not hushed up
            asyncio.get_running_loop().call_exception_handler({"message": "transport command", "exception": error})
            self._pending.append(encode(SimpleError(f"ERR internal error: {error}"), False))
            broken = True
        pending, self._pending = self._pending, None
        if pending:
            self.transport.write(b"".join(pending))
        if broken:  # what follows cannot be parsed; Redis closes after a protocol error, too
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._service.connections.discard(self)
        self._service.farewell(self._commands.end())


class TransportService:
    """The event transport of all trials of one worker.

    ``truth(namespace, "effect", {boundary, operation, stream, event, receipt})`` is called for each appended event,
    before the client gets its reply; ``event`` is the decoded JSON (the text if it is none; all fields if there is
    no field ``event``) and ``receipt`` the stream id. A namespace that is not open refuses every command with
    ``NOPERM``, so that an orphan of a finished trial cannot leave anything behind. No pub/sub, no Lua.
    """

    def __init__(self, truth: Truth) -> None:
        self.redis = FakeServer(version=SERVER_VERSION)
        self.connections: set[_Connection] = set()
        self._truth = truth
        self._open: set[str] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen, and return the port (a free one for 0). Raises ``OSError`` when the port is taken."""
        self._server = await asyncio.get_running_loop().create_server(lambda: _Connection(self), host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Drop all clients and all data, and free the port."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self.connections):
            connection.transport.abort()
        while self.connections or self._leaving:
            await asyncio.sleep(0)
        await self._server.wait_closed()
        self._server = None
        self._open.clear()
        self.redis = FakeServer(version=SERVER_VERSION)

    async def open(self, ns: str) -> None:
        """Admit the commands of a namespace."""
        self._open.add(ns)

    async def close(self, ns: str) -> list[str]:
        """Refuse the namespace from now on and delete its keys; returns the names of those that remain."""
        self._open.discard(ns)
        database, prefix = self.redis.dbs[0], ns.encode() + b":"
        with self.redis.lock:  # notify_watch wakes blocked clients, which fakeredis allows only under its lock
            for key in [key for key in database if key.startswith(prefix)]:
                del database[key]
                database.notify_watch(key)
        return [key.decode(errors="replace") for key in database if key.startswith(prefix)]

    def refusal(self, command: str, keys: Iterable[bytes]) -> SimpleError | None:
        """Why a client may not run this command, in the words of a Redis ACL; None if it may."""
        if command in SHARED:
            return SimpleError(f"NOPERM User default has no permissions to run the '{command}' command")
        if all(key.partition(b":")[0].decode(errors="replace") in self._open for key in keys):
            return None
        return SimpleError("NOPERM No permissions to access a key")

    def appended(self, key: bytes, fields: list[bytes], receipt: bytes) -> None:
        """Write down one event that the stream now holds."""
        ns, _, stream = key.decode(errors="replace").partition(":")
        data = {"boundary": "transport", "operation": "XADD", "stream": stream}
        self._truth(ns, "effect", {**data, "event": _event(fields), "receipt": receipt.decode()})

    def farewell(self, ending: Any) -> None:
        """Let a client's clean-up run to its end even though its connection is gone."""
        task = asyncio.get_running_loop().create_task(ending)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


def _keys(sig: Any, args: list[Any]) -> list[bytes]:
    """The arguments that the command's signature marks as keys."""
    return [arg for arg, kind in zip(args, chain(sig.fixed, cycle(sig.repeat)), strict=False) if isinstance(kind, Key)]


def _event(fields: list[bytes]) -> Any:
    """The event as a reader of the stream would decode it."""
    entry = dict(zip(fields[::2], fields[1::2], strict=True))
    if b"event" not in entry:
        return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in entry.items()}
    try:
        return msgspec.json.decode(entry[b"event"])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return entry[b"event"].decode(errors="replace")
