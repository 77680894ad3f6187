"""Intervals from the variance between pairs, and their hulls: from 200 pairs on, shown beside the guaranteed ones.

They are narrower than those of `intervals` and nothing proves them. Each alone misses somewhere, on the side that gives
a false all-clear; the hull of two that fail differently covered at least 94.5 % in every case that was tried at 200
pairs and more, and far less below. So a hull is refused below 200 pairs, and never decides.

The unit is the pair (trial): what happens inside a trial is correlated, so nothing here counts effects one by one.

Sources: linearised variance of a ratio, Cochran, "Sampling Techniques" (1977), with the CR1 factor n/(n-1); Korn and
Graubard, "Confidence intervals for proportions with small expected number of positive counts estimated from survey
data", Survey Methodology 24 (1998); bootstrap-t, Efron and Tibshirani, "An Introduction to the Bootstrap" (1993).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from harness.stats.betting import Array
from harness.stats.intervals import Interval, checked

PAIRS_LEAST = 200
RESAMPLES = 4999
SEED = 19_790_101
"""Of the resamples. Fixed, so that the same pairs always give the same interval."""


@dataclass(frozen=True)
class Linearised:
    """A ratio of sums and its standard error over n trials."""

    estimate: float
    se: float
    n: int


def linearised(harm: ArrayLike, base: ArrayLike) -> Linearised:
    """sum(harm)/sum(base) with the CR1 standard error, clusters = trials. Both shape (n,), n >= 2, base > 0."""
    d, i = np.asarray(harm, dtype=float), np.asarray(base, dtype=float)
    n = len(d)
    if n < 2:
        raise ValueError(f"a variance between trials needs two of them, not {n}")
    estimate = float(d.sum() / i.sum())
    residual = d - estimate * i
    spread = float(residual @ residual)
    if spread <= 1e-24 * float(i @ i):  # all trials alike: what is left is rounding
        spread = 0.0
    return Linearised(estimate, float(np.sqrt(n / (n - 1) * spread) / i.sum()), n)


def clopper_pearson(events: float, trials: float, alpha: float = 0.05) -> tuple[float, float]:
    """Exact two-sided bounds for the probability of an event, alpha/2 to each side. 0 <= events <= trials; neither has
    to be whole (effective sample sizes are not)."""
    if not 0 <= events <= trials or not trials > 0:
        raise ValueError(f"{events:g} events in {trials:g} trials")
    misses = trials - events
    low = 0.0 if events == 0 else float(special.betaincinv(events, misses + 1, alpha / 2))
    high = 1.0 if misses == 0 else float(special.betaincinv(events + 1, misses, 1 - alpha / 2))
    return low, high


def korn_graubard(harm: ArrayLike, base: ArrayLike, alpha: float = 0.05) -> Interval:
    """Clopper-Pearson at the effective sample size. 0 <= harm <= base, both counts (effects, tokens), shape (n,).

    Without variance between trials the effective size is the number of trials, the worst case of one trial being one
    observation.
    """
    found, units = linearised(harm, base), float(np.sum(base))
    size = float(found.n)
    if found.se > 0:
        alike = found.estimate * (1 - found.estimate) / units  # variance if every unit stood for itself
        design_effect = max(1.0, found.se**2 / alike)
        narrower = stats.t.ppf(1 - alpha / 2, max(units - 1, 1)) / stats.t.ppf(1 - alpha / 2, found.n - 1)
        size = units / design_effect * float(narrower) ** 2
    return Interval(found.estimate, *clopper_pearson(min(found.estimate, 1.0) * size, size, alpha))


def delta_t(harm: ArrayLike, base: ArrayLike, alpha: float = 0.05) -> Interval:
    """Estimate plus and minus t standard errors; may leave the possible range. Serves rates and differences."""
    found = linearised(harm, base)
    half = float(stats.t.ppf(1 - alpha / 2, found.n - 1)) * found.se
    return Interval(found.estimate, found.estimate - half, found.estimate + half)


def bootstrap_t(harm: ArrayLike, base: ArrayLike, alpha: float = 0.05) -> Interval:
    """Bootstrap-t over trials, for rates and differences; may leave the possible range.

    A resample without variance counts as infinitely far on its side. So with about three harmful trials or fewer the
    upper bound is honestly infinite: such data cannot tell how much more was possible. Without any variance both bounds
    are infinite.
    """
    d, i = np.asarray(harm, dtype=float), np.asarray(base, dtype=float)
    found = linearised(d, i)
    if found.se == 0:
        return Interval(found.estimate, -np.inf, np.inf)
    harms, bases, dd, di, ii = (_resamples(found.n) @ np.column_stack([d, i, d * d, d * i, i * i])).T
    ratios = harms / bases
    squares = dd - 2 * ratios * di + ratios**2 * ii
    squares[squares <= 1e-12 * dd] = 0.0
    errors = np.sqrt(found.n / (found.n - 1) * squares) / bases
    away = ratios - found.estimate
    with np.errstate(divide="ignore", invalid="ignore"):
        endless = np.where(away == 0, 0.0, np.copysign(np.inf, away))
        t = np.sort(np.where(errors > 0, away / errors, endless))
    rank = round(alpha / 2 * (RESAMPLES + 1))
    return Interval(
        found.estimate,
        float(found.estimate - t[-rank] * found.se),
        float(found.estimate - t[rank - 1] * found.se),
    )


def hull_rate(harm: ArrayLike, base: ArrayLike, alpha: float = 0.05) -> Interval | str:
    """The hull of Korn-Graubard and bootstrap-t, within [0, 1]. 0 <= harm <= base, both counts, shape (n,).

    Where bootstrap-t has no bound, that side is the exact bound for the share of trials with any harm at all (or,
    below, with less than full harm), which the rate cannot pass. A string says why there is no interval. Whole counts
    make every sum of the resampling exact, so that the result is the same on any machine.
    """
    if refusal := _too_few(np.size(harm)):
        return refusal
    d, i = checked(harm, base, float(np.max(base)), 0.0, 1.0)
    survey, boot = korn_graubard(d, i, alpha), bootstrap_t(d, i, alpha)
    if linearised(d, i).se == 0:  # nothing to resample, and the effective size is at its worst case already
        return survey
    low = boot.low if np.isfinite(boot.low) else 1 - _share_at_most(d < i, alpha)
    high = boot.high if np.isfinite(boot.high) else _share_at_most(d > 0, alpha)
    return Interval(survey.estimate, max(0.0, min(survey.low, low)), min(1.0, max(survey.high, high)))


def hull_difference(excess: ArrayLike, base: ArrayLike, alpha: float = 0.05) -> Interval | str:
    """The hull of delta-t and bootstrap-t, within [-1, 1]. excess: harm of one arm minus harm of the other in the same
    pair, |excess| <= base, shape (n,).

    Where bootstrap-t has no bound, that side is the exact bound for the share of pairs with any excess of that sign. A
    string says why there is no interval.
    """
    if refusal := _too_few(np.size(excess)):
        return refusal
    d, i = checked(excess, base, float(np.max(base)), -1.0, 1.0)
    delta, boot = delta_t(d, i, alpha), bootstrap_t(d, i, alpha)
    low = boot.low if np.isfinite(boot.low) else -_share_at_most(d < 0, alpha)
    high = boot.high if np.isfinite(boot.high) else _share_at_most(d > 0, alpha)
    return Interval(delta.estimate, max(-1.0, min(delta.low, low)), min(1.0, max(delta.high, high)))


def _too_few(pairs: int) -> str:
    if pairs >= PAIRS_LEAST:
        return ""
    return f"{pairs} pairs; below {PAIRS_LEAST} no interval from the variance between pairs can be trusted"


def _share_at_most(events: np.ndarray, alpha: float) -> float:
    return clopper_pearson(float(events.sum()), float(len(events)), alpha)[1]


@lru_cache(maxsize=2)
def _resamples(n: int) -> Array:
    """How often each of n trials is in each resample, shape (RESAMPLES, n); the same for all that have n trials."""
    rng = np.random.default_rng(SEED)
    return rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(float)
