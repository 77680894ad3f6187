"""A zip archive that is the same for the same content, and a reader that trusts no archive.

Why zip: every machine can open it, and the sizes of its members are known before any of them is unpacked.
"""

from __future__ import annotations

import os
import shutil
import stat
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from harness import segment
from harness.core.errors import ConfigError

EPOCH = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip archive can name
PACKED_ALREADY = (".seg", ".png")
LEVEL = 9
MEMBERS_MAX = 20_000
UNPACKED_MAX_BYTES = 8 << 30
FREE_BYTES, GROWTH_MAX = 64 << 20, 200
"""Beyond so many unpacked bytes, an archive that grows by more than this factor is taken for a trap. Our own texts grow
by about 20."""

ROOM = "nothing was left behind; make room, or name another folder for temporary files in TMPDIR"


def write(target: Path, contents: Mapping[str, Path | bytes]) -> None:
    """Make the archive `target` of these files, by their path within it; there is none, or all of it.

    Order, times, owners and modes are fixed. The bytes are those of the zlib at hand: content is compared by digest,
    archives only where the same zlib made both. Raises ConfigError when the disk refuses.
    """
    draft = target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        with segment.disk(target.parent, "no archive was written; make room and do it again"):
            with zipfile.ZipFile(draft, "w") as archive:
                for name in sorted(contents):
                    _add(archive, name, contents[name])
            draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _add(archive: zipfile.ZipFile, name: str, content: Path | bytes) -> None:
    info = zipfile.ZipInfo(name, EPOCH)
    info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16  # the same on every system
    info.compress_type = zipfile.ZIP_STORED if name.endswith(PACKED_ALREADY) else zipfile.ZIP_DEFLATED
    if isinstance(content, bytes):
        archive.writestr(info, content, compresslevel=LEVEL)
        return
    info.file_size = content.stat().st_size
    info._compresslevel = LEVEL  # type: ignore[attr-defined]  # `open` has no argument for it
    with content.open("rb") as source, archive.open(info, "w") as sink:
        shutil.copyfileobj(source, sink)


def unpack(source: Path, folder: Path) -> list[str]:
    """Unpack an archive into an empty folder; gives the members whose bytes are damaged, which are left out.

    Raises ConfigError for what is no archive or is cut off, for members that would land outside of the folder, and for
    an archive that grows beyond all reason.
    """
    try:
        with segment.disk(folder, ROOM), zipfile.ZipFile(source) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            _refuse(source, members)
            return [member.filename for member in members if not _extract(archive, member, folder)]
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError) as error:
        hint = "was it downloaded whole?"
        raise ConfigError(f"this is no bundle: {error}", where=str(source), hint=hint) from error


def _refuse(source: Path, members: list[zipfile.ZipInfo]) -> None:
    def refuse(problem: str) -> ConfigError:
        return ConfigError(f"the archive is refused: {problem}", where=str(source))

    names = [member.filename for member in members]
    if len(members) > MEMBERS_MAX:
        raise refuse(f"it has {len(members)} members, and at most {MEMBERS_MAX} are read")
    if len(set(names)) < len(names):
        raise refuse("it has two members of one name")
    folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
    for member in members:
        name = member.filename
        if not _within(name) or name in folders:
            raise refuse(f"{name!r} is no path within it")
        if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
            raise refuse(f"{name!r} is no plain file")
        if member.flag_bits & 1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise refuse(f"{name!r} is encrypted, or packed in a way that is not read")
    unpacked, packed = sum(m.file_size for m in members), sum(m.compress_size for m in members)
    held = source.stat().st_size
    if packed > held or unpacked > UNPACKED_MAX_BYTES or unpacked > max(FREE_BYTES, GROWTH_MAX * held):
        raise refuse(f"{held} bytes would become {unpacked}")


def _within(name: str) -> bool:
    parts = name.split("/")
    return (
        name.isprintable() and not any(part in ("", ".", "..") for part in parts) and not any(c in name for c in "\\:")
    )


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path) -> bool:
    """Whether the member is whole. zipfile reads no more than the size that was announced."""
    target = folder / member.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with archive.open(member) as source, target.open("xb") as sink:
            shutil.copyfileobj(source, sink)
    except (zipfile.BadZipFile, zlib.error, EOFError):
        target.unlink(missing_ok=True)
        return False
    if target.stat().st_size != member.file_size:
        target.unlink()
        return False
    return True
