"""How often intervals contain the truth, in the cases in which usual ones do not: bursts, all or nothing, rare ruin.

For the mixture and for STaR the truth is tested directly, since a bound misses it exactly when it is rejected:
thousands of replications cost what a few intervals would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.stats import asymptotic, star
from harness.stats.betting import BOLD, EVEN, Array, log_e_mix
from harness.stats.intervals import Interval
from harness.stats.kill import decide
from harness.stats.power import Design
from harness.stats.scenarios import Clustering, duplicates, losses
from tests.characteristics import gate

EFFECTS = 12
ALPHA = 0.05

Draw = Callable[[np.random.Generator, tuple[int, int]], Array]


@dataclass(frozen=True)
class Case:
    """Scores of known mean. base: units of one trial (effects, or tokens), for intervals that count them."""

    name: str
    mean: float
    draw: Draw
    base: float = float(EFFECTS)


@dataclass(frozen=True)
class Misses:
    """Replications in which the interval lay above the truth, and below it (its upper bound was too low)."""

    above: int
    below: int
    replications: int

    @property
    def coverage(self) -> float:
        return 1 - (self.above + self.below) / self.replications


def _ruin(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Three trials in a hundred lose 85 %, the others a little: what has not happened yet cannot be resampled."""
    return np.where(rng.random(shape) < 0.03, 0.85, 0.02 * rng.random(shape))


def _duplicates(mean: float, clustering: Clustering) -> Draw:
    return lambda rng, shape: duplicates(rng, mean, shape, clustering, EFFECTS)


def _difference(first: tuple[float, Clustering], second: tuple[float, Clustering]) -> Draw:
    control, treatment = _duplicates(*first), _duplicates(*second)
    return lambda rng, shape: control(rng, shape) - treatment(rng, shape)


RATES: tuple[Case, ...] = (
    *(Case(f"mild {mean:.0%}", mean, _duplicates(mean, "low")) for mean in (0.01, 0.05)),
    *(Case(f"bursts {mean:.0%}", mean, _duplicates(mean, "med")) for mean in (0.01, 0.05, 0.2)),
    *(Case(f"all or nothing {mean:.0%}", mean, _duplicates(mean, "high")) for mean in (0.01, 0.05)),
    Case("work, bursts 5%", 0.05, lambda rng, shape: losses(rng, 0.05, shape, "med"), 60_000.0),
    Case("work, rare ruin 3.5%", 0.03 * 0.85 + 0.97 * 0.01, _ruin, 60_000.0),
)

DIFFERENCES: tuple[Case, ...] = (
    Case("bursts 3% - 0.3%", 0.027, _difference((0.03, "med"), (0.003, "med"))),
    Case("bursts 5% - 1%", 0.04, _difference((0.05, "med"), (0.01, "med"))),
    Case("bursts 3% - 3%", 0.0, _difference((0.03, "med"), (0.03, "med"))),
    Case("often a little - seldom all 3%", 0.0, _difference((0.03, "low"), (0.03, "high"))),
)


def mixture(case: Case, n: int, replications: int, seed: int, floor: float = 0.0) -> Misses:
    """Misses of `intervals.rate_interval` (floor 0) or `difference_interval` (floor -1), two-sided 95 %."""
    g = case.draw(np.random.default_rng([seed, n]), (replications, n)) - case.mean
    need = -np.log(ALPHA / 2)
    above = log_e_mix(g, case.mean - floor, EVEN)[:, -1] >= need
    below = log_e_mix(-g, 1 - case.mean, BOLD if floor == 0 else EVEN)[:, -1] >= need
    return Misses(int(above.sum()), int(below.sum()), replications)


def starred(case: Case, n: int, replications: int, seed: int, floor: float = 0.0) -> Misses:
    """The same for `star.rate_interval` and `star.difference_interval`."""
    g = case.draw(np.random.default_rng([seed, n]), (replications, n)) - case.mean
    shuffled = np.moveaxis(g[:, star.shuffles(n)], 1, 0)  # pairs, replications, orders
    prior = star.RATE_VARIANCE * case.mean * (1 - case.mean)
    if floor < 0:
        prior = star.DIFFERENCE_VARIANCE * (1 - case.mean**2)
    sides = ((shuffled, case.mean - floor), (-shuffled, 1 - case.mean))
    above, below = (
        star.averaged(star.log_e_star(scores, b, ALPHA / 2, prior)) >= -np.log(ALPHA / 2) for scores, b in sides
    )
    return Misses(int(above.sum()), int(below.sum()), replications)


def interval(
    case: Case, n: int, replications: int, seed: int, make: Callable[[Array, Array], Interval | str]
) -> Misses:
    """Misses of any interval that is made from harm and base."""
    drawn, base = case.draw(np.random.default_rng([seed, n]), (replications, n)), np.full(n, case.base)
    above = below = 0
    for scores in drawn:
        found = make(scores * base, base)
        if isinstance(found, str):
            raise ValueError(found)
        above += found.low > case.mean + 1e-12
        below += found.high < case.mean - 1e-12
    return Misses(above, below, replications)


METHODS: Mapping[str, Callable[[Array, Array], Interval | str]] = {
    "delta-t": asymptotic.delta_t,
    "Korn-Graubard": asymptotic.korn_graubard,
    "bootstrap-t": asymptotic.bootstrap_t,
    "hull": asymptotic.hull_rate,
}

DIFFERENCE_METHODS: Mapping[str, Callable[[Array, Array], Interval | str]] = {
    "delta-t": asymptotic.delta_t,
    "bootstrap-t": asymptotic.bootstrap_t,
    "hull": asymptotic.hull_difference,
}


def stopped(cell: gate.Cell, design: Design, replications: int, seed: int) -> dict[str, Misses]:
    """Misses where the data end the run: intervals of the duplicates that a forced trial does, after the pair at which
    the kill criterion was decided. The mixture holds there; STaR and the hull promise nothing."""
    mean = gate.means(cell, design)
    if isinstance(mean, str):
        raise ValueError(mean)
    truth = float(np.array([c.weight for c in design.kill.classes]) @ mean[0])
    sides = dict.fromkeys(("mixture", "STaR"), (0, 0))
    for k in range(replications):
        drawn = gate.draw(cell, design, mean, np.random.default_rng([seed, k]))
        at = decide(drawn.primaries, drawn.names, design.kill).decided_at
        g = drawn.primaries[0].low[:at] - truth
        shuffled = g[star.shuffles(at)]
        prior = star.RATE_VARIANCE * truth * (1 - truth)
        ends = {
            "mixture": (log_e_mix(g, truth, EVEN)[-1], log_e_mix(-g, 1 - truth, BOLD)[-1]),
            "STaR": tuple(
                float(star.averaged(star.log_e_star(scores, b, ALPHA / 2, prior)))
                for scores, b in ((shuffled, truth), (-shuffled, 1 - truth))
            ),
        }
        for name, (above, below) in ends.items():
            sides[name] = (
                sides[name][0] + bool(above >= -np.log(ALPHA / 2)),
                sides[name][1] + bool(below >= -np.log(ALPHA / 2)),
            )
    return {name: Misses(above, below, replications) for name, (above, below) in sides.items()}


def covered(method: str, table: str, name: str, n: int, replications: int, seed: int) -> Misses:
    """One cell of the coverage table. Cases go by name, since their draws cannot be sent to another process."""
    rates = table == "rates"
    case = next(c for c in (RATES if rates else DIFFERENCES) if c.name == name)
    if method in ("mixture", "STaR"):
        direct = mixture if method == "mixture" else starred
        return direct(case, n, replications, seed, 0.0 if rates else -1.0)
    methods = METHODS if rates else DIFFERENCE_METHODS
    return interval(case, n, replications, seed, methods[method])


def together(parts: Sequence[Misses]) -> Misses:
    """Chunks of one cell together."""
    return Misses(sum(p.above for p in parts), sum(p.below for p in parts), sum(p.replications for p in parts))
