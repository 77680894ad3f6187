"""Assumed truths: harm drawn at random, for planning how many pairs a claim needs and for measuring error rates.

What decides is how harm clusters: twelve duplicates in one trial are one observation. So each kind of harm comes in
three degrees, and every draw has exactly the mean that was asked for.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.stats.betting import Array
from harness.stats.kill import KillPlan

Clustering = Literal["low", "med", "high"]
"""low: every trial is at risk, effects nearly independent. med: a tenth of the trials, or a few more, are hit and harm
inside them is correlated. high: all or nothing."""

CLUSTERINGS: tuple[Clustering, ...] = get_args(Clustering)

_MILD, _BURST, _LOSS = 0.05, 0.4, 0.3  # intra-class correlations
_WHOLE_LOSS = 0.85  # share of a trial's budget that an all-or-nothing loss destroys


def duplicates(
    rng: np.random.Generator, mean: ArrayLike, shape: tuple[int, ...], clustering: Clustering, effects: int
) -> Array:
    """Share of a trial's intended effects that were committed twice, of this mean, in steps of 1/effects.

    mean: in [0, 1], broadcast to `shape`.
    """
    target = np.broadcast_to(np.asarray(mean, dtype=float), shape)
    if clustering == "high":
        return (rng.random(shape) < target).astype(float)
    share = np.ones(shape) if clustering == "low" else _hit_share(target)
    inside = _beta(rng, target / share, _MILD if clustering == "low" else _BURST)
    return rng.binomial(effects, np.where(rng.random(shape) < share, inside, 0.0)) / effects


def losses(rng: np.random.Generator, mean: ArrayLike, shape: tuple[int, ...], clustering: Clustering) -> Array:
    """Work that a trial lost, as a share of the most that counts, of this mean; `mean` as in `duplicates`."""
    target = np.broadcast_to(np.asarray(mean, dtype=float), shape)
    if clustering == "high":
        size = np.maximum(_WHOLE_LOSS, target)
        return np.where(rng.random(shape) < target / size, size, 0.0)
    share = np.ones(shape) if clustering == "low" else np.clip(2.5 * target, 1e-9, 0.9)
    share = np.maximum(share, target)
    inside = _beta(rng, target / share, _MILD if clustering == "low" else _LOSS)
    return np.where(rng.random(shape) < share, inside, 0.0)


def classes(rng: np.random.Generator, plan: KillPlan, shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Fault class of each pair, as an index into `plan.classes`, drawn with the registered weights."""
    return rng.choice(len(plan.classes), size=shape, p=[c.weight for c in plan.classes])


def design_effect(scores: Array, mean: float, effects: int) -> float:
    """Variance of these scores over what it would be if each of a trial's effects stood for itself."""
    return float(np.var(scores) / (mean * (1 - mean) / effects))


def _hit_share(mean: Array) -> Array:
    """Share of trials that a burst hits: a tenth, more if harm is frequent, fewer where it is rarer than 1 %."""
    return np.clip(np.maximum(np.minimum(0.1, 10 * mean), 1.25 * mean), 1e-9, 1.0)


def _beta(rng: np.random.Generator, mean: Array, correlation: float) -> Array:
    """Beta variates of this mean and intra-class correlation; exact at 0 and 1."""
    inner = np.clip(mean, 1e-12, 1 - 1e-12)
    size = 1 / correlation - 1
    drawn = rng.beta(inner * size, (1 - inner) * size)
    return np.where(mean <= 0, 0.0, np.where(mean >= 1, 1.0, drawn))
