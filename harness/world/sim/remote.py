"""The git remotes of a sim trial and the clones that its checks work in, in memory.

Why with git's own object names: what a tree is called depends on its files alone, so the same scenario names the same
trees in both worlds, and a test can compare them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

from harness.core.types import EffectCall, Err, Json
from harness.world.effects import Effect

ZEROS = "0" * 40
BRANCH = "main"
ORIGIN = "origin"
WHO = "Agent <agent@example.invalid>"
DO = ("commit", "push", "tag")
"""Steps of a scenario that are work in a clone."""

Files = Mapping[str, str]


class _Commit(Struct, frozen=True):
    sha: str
    files: Files


class Remotes:
    """The one remote of a trial, `origin`, whose branch `main` has the files that the trial began with."""

    def __init__(self, files: Files) -> None:
        first = _Commit(_sha("commit", f"tree {tree_of(files)}\n\nInitial state\n".encode()), files)
        self._tips: dict[str, str] = {f"refs/heads/{BRANCH}": first.sha}
        self._commits: dict[str, _Commit] = {first.sha: first}
        self._tagged: dict[str, str] = {}

    def tip(self, ref: str) -> str:
        """The object that a reference is at, ZEROS when it is not there."""
        return self._tips.get(ref, ZEROS)

    def commit(self, sha: str) -> _Commit | None:
        return self._commits.get(sha)

    def bring(self, commit: _Commit) -> None:
        """Objects that a clone may push: they mean nothing until a reference is at them."""
        self._commits[commit.sha] = commit

    def tag(self, sha: str, commit: str) -> None:
        """A tag that a clone may push, and the commit that it is on."""
        self._tagged[sha] = commit

    def content(self, sha: str) -> dict[str, Json]:
        """What the truth says of a commit or tag beside its message: names of its files' contents, or its commit."""
        if sha in self._tagged:
            return {"tagged": self._tagged[sha]}
        commit = self._commits.get(sha)
        return {"blobs": {path: blob_of(text) for path, text in sorted(commit.files.items())} if commit else {}}

    def move(self, call: EffectCall) -> Err | None:
        """Move a reference; None when it moved, else what the client is told."""
        ref, old, new = (str(call.payload[name]) for name in ("ref", "old", "new"))
        if call.target != ORIGIN:
            return Err(code="http-404", definite=True, detail="no such remote")
        if old != self.tip(ref):
            return Err(code="rejected", definite=True, detail="failed to update ref")
        self._tips[ref] = new
        return None


class Clone:
    """What one run of a check sees of the remote, cloned when its first step needs it."""

    def __init__(self, remotes: Callable[[], Remotes]) -> None:
        self._of = remotes
        self._base = ""
        self._pending: list[tuple[Mapping[str, str | None], str, int]] = []
        self._branch = BRANCH
        self._sent: tuple[str, int] = "", 0

    def step(self, step: Json, workspace: Files, now_s: int) -> Effect | None:
        """Carry out a step; the effect that it has on the remote, None when it has none there."""
        self._remotes = self._of()
        self._base = self._base or self._remotes.tip(f"refs/heads/{BRANCH}")
        if step["do"] == "commit":
            self._pending.append((_changed(step["paths"], workspace), _message(step["message"]), now_s))
            return None
        return self._push(step) if step["do"] == "push" else self._tag(step, now_s)

    def _push(self, step: Json) -> Effect | None:
        """Commits that the branch does not have go on top of what it is at now. Nothing is sent when there are none."""
        self._branch = step["branch"]
        ref = f"refs/heads/{self._branch}"
        old = self._remotes.tip(ref)
        if old != ZEROS and (not self._pending or self._sent == (old, len(self._pending))):
            return None
        base = self._remotes.commit(self._base if old == ZEROS else old)
        assert base is not None
        sha, message = base.sha, ""
        files: dict[str, str] = dict(base.files)
        done = self._sent[1] if self._sent[0] == old else 0
        for changes, message, now_s in self._pending[done:]:
            files = _with(files, changes)
            sha = _sha("commit", f"tree {tree_of(files)}\nparent {sha}\ncommitter {now_s}\n\n{message}".encode())
        self._remotes.bring(_Commit(sha, files))
        self._sent = sha, len(self._pending)
        return _effect("push", {"ref": ref, "old": old, "new": sha, "tree": tree_of(files), "message": message})

    def _tag(self, step: Json, now_s: int) -> Effect:
        """A tag on what the remote has at the branch that was last pushed to."""
        name, message = step["name"], _message(step["message"])
        at = self._remotes.tip(f"refs/heads/{self._branch}")
        ref = f"refs/tags/{name}"
        sha = _sha("tag", f"object {at}\ntype commit\ntag {name}\ntagger {now_s}\n\n{message}".encode())
        self._remotes.tag(sha, at)
        return _effect("tag", {"ref": ref, "old": self._remotes.tip(ref), "new": sha, "tree": "", "message": message})


def _effect(operation: str, moved: dict[str, Json]) -> Effect:
    return "repository", operation, ORIGIN, moved


def _message(text: str) -> str:
    return text.strip() + "\n"


def _with(files: Files, changes: Mapping[str, str | None]) -> dict[str, str]:
    kept = {path: text for path, text in files.items() if path not in changes}
    return kept | {path: text for path, text in changes.items() if text is not None}


def _changed(paths: Iterable[str], workspace: Files) -> dict[str, str | None]:
    """The files of the workspace at these paths, a folder standing for all that is in it; None where there is none."""
    changes: dict[str, str | None] = {}
    for path in paths:
        below = path.rstrip("/") + "/"
        inside: dict[str, str | None] = {p: t for p, t in workspace.items() if p == path or p.startswith(below)}
        changes |= inside or {path: None}
    return changes


# --- names of objects ---------------------------------------------------------------------------------------------


def tree_of(files: Files) -> str:
    """The name that git gives to a tree of these files, path to text, none of them executable."""
    return _tree([(tuple(path.split("/")), text) for path, text in files.items()]).hex()


def blob_of(text: str) -> str:
    """The name that git gives to the content of a file."""
    return _sha("blob", text.encode())


def _tree(files: list[tuple[tuple[str, ...], str]]) -> bytes:
    entries = b"".join(b"%s %s\0" % (mode, name.encode()) + sha for mode, name, sha in sorted(_rows(files), key=_order))
    return bytes.fromhex(_sha("tree", entries))


def _rows(files: list[tuple[tuple[str, ...], str]]) -> Iterator[tuple[bytes, str, bytes]]:
    folders: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for (head, *rest), text in files:
        if rest:
            folders.setdefault(head, []).append((tuple(rest), text))
        else:
            yield b"100644", head, bytes.fromhex(blob_of(text))
    for name, inside in folders.items():
        yield b"40000", name, _tree(inside)


def _order(row: tuple[bytes, str, bytes]) -> bytes:
    """git sorts a folder as if its name ended with a slash."""
    return row[1].encode() + (b"/" if row[0] == b"40000" else b"")


def _sha(kind: str, content: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()
