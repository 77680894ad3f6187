"""A run in whatever form it comes: its folder, a bundle, or the folder that a bundle was unpacked into.

Nothing is ever written into what was given: a bundle is unpacked into a temporary folder of the reader's own.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from harness import segment
from harness.core.errors import ConfigError
from harness.replication import archive
from harness.replication.layout import DIGESTS, DIGESTS_SCHEMA, RUN


class Opened(Struct, frozen=True, kw_only=True):
    """folder: the run's. root: the unpacked bundle, None for the folder of a run. damaged: members of the archive that
    could not be unpacked whole."""

    name: str
    folder: Path
    root: Path | None = None
    damaged: tuple[str, ...] = ()


class NoRoom(ConfigError):
    """The disk is full: that says nothing about the run."""


def no_room(error: BaseException | None) -> bool:
    """Whether a full disk is at the bottom of an error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        error = error.__cause__
    return False


class _Digests(Struct, frozen=True):
    schema: str
    files: dict[str, str]


@contextmanager
def opened(source: Path) -> Iterator[Opened]:
    """Open a run or a bundle for reading. Raises ConfigError for what is neither."""
    if source.is_dir():
        yield _folder(source)
        return
    if not source.is_file():
        raise ConfigError("there is neither a run nor a bundle here", where=str(source))
    with temporary() as folder:
        damaged = archive.unpack(source, folder)
        if not (folder / RUN).is_dir():
            raise ConfigError("the archive holds no run", where=str(source), allowed="what `agentmesh bundle` wrote")
        yield Opened(name=str(source), folder=folder / RUN, root=folder, damaged=tuple(damaged))


def _folder(source: Path) -> Opened:
    if (source / DIGESTS).is_file() and (source / RUN).is_dir():
        return Opened(name=str(source), folder=source / RUN, root=source)
    if (source / "manifest.json").is_file():
        return Opened(name=str(source), folder=source)
    raise ConfigError("there is no run in this folder", where=str(source), allowed="a folder with manifest.json")


@contextmanager
def temporary() -> Iterator[Path]:
    """A folder that is gone afterwards. Raises ConfigError when the disk refuses it."""
    with segment.disk(Path(tempfile.gettempdir()), archive.ROOM):
        held = tempfile.TemporaryDirectory(prefix="agentmesh-", ignore_cleanup_errors=True)
    with held as name:
        yield Path(name)


def read_digests(root: Path) -> dict[str, str]:
    """sha256 by path, as the bundle says. Raises ConfigError when it says nothing that can be read."""
    path = root / DIGESTS
    if not path.is_file():
        raise ConfigError("there are no digests", where=DIGESTS)
    try:
        held = msgspec.json.decode(path.read_bytes(), type=_Digests)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the digests cannot be read: {error}", where=DIGESTS) from error
    if held.schema != DIGESTS_SCHEMA:
        raise ConfigError(f"schema is {held.schema!r}", where=DIGESTS, allowed=DIGESTS_SCHEMA)
    return held.files
