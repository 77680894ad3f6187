"""Which of a package's own tests each mutant, and each pair of mutants, makes fail: the kill matrix.

Why computed and kept: only a mutant that a test sees is a defect that a delegation can be asked to mend, and the sim
world must answer as the real suite does. It is computed once for a package, Python and pytest, and kept beside the
archive.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import combinations
from pathlib import Path

import msgspec
from msgspec import Struct

from harness.core import rng
from harness.core.errors import ConfigError
from workloads.repository_mutation import operators
from workloads.repository_mutation.operators import Mutant, applied, mutants
from workloads.repository_mutation.packages import LOCK, Package, folder, tree, unprepared, within, write

SCHEMA = 1
POOL, POOL_PER_FILE = 8, 4
TEST_POOL = 3
TRIES, TEST_TRIES = 36, 8
TESTS_MAX = 8
"""A mutant that makes more tests fail is left out: what an agent is told would be mostly their names."""
SUITE_LIMIT_S = 3
"""Processor time; the suites as they come take less than one second."""
IN_TESTS = ("comparison", "boundary")
"""Operators that make a test itself wrong."""


class Matrix(Struct, frozen=True, kw_only=True):
    """The kill matrix of one package. failing: ids of the tests that fail, by the ids of the planted mutants, joined by
    `+` in their order in `mutants`. after: sha256 of a mutant's file with it, by its id."""

    package: str
    mutants: tuple[Mutant, ...]
    failing: dict[str, tuple[str, ...]]
    after: dict[str, str]

    def fails(self, planted: Sequence[Mutant]) -> tuple[str, ...]:
        """Ids of the tests that fail with these mutants in place. Raises KeyError for a set that was not run."""
        return self.failing[_key([m for m in self.mutants if m in planted])] if planted else ()

    def pairs(self) -> tuple[tuple[Mutant, Mutant], ...]:
        """The pairs that were run, each in two files."""
        return tuple((a, b) for a, b in combinations(self.mutants, 2) if _key((a, b)) in self.failing)


def place(package: Package) -> Path:
    """The file of a package's matrix; another Python, pytest or set of operators has another one."""
    parts = (package.sha256, platform.python_version(), version("pytest"), operators.VERSION, SCHEMA, package.target)
    digest = hashlib.sha256(json.dumps([*parts, package.sources, package.tests, package.also]).encode()).hexdigest()
    return folder(package) / f"matrix-{digest[:16]}.json"


_READ: dict[Path, Matrix] = {}


def load(package: Package) -> Matrix:
    """The matrix out of the cache. Raises ConfigError when it is not there, cannot be read or is not the pinned one:
    a seed would draw other defects than elsewhere."""
    where = place(package)
    if where not in _READ:
        try:
            found = msgspec.json.decode(where.read_bytes(), type=Matrix)
        except (OSError, msgspec.DecodeError):
            raise unprepared(package, "its kill matrix is not in the cache") from None
        _check_pin(package, found)
        _READ[where] = found
    return _READ[where]


def digest(found: Matrix) -> str:
    """What the lock file pins of a matrix: the sha256 of all that it says, however it is laid out on disk."""
    return hashlib.sha256(msgspec.json.encode(found)).hexdigest()


def _check_pin(package: Package, found: Matrix) -> None:
    """Another Python may parse, or a suite behave, in another way; nothing is compared where nothing is pinned."""
    python = ".".join(platform.python_version_tuple()[:2])
    if package.matrix and package.matrix.get(python) != digest(found):
        raise ConfigError(
            f"{package.id}: its kill matrix on Python {python} is {digest(found)}",
            where=LOCK.name,
            allowed=", ".join(f"{known} on Python {python}" for python, known in package.matrix.items()),
            hint="take a Python that is pinned, with the locked pytest; if it is, delete the matrix and prepare anew",
        )


def prepare(package: Package) -> Matrix:
    """The matrix, computed where the cache has none that will do. Raises ConfigError when it will not do either."""
    try:
        return load(package)
    except ConfigError:
        write(place(package), msgspec.json.format(msgspec.json.encode(compute(package)), indent=1))
        return load(package)


def compute(package: Package) -> Matrix:
    """Run the package's own suite on the original, on mutants until enough of them are seen by it, and on pairs.

    Raises ConfigError when the suite fails on the original.
    """
    files = tree(package)
    if run(package, files, [{}]) != [[]]:
        raise ConfigError(f"the tests of {package.name} {package.version} fail as they come", where=package.target)
    seen = _killed(package, files, package.sources, (), TRIES)
    wrong = _killed(package, files, package.tests, IN_TESTS, TEST_TRIES)
    pool = _pool(seen)
    kept = (*pool, *list(wrong)[:TEST_POOL])
    failing = {m.id: tuple({**seen, **wrong}[m]) for m in kept}
    couples = [(a, b) for a, b in combinations(kept, 2) if a.path != b.path]
    found = run(package, files, [{m.path: applied(files[m.path], m) for m in couple} for couple in couples])
    failing |= {_key(couple): tuple(ids) for couple, ids in zip(couples, found, strict=True) if ids}
    after = {m.id: hashlib.sha256(applied(files[m.path], m).encode()).hexdigest() for m in kept}
    return Matrix(package=package.id, mutants=kept, failing=failing, after=after)


def _killed(
    package: Package, files: Mapping[str, str], globs: Sequence[str], only: tuple[str, ...], tries: int
) -> dict[Mutant, list[str]]:
    """The first so many mutants of a drawn order that some tests, and not too many, fail of."""
    seed = int(package.sha256[:12], 16)
    chosen: list[Mutant] = []
    by_file = [
        rng.shuffled(seed, mutants(path, files[path], only), "mutants", path)
        for path in sorted(files)
        if within(path, globs) and path.endswith(".py")
    ]
    while len(chosen) < tries and any(by_file):
        chosen += [found.pop() for found in by_file if found]
    chosen = chosen[:tries]
    results = run(package, files, [{m.path: applied(files[m.path], m)} for m in chosen], TESTS_MAX + 1)
    return {m: ids for m, ids in zip(chosen, results, strict=True) if ids and _tells(package, ids)}


def _tells(package: Package, failing: Sequence[str]) -> bool:
    """Whether single tests fail, and not the reading of their file."""
    return len(failing) <= TESTS_MAX and all("::" in test for test in failing)


def _pool(seen: Mapping[Mutant, Sequence[str]]) -> tuple[Mutant, ...]:
    """Mutants of as many files as there are; first those that share a test with one of another file."""
    shared = [
        m for couple in combinations(seen, 2) if _meet(seen, couple) for m in couple
    ]  # two components for one failure
    pool: list[Mutant] = []
    for one in dict.fromkeys([*shared, *seen]):
        if len(pool) < POOL and sum(m.path == one.path for m in pool) < POOL_PER_FILE:
            pool.append(one)
    return tuple(pool)


def _meet(seen: Mapping[Mutant, Sequence[str]], couple: tuple[Mutant, Mutant]) -> bool:
    a, b = couple
    return a.path != b.path and bool(set(seen[a]) & set(seen[b]))


def _key(planted: Sequence[Mutant]) -> str:
    return "+".join(m.id for m in planted)


def run(
    package: Package, files: Mapping[str, str], variants: Sequence[Mapping[str, str]], fails_max: int = 0
) -> list[list[str] | None]:
    """Ids of the tests that fail on each variant of the files, or where there is a limit the first so many of them;
    None where the suite did not come to an end.

    Raises ConfigError when the process that runs them breaks down.
    """
    asked = {"files": files, "target": package.target, "limit_s": SUITE_LIMIT_S, "fails_max": fails_max}
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    command = [sys.executable, "-P", "-s", str(Path(__file__).with_name("killer.py"))]
    done = subprocess.run(
        command, input=json.dumps(asked | {"variants": variants}), capture_output=True, text=True, check=False, env=env
    )
    if done.returncode:
        raise ConfigError(f"the tests of {package.name} cannot be run: {done.stderr.strip()[-300:]}")
    return msgspec.json.decode(done.stdout, type=list[list[str] | None])
