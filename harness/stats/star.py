"""Narrower intervals for a number of pairs that was fixed in advance: bets that aim at the end of the sample.

The mixture of `betting` may be looked at after every pair and pays for it in width. Where the number of pairs is fixed
beforehand, a bet can be sized so that the capital would just reach 1/alpha at the last pair: large while far behind,
none once there. The bet on a pair uses what came before it only, so the capital is fair at every step; it is averaged
over sixteen fixed shuffles of the pairs, because the first pairs teach the bet and none should be the first for all.

Not for a run that was ended by looking at its data: shuffling needs a sample whose size does not depend on it.

Source: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86 (2024), for the
capital process and its inversion; the stake is the horizon-aware one of their section on fixed sample sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.stats.betting import Array
from harness.stats.intervals import Interval, checked

ORDERS = 16
SEED = 16_402_013
"""Of the shuffles. Fixed, so that the same pairs always give the same interval."""

CLIP = 0.9
"""Largest stake, as a fraction of the one that can ruin."""

PRIOR_PAIRS = 5.0
"""Number of pairs that the prior variance counts for."""

RATE_VARIANCE = 1.0
"""Prior variance of a score with mean tau in [0, cap], as a share of the largest possible, tau (cap - tau). Chosen,
like the next, for the width on simulated bursts, never on data: smaller ones bet too much before they have seen any."""

DIFFERENCE_VARIANCE = 0.2
"""The same for a difference in [-cap, cap], as a share of cap^2 - delta^2: most pairs differ in nothing."""

_POINTS, _SWEEPS = 32, 3


def rate_lower(harm: ArrayLike, base: ArrayLike, base_max: float, alpha: float, cap: float = 1.0) -> float:
    """With confidence 1 - alpha the rate sum(harm)/sum(base) is above it. Arguments as in `intervals.rate_lower`."""
    d, i = checked(harm, base, base_max, 0.0, cap)

    def rejected(tau: Array) -> NDArray[np.bool_]:
        prior = RATE_VARIANCE * tau * (cap - tau) * base_max**2
        return _rejected(d, -i, tau, tau * base_max, prior, alpha)

    return _bound(rejected, 0.0, float(d.sum() / i.sum()))


def rate_upper(harm: ArrayLike, base: ArrayLike, base_max: float, alpha: float, cap: float = 1.0) -> float:
    """With confidence 1 - alpha the rate is below it. Arguments as in `intervals.rate_lower`."""
    d, i = checked(harm, base, base_max, 0.0, cap)

    def rejected(tau: Array) -> NDArray[np.bool_]:
        prior = RATE_VARIANCE * tau * (cap - tau) * base_max**2
        return _rejected(-d, i, tau, (cap - tau) * base_max, prior, alpha)

    return _bound(rejected, cap, float(d.sum() / i.sum()))


def rate_interval(harm: ArrayLike, base: ArrayLike, base_max: float, alpha: float = 0.05, cap: float = 1.0) -> Interval:
    """Two-sided interval for sum(harm)/sum(base), alpha/2 to each side. Arguments as in `intervals.rate_lower`."""
    estimate = float(np.sum(harm) / np.sum(base))
    low = rate_lower(harm, base, base_max, alpha / 2, cap)
    return Interval(estimate, low, rate_upper(harm, base, base_max, alpha / 2, cap))


def difference_lower(excess: ArrayLike, base: ArrayLike, base_max: float, alpha: float, cap: float = 1.0) -> float:
    """With confidence 1 - alpha the difference sum(excess)/sum(base) is above it. Arguments as in
    `intervals.difference_lower`."""
    d, i = checked(excess, base, base_max, -cap, cap)

    def rejected(delta: Array) -> NDArray[np.bool_]:
        prior = DIFFERENCE_VARIANCE * (cap**2 - delta**2) * base_max**2
        return _rejected(d, -i, delta, (cap + delta) * base_max, prior, alpha)

    return _bound(rejected, -cap, float(d.sum() / i.sum()))


def difference_interval(
    excess: ArrayLike, base: ArrayLike, base_max: float, alpha: float = 0.05, cap: float = 1.0
) -> Interval:
    """Two-sided interval for sum(excess)/sum(base), alpha/2 to each side. Arguments as in `difference_lower`."""
    estimate = float(np.sum(excess) / np.sum(base))
    low = difference_lower(excess, base, base_max, alpha / 2, cap)
    high = -difference_lower(-np.asarray(excess, dtype=float), base, base_max, alpha / 2, cap)
    return Interval(estimate, low, high)


def log_e_star(g: Array, b: Array | float, alpha: float, prior_variance: Array | float) -> Array:
    """Log of the capital after the last pair: an e-value against "E[g] <= 0" for exchangeable pairs.

    g: scores in time order along axis 0, shape (n, ...), each >= -b; b and prior_variance broadcast to g.shape[1:].
    prior_variance: of one score, fixed in advance. Returns shape g.shape[1:].
    """
    shape = g.shape[1:]
    goal, most = -np.log(alpha), np.broadcast_to(CLIP / np.asarray(b, dtype=float), shape)
    log_capital, squares = np.zeros(shape), np.full(shape, PRIOR_PAIRS * np.asarray(prior_variance, dtype=float))
    for done, gains in enumerate(g):
        missing = np.maximum(goal - log_capital, 0.0)
        stake = np.minimum(np.sqrt(2 * missing * (PRIOR_PAIRS + done) / (squares * (len(g) - done))), most)
        log_capital += np.log1p(stake * gains)
        squares += gains * gains
    return log_capital


@lru_cache(maxsize=8)
def shuffles(n: int) -> NDArray[np.intp]:
    """The fixed orders of n pairs, shape (n, ORDERS)."""
    rng = np.random.default_rng(SEED)
    return np.stack([rng.permutation(n) for _ in range(ORDERS)], axis=1)


def averaged(log_capital: Array) -> Array:
    """Log of the mean capital over the orders, which are the last axis."""
    return np.logaddexp.reduce(log_capital, axis=-1) - np.log(log_capital.shape[-1])


def _rejected(part: Array, slope: Array, taus: Array, b: Array, prior: Array, alpha: float) -> NDArray[np.bool_]:
    """Which of the values `taus`, shape (k,), are refuted by the scores part + tau * slope, both of shape (n,)."""
    order = shuffles(len(part))
    g = part[order][:, None, :] + taus[:, None] * slope[order][:, None, :]
    return averaged(log_e_star(g, b[:, None], alpha, prior[:, None])) >= -np.log(alpha)


def _bound(rejected: Callable[[Array], NDArray[np.bool_]], start: float, estimate: float) -> float:
    """Last rejected value on the way from `start`, taken as rejected, to the estimate, taken as not.

    Not by halving: these bets depend on the value that is tested, so that rejection need not be monotone, and the first
    value that is not rejected on the way counts. 32 values at a time, three times; the first set is denser towards the
    estimate. What is left is below 1e-4 of the way, on the safe side.
    """
    inside, outside = start, estimate
    for sweep in range(_SWEEPS):
        if inside == outside:
            break
        ahead = np.arange(1, _POINTS + 1) / (_POINTS + 1)
        way = 1 - (1 - ahead) ** 2 if sweep == 0 else ahead
        values = inside + (outside - inside) * way
        kept = np.flatnonzero(~rejected(values))
        first = int(kept[0]) if kept.size else _POINTS
        inside, outside = (
            float(values[first - 1]) if first else inside,
            float(values[first]) if first < _POINTS else outside,
        )
    return float(inside)
