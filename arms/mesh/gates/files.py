"""Gates on files: where an agent may write, and whose a changed file is.

Both exist because a workspace is shared: with other components, and with the subprocesses that the agent starts.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from pathlib import PurePosixPath

from arms.mesh.gates.base import ALLOW, Gate, Ruling, reject
from arms.mesh.gates.view import View
from harness.core.types import Commit, ToolCall

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""sha256 of nothing: what a runner's marker file holds."""

WRITE_SET = Gate(name="write_set", about="An agent writes only where its declaration says.", module=__name__)
STRAY_ARTIFACT = Gate(
    name="stray_artifact",
    about="A file that a subprocess left is not the agent's, and is left out of the commit where nobody declared it.",
    module=__name__,
    crossings=("commit",),
)


def within(path: str, globs: Iterable[str]) -> bool:
    """Whether a path lies in one of the globs; `**` reaches into folders."""
    return any(fnmatch.fnmatchcase(path, glob.replace("**", "*")) for glob in globs)


def write_set(call: ToolCall, view: View) -> Ruling:
    """A write outside the declared set is refused. One inside it, but outside the narrower scope that a diagnosis gave
    (`terms.clamp`, globs), is refused as long as the scope does not yield."""
    path = call.args.get("path")
    if call.tool not in ("write", "edit") or not isinstance(path, str):
        return ALLOW
    writable = view.contract.writable
    place = PurePosixPath(path)
    if place.is_absolute() or ".." in place.parts or not within(str(place), writable):
        may = f"write to {', '.join(writable)}" if writable else "this delegation writes nothing"
        return reject(f"{path} lies outside the declared writable set", may, path=path, writable=list(writable))
    clamp = view.contract.terms.get("clamp") or ()
    if clamp and not within(str(place), clamp) and not yields(path, view):
        said = f"{path} lies outside {', '.join(clamp)}, where the diagnosis looks for the defect"
        return reject(said, "ask again if the defect is there all the same", subject=path, path=path)
    return ALLOW


def yields(path: str, view: View) -> bool:
    """Whether a scope that rests on a diagnosis lets this file through: at the second request. A diagnosis can be
    wrong, and whoever comes back after a refusal has more reason than the diagnosis had."""
    return view.times_refused("write_set", path) >= 1


def stray_artifact(call: Commit, view: View) -> Ruling:
    """Of the changes outside the writable set, and of empty files, only those count that the agent made."""
    foreign, dropped = [], []
    for path, digest in call.changes.items():
        declared = within(path, view.contract.writable)
        if by_agent(path, view):
            if not declared:
                foreign.append(path)
        elif not declared or (digest == EMPTY and view.whole):
            dropped.append(path)
    if foreign:
        may = ", ".join(view.contract.writable) or "no file at all"
        return reject(f"the agent wrote {', '.join(foreign)}, which nobody declared", f"declared is {may}")
    return Ruling(kind="allow", dropped=tuple(dropped)) if dropped else ALLOW


def by_agent(path: str, view: View) -> bool:
    """Whether a changed file is the agent's own work: one of its tool calls wrote it."""
    return path in view.wrote
