"""What git says over the wire when it pushes: the request in pkt-lines with its pack, and the report that answers it.

Why read here and not by git: the gateway has to know which references a push would move, and what to, before anybody
decides whether it may, and has to answer in git's own words when it never reaches the remote. Source: gitprotocol-pack,
gitprotocol-http and gitformat-pack of git's documentation.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator

from msgspec import Struct

ZEROS = "0" * 40
"""Stands for a reference that is not there."""

FLUSH = b"0000"
BAND_BYTES_MAX = 995
"""Of a packet in a side band, which every client takes: 1000 less length and band."""

_COMMAND = re.compile(r"([0-9a-f]{40}) ([0-9a-f]{40}) (refs/\S+)")
_TYPES = {1: b"commit", 2: b"tree", 3: b"blob", 4: b"tag"}
_OFS_DELTA, _REF_DELTA = 6, 7


class Command(Struct, frozen=True):
    """A reference that is to be moved, from one object to another; ZEROS for none."""

    old: str
    new: str
    ref: str

    @property
    def operation(self) -> str:
        return "tag" if self.ref.startswith("refs/tags/") else "push"


class PushRequest(Struct, frozen=True):
    """A request for git-receive-pack. pack: the objects that came with it, b"" for none."""

    commands: tuple[Command, ...]
    capabilities: frozenset[str]
    pack: bytes


class Told(Struct, frozen=True):
    """What an object says of itself. tree: of a commit; tagged: of a tag; who: committer or tagger, without time."""

    tree: str
    tagged: str
    who: str
    message: str


def pkt(line: bytes) -> bytes:
    """A pkt-line."""
    return b"%04x" % (len(line) + 4) + line


def pkt_lines(data: bytes) -> Iterator[tuple[bytes | None, int]]:
    """Lines, None for a flush, each with the position behind it. Raises ValueError where there is no such line."""
    at = 0
    while at < len(data):
        length = int(data[at : at + 4], 16)
        if length == 0:
            at += 4
            yield None, at
            continue
        if length < 4 or at + length > len(data):
            raise ValueError("not a pkt-line")
        yield data[at + 4 : at + length], at + length
        at += length


def push_request(body: bytes) -> PushRequest:
    """Read a request. Only a flush is a request for nothing, as git sends it before a large push. Raises ValueError."""
    commands: list[Command] = []
    capabilities: frozenset[str] = frozenset()
    for line, end in pkt_lines(body):
        if line is None:
            if "push-options" in capabilities:
                raise ValueError("push options are not offered")
            return PushRequest(tuple(commands), capabilities, body[end:])
        text, _, said = line.rstrip(b"\n").partition(b"\0")
        if not commands:
            capabilities = frozenset(said.decode().split())
        asked = _COMMAND.fullmatch(text.decode())
        if asked is None:
            raise ValueError(f"no command of a push: {text[:80]!r}")
        commands.append(Command(*asked.groups()))
    raise ValueError("the commands of the push do not end")


def only(asked: Command, pack: bytes) -> bytes:
    """The request that moves one reference, with the objects for it."""
    said = b"report-status agent=agentmesh object-format=sha1"
    return pkt(f"{asked.old} {asked.new} {asked.ref}".encode() + b"\0 " + said) + FLUSH + pack


def report(results: Iterable[tuple[str, str]], capabilities: frozenset[str]) -> bytes:
    """The report of a push: each reference with the reason why it was not moved, "" where it was; nothing at all for a
    client that wants none."""
    if not {"report-status", "report-status-v2"} & capabilities:
        return b""
    lines = [pkt(f"ng {ref} {why}\n".encode() if why else f"ok {ref}\n".encode()) for ref, why in results]
    status = pkt(b"unpack ok\n") + b"".join(lines) + FLUSH
    if not {"side-band", "side-band-64k"} & capabilities:
        return status
    pieces = (status[at : at + BAND_BYTES_MAX] for at in range(0, len(status), BAND_BYTES_MAX))
    return b"".join(pkt(b"\1" + piece) for piece in pieces) + FLUSH


def reported(answer: bytes, ref: str) -> str:
    """Why a reference was not moved, "" when it was, by a report without side bands. Raises ValueError when it does
    not say."""
    unpacked = ""
    for line, _ in pkt_lines(answer):
        words = (line or b"").decode(errors="replace").rstrip("\n").split(" ", 2)
        if words[0] == "unpack" and words[1:] != ["ok"]:
            unpacked = " ".join(words[1:])
        elif words[:2] == ["ok", ref]:
            return ""
        elif words[:2] == ["ng", ref]:
            return unpacked or words[2]
    raise ValueError(f"the report says nothing of {ref}")


# --- objects ------------------------------------------------------------------------------------------------------


def told(content: bytes) -> Told:
    """What a commit or tag says of itself."""
    head, _, message = content.decode(errors="replace").partition("\n\n")
    said = {name: value for name, _, value in reversed([line.partition(" ") for line in head.splitlines()])}
    who = re.sub(r" \d+ [+-]\d{4}$", "", said.get("committer", said.get("tagger", "")))
    return Told(said.get("tree", ""), said.get("object", ""), who, message)


def find_object(pack: bytes, name: str) -> bytes | None:
    """The content of the commit or tag of this name, if the pack has it. Raises ValueError for what is no pack."""
    held: dict[int, tuple[bytes, bytes]] = {}
    named: dict[str, tuple[bytes, bytes]] = {}
    try:
        for at, kind, base, data in _entries(pack):
            if kind in _TYPES:
                whole = _TYPES[kind], data
            else:
                before = held.get(at - base) if isinstance(base, int) else named.get(base)
                if before is None:
                    continue  # against something that the remote has: commits and tags never are
                whole = before[0], _patched(before[1], data)
            held[at] = whole
            sha = hashlib.sha1(b"%s %d\0" % (whole[0], len(whole[1])) + whole[1], usedforsecurity=False).hexdigest()
            if sha == name:
                return whole[1] if whole[0] in (b"commit", b"tag") else None
            named[sha] = whole
    except (IndexError, zlib.error) as error:
        raise ValueError(f"not a pack: {error}") from error
    return None


def _entries(pack: bytes) -> Iterator[tuple[int, int, int | str, bytes]]:
    """Position, type, base (how far back, or its name, of a delta) and content of every entry."""
    if pack and pack[:4] != b"PACK":
        raise ValueError("not a pack")
    at = 12
    for _ in range(int.from_bytes(pack[8:12], "big")):
        start, byte, base = at, pack[at], 0
        kind, at = byte >> 4 & 7, at + 1
        while byte & 0x80:  # the rest of the size, which the content tells as well
            byte, at = pack[at], at + 1
        named: int | str = base
        if kind == _OFS_DELTA:
            byte, at = pack[at], at + 1
            base = byte & 0x7F
            while byte & 0x80:
                byte, at = pack[at], at + 1
                base = (base + 1) << 7 | byte & 0x7F
            named = base
        elif kind == _REF_DELTA:
            named, at = pack[at : at + 20].hex(), at + 20
        inflate = zlib.decompressobj()
        data = inflate.decompress(pack[at:])
        at = len(pack) - len(inflate.unused_data)
        if not inflate.eof:
            raise ValueError("the pack breaks off")
        yield start, kind, named, data


def _patched(base: bytes, delta: bytes) -> bytes:
    """What a delta makes of its base."""
    at = 0
    for _ in range(2):  # two sizes
        while delta[at] & 0x80:
            at += 1
        at += 1
    made = bytearray()
    while at < len(delta):
        order, at = delta[at], at + 1
        if not order & 0x80:
            made += delta[at : at + order]
            at += order
            continue
        numbers = []
        for first, count in ((0, 4), (4, 3)):
            number = 0
            for n in range(count):
                if order >> (first + n) & 1:
                    number |= delta[at] << 8 * n
                    at += 1
            numbers.append(number)
        offset, size = numbers
        made += base[offset : offset + (size or 0x10000)]
    return bytes(made)
