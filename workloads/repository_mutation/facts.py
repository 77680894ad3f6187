"""What is true of one instance: the package, its planted defects, who is to mend which, and the names of the effects.

All of it is drawn from the seed and the kill matrices, so `prepare` must have been run before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from harness.core import rng
from workloads.repository_mutation import matrix, packages
from workloads.repository_mutation.matrix import Matrix
from workloads.repository_mutation.operators import Mutant, applied
from workloads.repository_mutation.packages import Package

FAMILIES = ("clamp", "multi_file", "routing", "wrong_test")
"""clamp: the diagnosis names another file than the one with the defect. multi_file: one delegation has defects in two
files. routing: a test fails of two defects whose files belong to two delegations. wrong_test: one defect is in a test.
"""


PLAIN = re.compile(r"[\w/.:-]+")
"""Ids of tests that can be given to pytest as they are, without parameters."""


class Facts(Struct, frozen=True, kw_only=True):
    """Everything that varies between two instances. mend, review: the defects that each of the two delegations owns, at
    most one in a file. diagnosed: the file that the brief of the first names. proof: what the first has to make green:
    the whole suite, or one test, where the second has to mend the rest. hook_in: whose file triggers the hook."""

    package: str
    version: str
    family: str
    mend: tuple[Mutant, ...]
    review: tuple[Mutant, ...]
    diagnosed: str
    proof: str
    hook_in: str
    number: int

    @property
    def planted(self) -> tuple[Mutant, ...]:
        return (*self.mend, *self.review)

    @property
    def locked(self) -> Package:
        return packages.by_name(self.package)

    @property
    def tag(self) -> str:
        return f"v{self.version}-mended.{self.number}"

    def ref(self, letter: str) -> str:
        """The business key of this letter, e.g. `D-1234`."""
        return f"{letter}-{self.number}"

    def branch(self, component: str) -> str:
        return f"{component}/{self.number}"


def facts(seed: int) -> Facts:
    """The facts of the instance with this seed: pure in it and in the packages. Raises ConfigError when the cache lacks
    one of them."""
    return _drawn(seed, packages.root())


@lru_cache(maxsize=1024)
def _drawn(seed: int, _cache: Path) -> Facts:
    """Asked for in every turn of the scripted agent, which is why it is kept, for each cache."""
    package = rng.choice(seed, packages.locked(), "facts", "package")
    found = matrix.load(package)
    choices = {family: these for family in FAMILIES if (these := _choices(family, package, found))}
    family = rng.choice(seed, sorted(choices), "facts", "family")
    mend, review = rng.choice(seed, choices[family], "facts", "defects")
    return Facts(
        package=package.name,
        version=package.version,
        family=family,
        mend=mend,
        review=review,
        diagnosed=_diagnosed(seed, family, package, mend[0]),
        proof=_proofs(found, mend[0], review[0])[0] if review else package.target,
        hook_in=rng.choice(seed, ("mend", "review"), "facts", "hook"),
        number=rng.integer(seed, 1000, 9999, "facts", "number"),
    )


Share = tuple[tuple[Mutant, ...], tuple[Mutant, ...]]
"""The defects of the first and of the second delegation."""


def _choices(family: str, package: Package, found: Matrix) -> list[Share]:
    if family == "clamp":
        return [((m,), ()) for m in found.mutants if _in_source(package, m)]
    pairs = [pair for pair in found.pairs() if _both_show(found, pair)]
    if family == "wrong_test":
        wrong = [(a, b) for a, b in pairs if _in_source(package, a) and not _in_source(package, b)]
        return [((a,), (b,)) for a, b in wrong if _proofs(found, a, b)]
    sources = [(a, b) for a, b in pairs if _in_source(package, a) and _in_source(package, b)]
    if family == "multi_file":
        return [((a, b), ()) for a, b in sources]
    both_ways = [*sources, *((b, a) for a, b in sources)]
    meeting = [(a, b) for a, b in both_ways if {*found.fails((a,))} & {*found.fails((b,))}]
    return [((a,), (b,)) for a, b in meeting if _proofs(found, a, b)]


def _proofs(found: Matrix, first: Mutant, second: Mutant) -> list[str]:
    """Tests that fail of both, and pass as soon as the first is mended, whether the second is there or not."""
    of_first = {*found.fails((first,))} & {*found.fails((first, second))} - {*found.fails((second,))}
    return sorted(test for test in of_first if PLAIN.fullmatch(test))


def _in_source(package: Package, mutant: Mutant) -> bool:
    return packages.within(mutant.path, package.sources)


def _both_show(found: Matrix, pair: Sequence[Mutant]) -> bool:
    """Whether a test of each still fails when both are there, and none fails to be read."""
    together = {*found.fails(pair)}
    return all("::" in test for test in together) and all(together & {*found.fails((one,))} for one in pair)


def _diagnosed(seed: int, family: str, package: Package, defect: Mutant) -> str:
    if family != "clamp":
        return defect.path
    files = sorted(packages.tree(package))
    others = [p for p in files if packages.within(p, package.sources) and p != defect.path]
    tests = [p for p in files if packages.within(p, package.tests)]
    return str(rng.choice(seed, others or tests, "facts", "diagnosed"))


def texts(f: Facts) -> dict[str, str]:
    """Path to text of the package with its defects."""
    found = packages.tree(f.locked)
    return found | {m.path: applied(found[m.path], m) for m in f.planted}


def mending(original: str, mutant: Mutant) -> tuple[str, str]:
    """The text to replace in the mutated file, which stands there once, and what to put there: as few whole lines
    around the defect as it takes."""
    wrong = applied(original, mutant)
    start, end = mutant.start, mutant.end
    while True:
        start = original.rfind("\n", 0, max(start - 1, 0)) + 1
        end = original.find("\n", end) + 1 or len(original)
        old = wrong[start : end + len(wrong) - len(original)]
        if wrong.count(old) == 1:
            return old, original[start:end]
