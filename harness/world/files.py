"""The file tools of an agent, over any place that holds files: the sim world keeps them in memory, the live on disk."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Protocol

from harness.core.types import Json, Ok, Outcome, ToolCall

JUNK = ("__pycache__/", ".pytest_cache/", ".site/", ".node/")
"""Paths that subprocesses leave and no agent writes."""


class Files(Protocol):
    def paths(self) -> list[str]: ...
    def get(self, path: str) -> str | None: ...
    def put(self, path: str, text: str) -> None: ...
    def remove(self, path: str) -> None: ...


class MemoryFiles:
    """Files as a dictionary."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

    def paths(self) -> list[str]:
        return sorted(self.files)

    def get(self, path: str) -> str | None:
        return self.files.get(path)

    def put(self, path: str, text: str) -> None:
        self.files[path] = text

    def remove(self, path: str) -> None:
        self.files.pop(path, None)


class DiskFiles:
    """Files of a folder, without what subprocesses leave behind."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def paths(self) -> list[str]:
        found = (p.relative_to(self.root).as_posix() for p in self.root.rglob("*") if p.is_file())
        return sorted(p for p in found if not is_junk(p))

    def get(self, path: str) -> str | None:
        try:
            return (self.root / path).read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None

    def put(self, path: str, text: str) -> None:
        """Write beside and rename: a reader sees the old file or the new one, also after SIGKILL."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(target.name + ".new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(target)

    def remove(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)


def is_junk(path: str) -> bool:
    return any(part in f"{path}/" for part in JUNK) or path.endswith((".pyc", ".new"))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def matches(path: str, globs: Iterable[str]) -> bool:
    """Whether a path is in one of the globs; `**` reaches into folders."""
    return any(fnmatch.fnmatchcase(path, glob.replace("**", "*")) for glob in globs)


def difference(work: Files, accepted: Files, writable: tuple[str, ...]) -> dict[str, str | None]:
    """Paths of the writable set whose text differs: sha256 of the new text, None where it is gone."""
    changes: dict[str, str | None] = {}
    for path in work.paths():
        text = work.get(path)
        if matches(path, writable) and text is not None and text != accepted.get(path):
            changes[path] = digest(text)
    for path in accepted.paths():
        if matches(path, writable) and work.get(path) is None:
            changes[path] = None
    return changes


def overlay(work: Files, draft: Files, writable: tuple[str, ...]) -> None:
    """Put the writable files of an earlier attempt in place of those of `work`; what others own stays as it is there,
    since it may have been accepted anew since."""
    drafted = draft.paths()
    for path in {*work.paths(), *drafted}:
        if not matches(path, writable):
            continue
        text = draft.get(path)
        if text is not None:
            work.put(path, text)
        elif path not in drafted:
            work.remove(path)


def use_file_tool(call: ToolCall, files: Files, writable: tuple[str, ...] | None) -> Outcome:
    """Carry out read, list, grep, write, edit or done. writable None: anything goes (containment is off)."""
    args = call.args
    path = str(args.get("path", ""))
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        return Ok(value={"error": "path-outside-workspace", "path": path})
    if call.tool == "done":
        return Ok(value={"done": args["status"]})
    if call.tool == "list":
        return Ok(value={"paths": [p for p in files.paths() if p.startswith(path)]})
    if call.tool == "grep":
        return Ok(value={"matches": _grep(files, str(args["pattern"]), path)})
    if call.tool == "read":
        text = files.get(path)
        return Ok(value={"error": "no-such-file"} if text is None else {"content": text, "digest": digest(text)})
    if writable is not None and not matches(path, writable):
        return Ok(value={"error": "outside-writable-set", "path": path})
    try:
        return Ok(value=_change(call, files, path))
    except (OSError, ValueError):  # a folder, a file in place of a folder, a name that no file can have
        return Ok(value={"error": "bad-path", "path": path})


def _grep(files: Files, pattern: str, path: str) -> list[Json]:
    try:
        wanted = re.compile(pattern)
    except re.error:
        return []
    found = []
    for name in files.paths():
        if name.startswith(path):
            lines = (files.get(name) or "").splitlines()
            found += [[name, number, line] for number, line in enumerate(lines, 1) if wanted.search(line)]
    return found[:50]


def _change(call: ToolCall, files: Files, path: str) -> Json:
    if call.tool == "write":
        files.put(path, str(call.args["content"]))
        return {"digest": digest(str(call.args["content"]))}
    text, old = files.get(path), str(call.args["old"])
    if text is None:
        return {"error": "no-such-file"}
    if text.count(old) != 1:
        return {"error": "old-text-not-unique" if old in text else "old-text-not-found"}
    text = text.replace(old, str(call.args["new"]))
    files.put(path, text)
    return {"digest": digest(text)}
