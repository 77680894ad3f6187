"""Mistakes that a script plants in what it writes, and mends again when a test shows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from harness.core import rng


class Defect(Struct, frozen=True, kw_only=True):
    """A planted mistake: `wrong` stands in the file where `right` should; `test` is the id that fails of it."""

    wrong: str
    right: str
    test: str


def drawn(seed: int, pool: Sequence[Defect], least: int, name: str) -> tuple[Defect, ...]:
    """At least so many of the pool, in its order."""
    count = rng.integer(seed, least, len(pool), "facts", name)
    return tuple(pool[i] for i in sorted(rng.shuffled(seed, range(len(pool)), "facts", name)[:count]))


def planted(source: str, defects: Iterable[Defect]) -> str:
    """The source with these mistakes in it."""
    for defect in defects:
        source = source.replace(defect.right, defect.wrong)
    return source


def failing(source: str | None, defects: Iterable[Defect], target: str) -> tuple[str, ...]:
    """Ids of the tests of the file `target` that fail on this source, as real runners report them: the file itself
    where it cannot be collected."""
    if source is None:
        return (target,)
    found = {defect.test for defect in defects if defect.wrong in source}
    return (target,) if target in found else tuple(sorted(found))
