"""What a run of a check was a run of: digests of the files it could see, of its environment and of its contract.

Why three: two runs that agree in all of them and differ in their answer show that the check is no evidence; where one
differs, they show nothing. An agent never sees a receipt, so it cannot aim at one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from harness.core.types import CheckSpec, Json
from harness.world import files

DIGITS = 16


def receipt(spec: CheckSpec, workspace: Mapping[str, str], tools: Sequence[str] = ()) -> str:
    """`workspace|environment|contract`, each 16 hexadecimal digits.

    workspace: path to sha256 of what the check can see, without what subprocesses leave behind. tools: versions of what
    runs the check, where it is really run. The environment is what the lock files pin, the kind of runner, and tools.
    """
    pinned = {path: digest for path, digest in workspace.items() if path.endswith(".lock")}
    parts = (sorted(workspace.items()), [spec.kind, sorted(pinned.items()), list(tools)], spec)
    return "|".join(_short(part) for part in parts)


def _short(value: Json | CheckSpec) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:DIGITS]


def of_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Path to sha256 of files that are held in memory."""
    return {path: files.digest(text) for path, text in texts.items() if not files.is_junk(path)}


class FolderDigests:
    """Path to sha256 of the files of a folder; a file is read again only after its inode says that it changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, int, int], str]] = {}

    def of(self, root: Path) -> dict[str, str]:
        found: dict[str, str] = {}
        pending = [str(root)]
        start = len(pending[0]) + 1
        while pending:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if files.is_junk(entry.path[start:]):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif entry.is_file():
                        found[entry.path[start:]] = self._digest(entry)
        return found

    def _digest(self, entry: os.DirEntry[str]) -> str:
        stat = entry.stat()
        mark = stat.st_ino, stat.st_ctime_ns, stat.st_size
        known = self._known.get(entry.path)
        if known is None or known[0] != mark:
            known = self._known[entry.path] = mark, hashlib.sha256(Path(entry.path).read_bytes()).hexdigest()
        return known[1]
