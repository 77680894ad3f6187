"""Confidence bounds for rates and differences of rates, by inverting the e-process of `betting`.

Why not an asymptotic interval: harm comes in bursts and is rare, and there bootstrap and delta intervals miss on the
side that produces a false all-clear (measured coverage 17 to 90 % at n <= 50). These bounds hold at every n and at
every stopping time; the price is width.

Denominators are fixed by design: every trial has the same number of intended effects, scheduled faults and tokens, so
a ratio of sums is the mean of a score in [0, cap].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from harness.stats.betting import BOLD, EVEN, Array, e_value, log_e_last

_STEPS = 42  # bisection down to 2e-13 of the range


@dataclass(frozen=True)
class Interval:
    """A point estimate with a two-sided confidence interval."""

    estimate: float
    low: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """The same interval in another unit."""
        return Interval(self.estimate * factor, self.low * factor, self.high * factor)


def rate_lower(harm: ArrayLike, base: ArrayLike, base_max: float, alpha: float, cap: float = 1.0) -> float:
    """Largest rate that is rejected as too high a floor: with confidence 1 - alpha the rate is above it.

    harm: per trial, 0 <= harm <= cap * base; base: denominators, 0 < base <= base_max; both shape (n,), n >= 1.
    """
    d, i = checked(harm, base, base_max, 0.0, cap)

    def rejected(tau: float) -> bool:
        return log_e_last(d - tau * i, tau * base_max, EVEN) >= -np.log(alpha)

    return _edge(rejected, 0.0, cap)


def rate_upper(harm: ArrayLike, base: ArrayLike, base_max: float, alpha: float, cap: float = 1.0) -> float:
    """Smallest rate that is rejected as too low a ceiling: with confidence 1 - alpha the rate is below it.

    Same arguments as `rate_lower`.
    """
    d, i = checked(harm, base, base_max, 0.0, cap)

    def rejected(tau: float) -> bool:
        return log_e_last(tau * i - d, (cap - tau) * base_max, BOLD) >= -np.log(alpha)

    return _edge(rejected, cap, 0.0)


def rate_interval(harm: ArrayLike, base: ArrayLike, base_max: float, alpha: float = 0.05, cap: float = 1.0) -> Interval:
    """Two-sided interval for sum(harm)/sum(base), alpha/2 to each side. Arguments as in `rate_lower`."""
    low = rate_lower(harm, base, base_max, alpha / 2, cap)  # first: it refuses what is no data
    return Interval(float(np.sum(harm) / np.sum(base)), low, rate_upper(harm, base, base_max, alpha / 2, cap))


def difference_lower(excess: ArrayLike, base: ArrayLike, base_max: float, alpha: float, cap: float = 1.0) -> float:
    """Lower confidence bound for sum(excess)/sum(base). excess: harm of one arm minus harm of the other in the same
    pair, shape (n,), |excess| <= cap * base."""
    d, i = checked(excess, base, base_max, -cap, cap)

    def rejected(delta: float) -> bool:
        return log_e_last(d - delta * i, (cap + delta) * base_max, EVEN) >= -np.log(alpha)

    return _edge(rejected, -cap, cap)


def difference_interval(
    excess: ArrayLike, base: ArrayLike, base_max: float, alpha: float = 0.05, cap: float = 1.0
) -> Interval:
    """Two-sided interval for sum(excess)/sum(base), alpha/2 to each side. Arguments as in `difference_lower`."""
    low = difference_lower(excess, base, base_max, alpha / 2, cap)
    high = -difference_lower(-np.asarray(excess, dtype=float), base, base_max, alpha / 2, cap)
    return Interval(float(np.sum(excess) / np.sum(base)), low, high)


def difference_e_value(excess: ArrayLike, base: ArrayLike, base_max: float, cap: float = 1.0) -> float:
    """Evidence after the last pair that the difference is above zero: 20 or more rejects at 5 %, 1 says nothing."""
    d, _ = checked(excess, base, base_max, -cap, cap)
    return e_value(log_e_last(d, cap * base_max, EVEN))


def _edge(rejected: Callable[[float], bool], start: float, end: float) -> float:
    """Last rejected value on the way from `start` (taken as rejected) to `end`; rejection is monotone in between."""
    inside, outside = start, end
    for _ in range(_STEPS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if rejected(middle) else (inside, middle)
    return float(inside)


def checked(harm: ArrayLike, base: ArrayLike, base_max: float, floor: float, cap: float) -> tuple[Array, Array]:
    """Both as vectors, if floor * base <= harm <= cap * base and 0 < base <= base_max; else ValueError."""
    d, i = np.asarray(harm, dtype=float), np.asarray(base, dtype=float)
    if d.shape != i.shape or d.ndim != 1 or not d.size:
        raise ValueError(f"need two equally long non-empty vectors, not {d.shape} and {i.shape}")
    if (i <= 0).any() or (i > base_max * (1 + 1e-9)).any():
        raise ValueError(f"denominators must lie in (0, {base_max}]")
    slack = 1e-9 * base_max
    if (d < floor * i - slack).any() or (d > cap * i + slack).any():
        raise ValueError(f"harm must lie between {floor:g} and {cap:g} times its denominator")
    return d, i
