"""The Redis serialization protocol, as far as streams need it: commands and replies, read and written.

Why our own: both sides of the gateway speak it from within an event loop, and a client library would retry, pool and
reconnect where a failure has to be seen. Source: the RESP2 and RESP3 specifications of redis.io.

A reply is `bytes` (bulk string), `int`, `list`, `dict`, `None`, `Status` (simple string) or `ReplyError`.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any

from msgspec import Struct

Reply = Any

BULK_BYTES_MAX = 64 << 20


class ProtocolError(Exception):
    """The other side does not speak RESP."""


class Status(Struct, frozen=True):
    """A simple string such as OK."""

    text: str


class ReplyError(Struct, frozen=True):
    """An error reply; a value and no exception, since it is an answer like any other. text: `CODE message`."""

    text: str


OK = Status("OK")


def command(*parts: bytes | str | int) -> bytes:
    """A command as clients send it: an array of bulk strings."""
    return encode([part if isinstance(part, bytes) else str(part).encode() for part in parts])


def encode(reply: Reply, resp3: bool = False) -> bytes:
    """A reply on the wire. RESP2 has no maps and no null of its own: a map becomes a flat array there."""
    match reply:
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(reply), reply)
        case str():
            return encode(reply.encode())
        case int():
            return b":%d\r\n" % reply
        case None:
            return b"_\r\n" if resp3 else b"$-1\r\n"
        case Status():
            return b"+%b\r\n" % _line(reply.text)
        case ReplyError():
            return b"-%b\r\n" % _line(reply.text)
        case list():
            return b"*%d\r\n" % len(reply) + b"".join(encode(item, resp3) for item in reply)
        case dict():
            head = b"%%%d\r\n" % len(reply) if resp3 else b"*%d\r\n" % (2 * len(reply))
            return head + b"".join(encode(item, resp3) for item in chain.from_iterable(reply.items()))
    raise TypeError(f"no RESP form for {type(reply).__name__}")


def _line(text: str) -> bytes:
    return " ".join(text.split()).encode()


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    """The next RESP2 reply. Raises asyncio.IncompleteReadError when the connection ends first, and ProtocolError."""
    line = await _read_line(reader)
    kind, rest = line[:1], line[1:]
    match kind:
        case b"+":
            return Status(rest.decode(errors="replace"))
        case b"-":
            return ReplyError(rest.decode(errors="replace"))
        case b":":
            return _number(rest)
        case b"$":
            return await _read_bulk(reader, _number(rest))
        case b"*":
            length = _number(rest)
            return None if length < 0 else [await read_reply(reader) for _ in range(length)]
    raise ProtocolError(f"unknown reply type {kind!r}")


async def read_command(reader: asyncio.StreamReader) -> list[bytes]:
    """The next command of a client, not empty. Raises as `read_reply` does; inline commands are a ProtocolError."""
    parts = await read_reply(reader)
    if not isinstance(parts, list) or not parts or not all(isinstance(part, bytes) for part in parts):
        raise ProtocolError("a command is an array of bulk strings")
    return parts


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readuntil(b"\r\n")
    except asyncio.LimitOverrunError as error:
        raise ProtocolError("a line without an end") from error
    return line[:-2]


async def _read_bulk(reader: asyncio.StreamReader, length: int) -> bytes | None:
    if length < 0:
        return None
    if length > BULK_BYTES_MAX:
        raise ProtocolError(f"a string of {length} bytes")
    return (await reader.readexactly(length + 2))[:-2]


def _number(text: bytes) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ProtocolError(f"not a number: {text!r}") from error
