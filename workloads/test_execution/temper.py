"""What a suite is like to run: steady, slow, hanging, flaky or order-dependent, and in which of its runs.

Why a file beside the suite: the real suite and its stand-in in the sim world read the same bytes, so that a suite is as
slow and as flaky in both, in every arm, and on every machine. A draw depends on the seed and the number of the run.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from harness.core import rng
from harness.core.roles import Manner

FLAKY = 0.3
"""Chance that a run of a flaky suite fails before it did anything, whose predecessor did not."""

SHUFFLED = 0.5
"""Chance that an order-dependent suite runs its tests in reverse, for a block of runs."""

SHUFFLED_BLOCK_RUNS = 3

DRAWN_RUNS = 64
"""Runs of a suite whose luck is drawn; all later ones go well."""

SLOW_MS = (9_000, 16_000)
"""Shortest and longest time that a slow suite takes on each side of its work, with signs of life. It stays well below
60 s, Bazel's limit for a `short` test, and is above half of that often enough to show a guard that is too strict."""

HANGING_MS = (15_000, 32_000)
"""The same for a hanging suite, which shows no sign of life and then goes on, on one side of its work."""

KINDS = ("slow", "hanging", "flaky", "steady")
"""Those of the four suites that have effects; the last two take no time of their own."""


class Temper(Struct, frozen=True, kw_only=True):
    """before_ms, after_ms: nominal time before and after the work; paced: with signs of life. fails_on, reversed_on,
    stuck_on: numbers of the runs that fail before they did anything, go through the tests from last to first, or never
    return; stuck_after: their work is done by then."""

    kind: str = "steady"
    before_ms: float = 0.0
    after_ms: float = 0.0
    paced: bool = False
    fails_on: tuple[int, ...] = ()
    reversed_on: tuple[int, ...] = ()
    stuck_on: tuple[int, ...] = ()
    stuck_after: bool = False

    def manner(self, run: int, test: str) -> Manner:
        """How the suite behaves in its `run`-th run; `test` is the one that fails when it does. None of its time is
        spent after work that never began."""
        stuck, failed = run in self.stuck_on, run in self.fails_on
        before_ms = None if stuck and not self.stuck_after else self.before_ms
        after_ms = 0.0 if failed else None if stuck else self.after_ms
        return Manner(failing=(test,) if failed else (), before_ms=before_ms, after_ms=after_ms, paced=self.paced)


def path_of(target: str) -> str:
    """Where the temper of a suite stands."""
    return f"{target}.json"


def text_of(temper: Temper) -> str:
    return msgspec.json.encode(temper).decode() + "\n"


def read(files: Mapping[str, str], target: str) -> Temper:
    """The temper of a suite, steady where none stands beside it."""
    text = files.get(path_of(target))
    return Temper() if text is None else msgspec.json.decode(text, type=Temper)


def drawn(seed: int, kind: str, suite: str) -> Temper:
    """The temper of a suite of this kind. Raises KeyError when there is no such kind."""
    return _DRAWS[kind](seed, suite)


def _slow(seed: int, suite: str) -> Temper:
    before_ms, after_ms = (float(rng.integer(seed, *SLOW_MS, "temper", suite, side)) for side in ("before", "after"))
    return Temper(kind="slow", before_ms=before_ms, after_ms=after_ms, paced=True)


def _hanging(seed: int, suite: str) -> Temper:
    ms = float(rng.integer(seed, *HANGING_MS, "temper", suite, "hang"))
    after = rng.draw(seed, "temper", suite, "after") < 0.5
    return Temper(kind="hanging", before_ms=0.0 if after else ms, after_ms=ms if after else 0.0)


def _flaky(seed: int, suite: str) -> Temper:
    fails_on: list[int] = []
    for run in range(1, DRAWN_RUNS + 1):
        if run - 1 not in fails_on and rng.draw(seed, "temper", suite, "flake", run) < FLAKY:
            fails_on.append(run)
    return Temper(kind="flaky", fails_on=tuple(fails_on))


def _ordered(seed: int, suite: str) -> Temper:
    runs = range(1, DRAWN_RUNS + 1)
    blocks = {run: (run - 1) // SHUFFLED_BLOCK_RUNS for run in runs}
    unlucky = {block for block in blocks.values() if rng.draw(seed, "temper", suite, "order", block) < SHUFFLED}
    return Temper(kind="ordered", reversed_on=tuple(run for run in runs if blocks[run] in unlucky))


def _stuck(seed: int, suite: str) -> Temper:
    """The first run never returns, before or after its work, silently or with signs of life."""
    after, paced = (rng.draw(seed, "temper", suite, name) < 0.5 for name in ("after", "paced"))
    return Temper(kind="stuck", stuck_on=(1,), stuck_after=after, paced=paced)


_DRAWS = {
    "steady": lambda seed, suite: Temper(),
    "slow": _slow,
    "hanging": _hanging,
    "flaky": _flaky,
    "ordered": _ordered,
    "stuck": _stuck,
}
