"""Digests of what a decision depends on: which source files belong to what, and what they are now.

A registration that names only numbers leaves the code free that turns trials into them. The table below is the one
place that says which file is bound by which digest, and which is not bound and why.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement

from harness.core.errors import ConfigError
from harness.schedule import ArmPairs, Schedule, resolved, trials
from harness.schedule_file import FOREIGN

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("harness", "arms", "faults", "workloads")
SUFFIXES = (".py", ".yaml", ".j2")
LOCK = "requirements.lock"
UNBOUND = ""


class Rule(Struct, frozen=True):
    """Files (a pattern in which * also matches /) and the digest that binds them. because: why none does."""

    files: str
    bound_by: str
    because: str = ""


RULES = (
    Rule("harness/cli.py", UNBOUND, "wiring of options; what they change in a schedule is judged as an override"),
    Rule("harness/commands/*", UNBOUND, "wiring of commands that come before or after a run"),
    Rule("harness/docs.py", UNBOUND, "prints tables of the README; no run loads it"),
    Rule("harness/verify.py", UNBOUND, "compares a sealed run with its digests; no run and no analysis loads it"),
    Rule("harness/query/*", UNBOUND, "answers questions about a sealed run; no run and no analysis loads it"),
    Rule("harness/telemetry/*", UNBOUND, "exports a sealed run to other tools; no run and no analysis loads it"),
    Rule("harness/replication/equivalence.py", "analysis_code"),
    Rule("harness/replication/rule.py", "analysis_code"),
    Rule("harness/replication/*", UNBOUND, "packs sealed runs and compares them; no run and no analysis loads it"),
    Rule("harness/incidents/*", UNBOUND, "plays known failures one by one; no run of a schedule loads it"),
    Rule("harness/stats/*", "analysis_code"),
    Rule("harness/report/*", "analysis_code"),
    Rule("harness/metrics/*", "analysis_code"),
    Rule("harness/specs/*", "analysis_code"),
    Rule("harness/score.py", "analysis_code"),
    Rule("harness/analysis.py", "analysis_code"),
    Rule("harness/judge.py", "analysis_code"),
    Rule("harness/watching.py", "analysis_code"),
    Rule("harness/timeline.py", "analysis_code"),
    Rule("harness/replay.py", "analysis_code"),
    Rule("harness/effects.py", "analysis_code"),
    Rule("harness/accounting.py", "analysis_code"),
    Rule("harness/turns.py", "analysis_code"),
    Rule("harness/recognition.py", "analysis_code"),
    Rule("harness/core/records.py", "analysis_code"),
    Rule("workloads/oracles.py", "analysis_code"),
    Rule("workloads/*/oracle.py", "analysis_code"),
    Rule("harness/schedule.py", "schedule_generator"),
    Rule("harness/schedule_file.py", "schedule_generator"),
    Rule("harness/core/rng.py", "schedule_generator"),
    Rule("harness/*", "harness_code"),
    Rule("arms/*", "arms"),
    Rule("faults/*", "faults"),
    Rule("workloads/*", "workloads"),
)
"""The first rule that fits a file counts, so that whatever is added is bound unless a rule says why not."""

CODE = tuple(dict.fromkeys(rule.bound_by for rule in RULES if rule.bound_by))
Files = Mapping[str, Mapping[str, str]]
"""sha256 of every bound file, by digest and by path."""


class Now(Struct, frozen=True, kw_only=True):
    """What is there now. digests: by name; what cannot be computed is left out, and `absent` says why.
    other_packages: sentences on installed packages that are not the locked ones, and on code from elsewhere."""

    digests: dict[str, str]
    files: dict[str, dict[str, str]]
    absent: dict[str, str]
    other_packages: tuple[str, ...] = ()


def look(
    *,
    registration: str,
    near: Path,
    schedule: Schedule | None = None,
    control: str = "",
    pairs_max: int = 0,
    root: Path = ROOT,
) -> Now:
    """What is there now of all that a seal holds.

    registration: the digest of its content. near: its file; the lock file is looked up from there upwards. schedule:
    as it is registered, without what a command line changes; None leaves out what depends on it. root: the folder that
    holds the four packages. Raises ConfigError when a source file cannot be read.
    """
    files = sources(root)
    found = {"registration": registration, **{name: combined(held) for name, held in files.items()}}
    absent: dict[str, str] = {}
    if schedule is None:
        absent |= dict.fromkeys(("schedule", "pair_seeds"), "no schedule was named")
    else:
        found |= {"schedule": resolved(schedule)[1], "pair_seeds": pair_seeds(schedule, control, pairs_max)}
    lock = lock_file(near)
    if lock is None:
        absent["lock_file"] = f"there is no {LOCK} above the registration"
        return Now(digests=found, files=files, absent=absent)
    found["lock_file"] = hashlib.sha256(lock.read_bytes()).hexdigest()
    others = (*not_as_locked(lock.read_text("utf-8")), *(from_elsewhere() if root == ROOT else ()))
    return Now(digests=found, files=files, absent=absent, other_packages=others)


# --- source files -------------------------------------------------------------------------------------------------


def sources(root: Path = ROOT) -> dict[str, dict[str, str]]:
    """sha256 of the bytes of every bound source file, by digest and by path relative to `root`, sorted."""
    found: dict[str, dict[str, str]] = {name: {} for name in CODE}
    for path in paths(root):
        if bound_by := rule_of(path).bound_by:
            try:
                found[bound_by][path] = hashlib.sha256((root / path).read_bytes()).hexdigest()
            except OSError as error:
                raise ConfigError(f"cannot read a source file: {error.strerror}", where=path) from error
    return found


def paths(root: Path = ROOT) -> list[str]:
    """Source files of the four packages, sorted: no caches, no hidden files, nothing that a build or an editor adds."""
    found = (
        path.relative_to(root)
        for package in PACKAGES
        for path in (root / package).rglob("*")
        if path.suffix in SUFFIXES and path.is_file()
    )
    return sorted(p.as_posix() for p in found if not any(part.startswith((".", "__pycache__")) for part in p.parts))


def rule_of(path: str) -> Rule:
    """The rule that a source file falls under. Raises ConfigError for a path outside the four packages."""
    for rule in RULES:
        if fnmatchcase(path, rule.files):
            return rule
    raise ConfigError("no rule says which digest binds this file", where=path)


def combined(files: Mapping[str, str]) -> str:
    """sha256 over the sorted pairs of path and sha256; neither the order of `files` nor where they lie counts."""
    text = "".join(f"{PurePosixPath(path)}\0{sha256}\n" for path, sha256 in sorted(files.items()))
    return hashlib.sha256(text.encode()).hexdigest()


# --- schedule -----------------------------------------------------------------------------------------------------


def pair_seeds(schedule: Schedule, control: str, pairs_max: int) -> str:
    """sha256 of index, seed and hash of the first `pairs_max` pairs, in registered order.

    One arm stands for all, since a pair is the same whoever takes part; twins have the seeds of their pairs.
    """
    whole = replace(schedule, pairs=pairs_max, arms=(ArmPairs(name=control),), no_fault_twins=0)
    text = "".join(f"{spec.index} {spec.seed} {spec.pair}\n" for spec in trials(whole))
    return hashlib.sha256(text.encode()).hexdigest()


def foreign_code(schedule: Schedule) -> tuple[str, ...]:
    """`module:name` references of a schedule: code of others, which no digest binds."""
    placed = (fault.fault for several in schedule.exact for fault in several)
    names = {*(arm.name for arm in schedule.arms), *schedule.mix, *placed, *schedule.workloads}
    return tuple(sorted(name for name in names if FOREIGN.fullmatch(name)))


# --- packages -----------------------------------------------------------------------------------------------------


def lock_file(near: Path) -> Path | None:
    """The lock file in the folder of `near` or the nearest one above it."""
    return next((folder / LOCK for folder in near.resolve().parents if (folder / LOCK).is_file()), None)


def not_as_locked(lock: str) -> tuple[str, ...]:
    """A sentence for each installed package whose version is not the one in the text of a lock file. A package that is
    not installed cannot have changed a number."""
    said = []
    for name, wanted in _locked(lock).items():
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if installed != wanted:
            said.append(f"{name} {installed} is installed, locked is {wanted}")
    return tuple(said)


def from_elsewhere() -> tuple[str, ...]:
    """A sentence for each way by which this process, and those that it starts, run code that no digest binds: one of
    the four packages found in another folder, folders on PYTHONPATH, a hook that runs before the first line."""
    said = []
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is None or spec.origin is None or Path(spec.origin).resolve().parent != ROOT / package:
            said.append(f"{package} is loaded from another folder than the one whose files were compared")
    if any(Path(entry).resolve() != ROOT for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry):
        said.append("PYTHONPATH names folders whose code no digest binds")
    for hook in ("sitecustomize", "usercustomize"):
        origin = getattr(sys.modules.get(hook), "__file__", None)
        if origin is not None and not Path(origin).is_relative_to(sys.base_prefix):  # some systems bring one of theirs
            said.append(f"{hook} is loaded, which no digest binds")
    return tuple(said)


def _locked(lock: str) -> dict[str, str]:
    found = {}
    for line in re.sub(r"\\\n", " ", lock).splitlines():
        text = re.split(r"\s--hash|\s#|^#", line, maxsplit=1)[0].strip()
        if not text or text.startswith("-"):
            continue
        try:
            entry = Requirement(text)
        except InvalidRequirement as error:
            raise ConfigError(f"cannot read {text!r}", where=LOCK, allowed="name==version") from error
        if entry.marker is None or entry.marker.evaluate():
            found[entry.name] = str(entry.specifier).removeprefix("==")
    return found
