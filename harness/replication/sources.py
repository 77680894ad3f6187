"""The files of the installed harness, with their digests: what analysed a run, and what ran it.

Why all of it and not the few modules that statistics need: together the sources are smaller than one trace segment, and
a reader who has to wonder whether a file matters cannot check anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness import seal
from harness.replication import layout
from harness.replication.opened import read_digests
from harness.segment import file_sha256

LOOSE = (seal.LOCK, "pyproject.toml", "Makefile", "README.md", "LICENSE", "CITATION.cff")
RUNNING = ("arms", "faults")
"""Digests of what only runs: a run is judged and reported without its arms and its faults."""

WORDS = ("changed", "missing here", "only here")


def files(root: Path = seal.ROOT) -> dict[str, Path]:
    """Every source file below `root`, by its path there: the packages and, in a checkout, what stands beside them."""
    schedules = sorted(p.relative_to(root).as_posix() for p in (root / "schedules").rglob("*") if p.is_file())
    beside = [name for name in schedules if "/." not in name]
    names = [*seal.paths(root), *beside, *(name for name in LOOSE if (root / name).is_file())]
    return {name: root / name for name in names}


def bound(digests: Mapping[str, str], *, running: bool) -> dict[str, str]:
    """Of sha256 by path, the files that a registration would bind. running: with those that only run."""
    kept = {}
    for path, sha256 in digests.items():
        if path.startswith(tuple(f"{package}/" for package in seal.PACKAGES)):
            name = seal.rule_of(path).bound_by
            if name and (running or name not in RUNNING):
                kept[path] = sha256
    return kept


def installed() -> dict[str, str]:
    """sha256 by path of the source files of the harness at hand."""
    return {name: file_sha256(seal.ROOT / name) for name in seal.paths()}


def bundled(root: Path) -> dict[str, str]:
    """sha256 by path of the source files in the unpacked bundle `root`, as its digests say."""
    prefix = f"{layout.SOURCE}/"
    held = read_digests(root)
    return {name.removeprefix(prefix): value for name, value in held.items() if name.startswith(prefix)}


def differing(
    first: Mapping[str, str], second: Mapping[str, str], *, running: bool = True, words: tuple[str, str, str] = WORDS
) -> dict[str, str]:
    """Which bound files are not the same, and how: changed, in the first only, in the second only, said by `words`."""
    one, other = bound(first, running=running), bound(second, running=running)
    found = {}
    for path in sorted({*one, *other}):
        if one.get(path) != other.get(path):
            found[path] = words[0] if path in one and path in other else words[1 if path in one else 2]
    return found
