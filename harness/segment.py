"""Below the trace store: checked blocks, durable appends, and a folder with its lock and manifest.

Apart from `harness.trace_store` so that what must hold after a power cut can be read, and tested, in one place.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from harness.core.errors import ConfigError
from harness.core.types import Json

T = TypeVar("T")

MAGIC = b"AMSEG/1\n"
HEADER = struct.Struct("<II")
CODEC_ZLIB = 1


def pack(trial_id: str, data: bytes) -> bytes:
    """A block: u32 length and u32 CRC-32 of its body; the body is u8 codec, u8 n, n bytes of id, compressed data."""
    name = trial_id.encode()
    body = bytes([CODEC_ZLIB, len(name)]) + name + zlib.compress(data, 9)
    return HEADER.pack(len(body), zlib.crc32(body)) + body


def unpack(raw: bytes) -> tuple[str, bytes] | None:
    """(trial id, data) of a block, or None when it is torn or damaged."""
    if len(raw) < HEADER.size:
        return None
    length, crc = HEADER.unpack_from(raw)
    body = raw[HEADER.size : HEADER.size + length]
    if len(body) < length or length < 2 or zlib.crc32(body) != crc or body[0] != CODEC_ZLIB:
        return None
    start = 2 + body[1]
    return body[2:start].decode(), zlib.decompress(body[start:])


def blocks(path: Path, offset: int = len(MAGIC)) -> Iterator[tuple[int, str, bytes]]:
    """(offset, trial id, data) of the blocks of a segment, in order, up to the first that is not whole."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return
        while True:
            file.seek(offset)
            header = file.read(HEADER.size)
            if len(header) < HEADER.size:
                return
            raw = header + file.read(HEADER.unpack(header)[0])
            block = unpack(raw)
            if block is None:
                return
            yield offset, *block
            offset += len(raw)


def append(path: Path, at: int, data: bytes) -> None:
    """Make `data` the durable end of the file, from byte `at` on; whatever stood there before is cut off.

    Raises OSError with the file as it was up to `at`.
    """
    new = not path.exists()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(file, at)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(file, data[written:], at + written)
            os.fsync(file)
        except OSError:
            os.ftruncate(file, at)
            raise
    finally:
        os.close(file)
    if new:
        sync_folder(path.parent)


def cut(path: Path, size: int) -> None:
    """Durably shorten a file that is longer than `size` bytes."""
    if path.stat().st_size > size:
        append(path, size, b"")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(parts: Sequence[bytes]) -> str:
    """BLAKE2b (128 bits, hex) of several byte strings, each with its length."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.hexdigest()


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def lines(path: Path, kind: type[T], hint: str) -> Iterator[T]:
    """The decoded lines of a file of JSON lines, one at a time; none where there is no file. Raises ConfigError, with
    `hint` and the number of the line, for one that cannot be read."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield msgspec.json.decode(line, type=kind)
            except msgspec.DecodeError as error:
                raise ConfigError(f"the line is damaged: {error}", where=f"{path}:{number}", hint=hint) from error


SAFE = "every trial that was sealed is safe; make room and continue with --resume"


@contextmanager
def disk(folder: Path, full: str = SAFE) -> Iterator[None]:
    """Turns what the file system refuses into a ConfigError that says what to do; `full`: when the disk is full."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        hint = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            reason = f"the disk is full ({reason})"
            hint = full
        raise ConfigError(reason, where=str(error.filename or folder), hint=hint) from error


def lock(folder: Path) -> int:
    """The exclusive lock of a folder, as a file descriptor; the kernel gives it back when the process dies.

    Raises ConfigError, with the number of the process that holds it, when it is taken.
    """
    with disk(folder):
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        problem = f"the folder is in use by process {holder}"
        raise ConfigError(problem, where=str(folder), hint="wait for it to end, or name another folder") from error
    except BaseException:
        os.close(handle)
        raise
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def refuse_foreign(folder: Path, streams: Sequence[str]) -> None:
    """A run gets a folder of its own: results must not be strewn among other people's files."""
    ours = {"manifest.json", "manifest.json.new", "trials.jsonl", "lock", "failure.txt", "lost+found", *streams}
    others = sorted(path.name for path in folder.iterdir() if path.name not in ours and path.name[0] != ".")
    if others and not (folder / "manifest.json").exists():
        problem = f"the folder holds other things ({', '.join(others[:3])}{', ...' if len(others) > 3 else ''})"
        raise ConfigError(problem, where=str(folder), allowed="an empty folder, or one that does not exist yet")


Pairs = Annotated[int, Meta(ge=0)]


class _Stopping(Struct, frozen=True):
    until: str = "all_pairs"
    stopped_at: Pairs | None = None


class _Schedule(Struct, frozen=True):
    resolved: dict[str, Json] = {}


class _Preregistration(Struct, frozen=True):
    document: dict[str, Json] | None = None
    status: dict[str, Json] = {}


class _Manifest(Struct):
    """The parts of a manifest that are read again, and of what kind they are."""

    schedule: _Schedule = _Schedule()
    preregistration: _Preregistration = _Preregistration()
    files: dict[str, str] | None = None
    starts: Annotated[list[dict[str, Json]], Meta(min_length=1)] = []  # the default stands for "left out"
    ended: str | None = None
    reruns: list[Json] = []
    stopping: _Stopping = _Stopping()
    pairs: Pairs | None = None


def read_manifest(folder: Path) -> dict[str, Json]:
    try:
        raw = (folder / "manifest.json").read_bytes()
        msgspec.json.decode(raw, type=_Manifest)
        return msgspec.json.decode(raw, type=dict[str, Json])
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"the manifest cannot be read: {error}", where=str(folder / "manifest.json")) from error
