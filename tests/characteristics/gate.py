"""The kill criterion under assumed truths: how often each outcome, how soon, how often wrong; and naive peeking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from harness.stats.betting import Array
from harness.stats.kill import KillPlan, Primary, decide, realistic_scores
from harness.stats.power import Design
from harness.stats.scenarios import Clustering, classes, duplicates, losses

EVEN = "all classes alike"
NARROW = "each class at the limit of GO_NARROW"


@dataclass(frozen=True)
class Cell:
    """An assumed truth. duplicates, work: harm in operation as a multiple of the registered threshold. spread: over the
    fault classes: alike per forced fault, in one named class alone, or NARROW: each class on its own does as much as
    would be material at the top of its cited rates, whatever that adds up to."""

    duplicates: float
    work: float
    clustering: Clustering
    spread: str = EVEN


@dataclass(frozen=True)
class Result:
    """One simulated run. false: the outcome is GO or STOP, and wrong. named_wrongly: a class that is not material alone
    was named. naive: outcome of peeking with 95 % intervals."""

    outcome: str
    decided_at: int
    false: bool
    named_wrongly: bool
    naive: Literal["GO", "STOP", "INCONCLUSIVE"]


def means(cell: Cell, design: Design) -> tuple[Array, Array] | str:
    """Mean scores per fault class that make this cell's harm in operation, or why no harm can."""
    plan, found = design.kill, []
    for multiple, tau in ((cell.duplicates, design.tau_duplicates), (cell.work, design.tau_work)):
        rates = np.array([c.rate for c in plan.classes])
        if cell.spread == NARROW:
            mean = multiple * np.minimum(1.0, tau / np.array([c.rate_high for c in plan.classes]))
        elif cell.spread == EVEN:
            mean = np.full(len(rates), multiple * tau / rates.sum())
        else:
            mean = np.array([multiple * tau / c.rate if c.name == cell.spread else 0.0 for c in plan.classes])
        if mean.max() > 1:
            return f"{cell.spread}: even full harm at every fault stays below {multiple:g} x the threshold"
        found.append(mean)
    return found[0], found[1]


def simulate(cell: Cell, design: Design, replications: int, seed: int) -> list[Result]:
    """Runs of `design.kill.pairs_max` pairs, decided by `harness.stats.kill.decide` itself."""
    mean = means(cell, design)
    if isinstance(mean, str):
        raise ValueError(mean)
    return [_run(cell, design, mean, np.random.default_rng([seed, k])) for k in range(replications)]


@dataclass(frozen=True)
class Drawn:
    """The control arm of one simulated run. names: fault class of each pair."""

    primaries: tuple[Primary, Primary]
    names: list[str]


def draw(cell: Cell, design: Design, mean: tuple[Array, Array], rng: np.random.Generator) -> Drawn:
    """Harm of `design.kill.pairs_max` pairs with these means per class."""
    plan, n = design.kill, design.kill.pairs_max
    drawn = classes(rng, plan, (n,))
    first = duplicates(rng, mean[0][drawn], (n,), cell.clustering, design.effects)
    second = losses(rng, mean[1][drawn], (n,), cell.clustering)
    return Drawn(
        (
            Primary("duplicates", first, first, design.tau_duplicates),
            Primary("work", second, second, design.tau_work),
        ),
        [plan.classes[c].name for c in drawn],
    )


def _run(cell: Cell, design: Design, mean: tuple[Array, Array], rng: np.random.Generator) -> Result:
    plan, taus = design.kill, (design.tau_duplicates, design.tau_work)
    drawn = draw(cell, design, mean, rng)
    found = decide(drawn.primaries, drawn.names, plan)
    return Result(
        outcome=found.outcome,
        decided_at=found.decided_at,
        false=_false(found.outcome, mean, plan, taus),
        named_wrongly=any(not _alone(name, mean, plan, taus) for name in found.narrow),
        naive=_peeking([realistic_scores(p.low, drawn.names, plan)[0] for p in drawn.primaries], taus),
    )


def _false(outcome: str, mean: tuple[Array, Array], plan: KillPlan, taus: tuple[float, float]) -> bool:
    """GO is wrong if no primary is above its threshold, STOP if one is at it or above."""
    rates = np.array([c.rate for c in plan.classes])
    harm = [float(rates @ m) for m in mean]
    if outcome == "GO":
        return not any(h > tau * (1 + 1e-9) for h, tau in zip(harm, taus, strict=True))
    return outcome == "STOP" and any(h >= tau * (1 - 1e-9) for h, tau in zip(harm, taus, strict=True))


def _alone(name: str, mean: tuple[Array, Array], plan: KillPlan, taus: tuple[float, float]) -> bool:
    """Whether a class is material on its own at the top of its cited rates."""
    index = [c.name for c in plan.classes].index(name)
    top = plan.classes[index].rate_high
    return any(m[index] * top > tau * (1 + 1e-9) for m, tau in zip(mean, taus, strict=True))


def _peeking(scores: list[Array], taus: tuple[float, float]) -> Literal["GO", "STOP", "INCONCLUSIVE"]:
    """What one gets by looking at a one-sided 95 % t bound every ten pairs and stopping when it pleases."""
    n = np.arange(20, len(scores[0]) + 1, 10)
    quantile = stats.t.ppf(0.95, n - 1)
    go, stop = np.zeros(len(n), dtype=bool), np.ones(len(n), dtype=bool)
    for x, tau in zip(scores, taus, strict=True):
        mean, square = np.cumsum(x)[n - 1] / n, np.cumsum(x * x)[n - 1] / n
        se = np.sqrt(np.maximum(square - mean * mean, 0.0) / (n - 1))
        go |= mean - quantile * se > tau
        stop &= (mean + quantile * se < tau) & (se > 0)
    first_go, first_stop = (int(x.argmax()) if x.any() else len(n) for x in (go, stop))
    if first_go == first_stop == len(n):
        return "INCONCLUSIVE"
    return "GO" if first_go <= first_stop else "STOP"
