"""Mistakes that a script plants in what it writes, and mends again when a test shows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from harness.core import rng
from workloads.common.agent import CHECK_TRIES, Action, Step, done, runs_of


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


def mend(path: str, defects: Iterable[Defect], check: str, steps: list[Step]) -> list[Action]:
    """What a script does after it wrote a file with these mistakes: it runs the check, mends what the last run showed,
    one mistake at a time, and gives up when that leads nowhere."""
    runs = runs_of(check, steps)
    if runs and runs[-1].get("passed"):
        return done()
    fixed = {s.args["old"] for s in steps if s.tool == "edit" and "error" not in s.result}
    if len(runs) >= len(fixed) + CHECK_TRIES or (runs and runs[-1].get("refused")):
        return done("blocked")
    shown = set(runs[-1].get("failing", ())) if runs else set()
    for defect in defects:
        if defect.test in shown and defect.wrong not in fixed:
            edit = {"path": path, "old": defect.wrong, "new": defect.right}
            return [("edit", edit), ("run_check", {"check": check})]
    return [("run_check", {"check": check})]
