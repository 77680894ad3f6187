"""Which seeds were used before: those on a list, and those of runs that lie here, whole or as they were released.

Why: whoever has seen what a seed gives may have chosen it for that, so that one more run of it suggests and does not
confirm.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from harness.core import strict_yaml
from harness.schedule import Seed

USED_SEEDS = "used-seeds.yaml"
BUNDLED_MANIFEST = "run/manifest.json"
"""Where the manifest of a run lies in a bundle."""

MANIFEST_MAX_BYTES = 16 << 20
NOT_A_BUNDLE = (OSError, zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError, RuntimeError)
"""What reading a member of somebody else's archive may raise: damaged, without it, packed otherwise, encrypted."""


# --- the list beside a registration -------------------------------------------------------------------------------


class UsedSeed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    seed: Seed
    where: str


class UsedSeeds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `used-seeds.yaml`."""

    schema: Literal["agentmesh-used-seeds/1"]
    seeds: tuple[UsedSeed, ...]


def used_seeds(path: Path) -> dict[int, str]:
    """Where which seed was used before, from the list beside the registration in `path`; empty without a list. Raises
    ConfigError for one that cannot be read, or lists a seed twice."""
    listed = path.with_name(USED_SEEDS)
    if not listed.is_file():
        return {}
    document = strict_yaml.read(listed)
    found: dict[int, str] = {}
    for i, entry in enumerate(strict_yaml.convert(document, UsedSeeds).seeds):
        if entry.seed in found:
            raise document.refuse(("seeds", i), f"seed {entry.seed} is listed twice", hint="join the two entries")
        found[entry.seed] = entry.where
    return found


# --- runs that lie here -------------------------------------------------------------------------------------------


class SeedRun(Struct, frozen=True):
    """A run of a seed. where: its folder, or its bundle. released: what lies there is what was handed out of it, a
    manifest without trials beside it or a bundle."""

    where: str
    released: bool = False

    def sentence(self) -> str:
        if self.released:
            return f"a run of its seed is released already, in {self.where}"
        return f"its seed was run before, in {self.where}"


def runs_with_seed(
    seed: int, results: Iterable[Path], apart_from: Mapping[str, Any] | None = None
) -> tuple[SeedRun, ...]:
    """Runs of this seed under `results`, of which whoever seals or starts now could have seen a trial or what came out:
    folders with trials, released manifests, bundles.

    A run of which several copies lie there is named once, by the fullest of them. apart_from: the manifest of a run
    that is not looked for, wherever it was released.
    """
    found: dict[str, SeedRun] = {}
    for run, held in _seen([root for root in results if root.is_dir()]):
        if held.get("seed") == seed:
            found.setdefault(identity(held) or run.where, run)
    if apart_from is not None:
        found.pop(identity(apart_from), None)
    return tuple(found.values())


def identity(manifest: Mapping[str, Any]) -> str:
    """What the manifest of a run has in common with every copy of it, whenever it was taken, and with that of no other
    run: what was started, when, and by what. Empty for one that does not say so."""
    try:
        begun = (manifest["schedule"]["sha256"], manifest["started"], manifest["starts"][0])
    except (LookupError, TypeError):
        return ""
    return hashlib.sha256(msgspec.json.encode(begun, order="deterministic")).hexdigest()


def _seen(roots: Iterable[Path]) -> Iterator[tuple[SeedRun, Mapping[str, Any]]]:
    """Runs with their manifests, the fullest copies first."""
    manifests = [path for root in roots for path in sorted(root.rglob("manifest.json"))]
    for released in (False, True):
        for path in manifests:
            trials = path.with_name("trials.jsonl")
            if trials.is_file() == released or not (released or trials.stat().st_size):
                continue  # the other kind; or a run that was begun and of which nobody has seen a trial
            yield SeedRun(path.parent.as_posix(), released), _manifest(path)
    for path in (path for root in roots for path in sorted(root.rglob("*.zip"))):
        yield SeedRun(path.as_posix(), released=True), _bundled(path)


def _manifest(path: Path) -> Mapping[str, Any]:
    try:
        return _document(path.read_bytes())
    except OSError:
        return {}


def _bundled(path: Path) -> Mapping[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            fits = archive.getinfo(BUNDLED_MANIFEST).file_size <= MANIFEST_MAX_BYTES
            return _document(archive.read(BUNDLED_MANIFEST)) if fits else {}
    except NOT_A_BUNDLE:
        return {}


def _document(content: bytes) -> Mapping[str, Any]:
    """The manifest in these bytes; nothing for somebody else's file of that name."""
    try:
        held = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return {}
    return held if isinstance(held, Mapping) else {}
