"""A recording of what a model was asked and what it answered, from which a run can be played again without a network.

Format `agentmesh-cassette/1`: a gzip file of several members (RFC 1952), so that `zcat` prints it. Each member holds
one line of JSON and carries its own length in an extra field named "AM" (four bytes, little-endian), by which a reader
steps from member to member without unpacking any. The first line is a `Header`, each other an `Entry`. A member is
appended by one write, so several processes can record side by side and SIGKILL loses at most the one under way: a
reader skips what is damaged, says so, and goes on at the next member.
"""

from __future__ import annotations

import gzip
import hashlib
import mmap
import os
import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from harness.core.errors import ConfigError
from harness.world.live.difference import difference

FORMAT = "agentmesh-cassette/1"
START = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x08\0AM\x04\0"
"""How every member begins; no time in it, so that equal lines are equal bytes."""

VOLATILE = (
    (re.compile(r"\b\d{2}-[0-9a-f]{32}-[0-9a-f]{16}-\d{2}\b"), "<trace>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?"), "<time>"),
    (re.compile(r"(?<![\d.])1[6-9]\d{11}(?![\d.])"), "<ms>"),
    (re.compile(r"\bw-\d+\b"), "<worker>"),
    (re.compile(r"\b(?:127\.0\.0\.1|localhost):\d+"), "<address>"),
)
"""What differs between two executions of the same request, and what stands for it in its canonical form."""

Json = dict[str, Any]
Ended = Literal["complete", "dropped", "lost", "unreachable"]


class Header(Struct, frozen=True, kw_only=True):
    """The first line. host: of the endpoint, with its port and nothing else of its address."""

    cassette: str = FORMAT
    model: str
    host: str


class Entry(Struct, frozen=True, kw_only=True):
    """One request and what came of it, with all secrets taken out.

    key: sha256 of the canonical request. nth: which time the trial made it, from 0. request: in its canonical form.
    status 0: no status came. body: as it came, whole or not, see `ended`. rewritten: a secret lay across pieces of the
    stream, so `body` is the same answer in one piece. took_ms: real milliseconds until its end.
    """

    trial: str
    key: str
    nth: int
    site: str
    request: Json
    status: int
    headers: dict[str, str]
    body: str
    ended: Ended
    rewritten: bool = False
    took_ms: float = 0.0


class _Place(Struct, frozen=True):
    """What of an entry is kept in memory."""

    trial: str
    key: str
    nth: int


class NoAnswer(Exception):
    """Nobody can answer, for a reason that is no arm's and no model's: the trial says nothing."""


class NotOnTape(NoAnswer):
    """The cassette has no answer to this request; the message says what differs from the nearest one it has."""


def canonical(request: Json, redact: Callable[[str], str]) -> Json:
    """A request as the cassette knows it: without secrets, with marks in place of what differs from run to run."""
    text = redact(msgspec.json.encode(request, order="deterministic").decode())
    for pattern, mark in VOLATILE:
        text = pattern.sub(mark, text)
    decoded: Json = msgspec.json.decode(text)
    return decoded


def ident_of(entry: Entry) -> str:
    """The id of the completion that an answer becomes."""
    return f"cmpl-{entry.key[:24]}-{entry.nth}"


def key_of(request: Json) -> str:
    """sha256, in hex, of a request in canonical form."""
    return hashlib.sha256(msgspec.json.encode(request, order="deterministic")).hexdigest()


# --- writing ------------------------------------------------------------------------------------------------------


def member(line: Struct) -> bytes:
    """One gzip member that holds a line and knows its own length."""
    text = msgspec.json.encode(line) + b"\n"
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(text) + packer.flush()
    size = len(START) + 4 + len(packed) + 8
    return START + struct.pack("<I", size) + packed + struct.pack("<II", zlib.crc32(text), len(text))


class Recorder:
    """Appends entries to a cassette that `create` or `reopen` has made ready."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND)

    def add(self, entry: Entry) -> None:
        """Durable against the death of this process when it returns. Raises OSError when the disk is full."""
        data = member(entry)
        written = os.write(self._fd, data)
        if written != len(data):
            raise OSError(f"only {written} of {len(data)} bytes of a cassette's entry could be written")

    def close(self) -> None:
        os.close(self._fd)


def create(path: Path, header: Header) -> None:
    """A new cassette. Raises ConfigError when the file exists or cannot be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(member(header))
    except FileExistsError as error:
        hint = "name another file, or continue that recording with --resume"
        raise ConfigError("there is a cassette already", where=str(path), hint=hint) from error
    except OSError as error:
        raise ConfigError(error.strerror or "it cannot be written", where=str(path)) from error


def reopen(path: Path, header: Header, sealed: Collection[str]) -> None:
    """Make a cassette ready to be continued: only what belongs to trials that are sealed stays, since all others are
    run, and recorded, from their beginning. Raises ConfigError when it was recorded from another model or endpoint."""
    tape = Tape(path)
    if tape.header != header:
        problem = f"it was recorded from {tape.header.model} at {tape.header.host}"
        raise ConfigError(problem, where=str(path), allowed=f"{header.model} at {header.host}")
    kept = path.with_name(path.name + ".part")
    with kept.open("wb") as file:
        file.write(member(header))
        file.writelines(member(entry) for entry in tape.entries() if entry.trial in sealed)
        file.flush()
        os.fsync(file.fileno())
    kept.replace(path)


# --- reading ------------------------------------------------------------------------------------------------------


class Tape:
    """A cassette to be read. Of several entries for one request of one trial the last counts: an earlier one is of a
    try that was cut off. damaged_bytes: what had to be skipped; sound_bytes: up to the end of the last good entry.

    Raises ConfigError when the file cannot be read, is no cassette, or is of another version.
    """

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # may be larger than memory
        except OSError as error:
            raise ConfigError(error.strerror or "it cannot be read", where=str(path)) from error
        except ValueError as error:  # nothing to map
            raise ConfigError("this is no cassette", where=str(path), hint="the file is empty") from error
        self.damaged_bytes = self.sound_bytes = 0
        lines = self._lines()
        try:
            found = msgspec.json.decode(next(lines)[2])
            self.header = msgspec.convert(found, Header)
        except (StopIteration, msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ConfigError("this is no cassette", where=str(path)) from error
        if self.header.cassette != FORMAT:
            hint = "it was made by another version of this program"
            raise ConfigError(
                f"the cassette is of format {self.header.cassette!r}", where=str(path), allowed=FORMAT, hint=hint
            )
        self._places: dict[tuple[str, str, int], tuple[int, int]] = {}
        for start, end, line in lines:
            try:
                at = msgspec.json.decode(line, type=_Place)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                problem = f"the line at byte {start} is no entry of a cassette"
                raise ConfigError(problem, where=str(path), hint=f"is it of format {FORMAT}?") from error
            self._places[at.trial, at.key, at.nth] = (start, end)

    def __len__(self) -> int:
        return len(self._places)

    def entries(self) -> Iterator[Entry]:
        """In the order of the recording."""
        for start, end in sorted(self._places.values()):
            yield self._entry(start, end)

    def find(self, trial: str, request: Json, nth: int) -> Entry:
        """The answer to a canonical request. Raises NotOnTape."""
        place = self._places.get((trial, key_of(request), nth))
        if place is None:
            raise NotOnTape(self._missing(trial, request, nth))
        return self._entry(*place)

    def place(self, entry: Entry) -> int:
        """Where in the recording an entry stands."""
        return self._places[entry.trial, entry.key, entry.nth][0]

    def order(self, trial: str) -> tuple[int, ...]:
        """The places of a trial's entries, in the order of the recording."""
        return tuple(sorted(place[0] for (of, _, _), place in self._places.items() if of == trial))

    def _entry(self, start: int, end: int) -> Entry:
        return msgspec.json.decode(gzip.decompress(self._data[start:end]), type=Entry)

    def _lines(self) -> Iterator[tuple[int, int, bytes]]:
        """Start, end and text of every good member."""
        at, size = 0, len(self._data)
        while at < size:
            end = self._end(at)
            try:
                text = gzip.decompress(self._data[at:end]) if end else b""
            except (OSError, EOFError, zlib.error):
                text = b""
            if text.endswith(b"\n"):
                self.sound_bytes = end
                yield at, end, text
                at = end
                continue
            following = self._data.find(START, at + 1)
            following = size if following < 0 else following
            self.damaged_bytes += following - at
            at = following

    def _end(self, at: int) -> int:
        """Where the member that begins here ends; 0 when none does."""
        head = self._data[at : at + len(START) + 4]
        if len(head) < len(START) + 4 or not head.startswith(START):
            return 0
        end = at + int.from_bytes(head[-4:], "little")
        return end if end <= len(self._data) else 0

    def _missing(self, trial: str, request: Json, nth: int) -> str:
        """What is to be said of a request that is not there."""
        key, held = key_of(request), Counter(place[0] for place in self._places)
        said = f"the cassette has no answer to this request (sha256 {key[:12]}, time {nth + 1})"
        times = sum((trial, key, n) in self._places for n in range(nth))
        if times:
            return f"{said}: the trial made it {times} times when it was recorded"
        of_trial = [e for e in self.entries() if e.trial == trial]
        if not of_trial:
            return f"{said}: it holds {len(held)} trials, and {trial} is none of them"
        here = site_of(request)
        nearest = max(of_trial, key=lambda e: (e.site == here, _alike(e.request, request)))
        differs = difference(nearest.request, request)
        told = f"where {differs}" if differs else f"time {nearest.nth + 1}"
        return f"{said}; nearest is one of {nearest.site} (sha256 {nearest.key[:12]}), {told}"


def site_of(request: Json) -> str:
    """The place of a request in its trial, for people."""
    told = request.get("metadata") or {}
    return str(told.get("ref") or f"{told.get('delegation')}/{told.get('phase')}")


def _alike(one: Json, other: Json) -> int:
    """How many messages two conversations have in common before they part."""
    pairs = list(zip(one.get("messages", ()), other.get("messages", ()), strict=False))
    return next((n for n, (a, b) in enumerate(pairs) if a != b), len(pairs))
