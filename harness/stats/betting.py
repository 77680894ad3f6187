"""Evidence by betting: the e-process of a bounded score.

A score g of one pair is built so that "the claim is false" means E[g] <= 0, and g >= -b is known in advance. Betting a
fixed fraction of the capital on g > 0 multiplies the capital by 1 + lambda * g per pair; if the claim is false the
capital cannot be expected to grow, so by Ville's inequality it ever reaches 1/alpha with probability at most alpha,
however often one looks. Several fractions are played side by side and their capitals averaged, since the best one is
not known beforehand.

Source: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86 (2024).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

FRACTIONS: Array = np.array([0.99 / 2**k for k in range(8)])
"""Stakes, as fractions of the largest that cannot ruin (1/b). Registered; never tuned on data."""

EVEN: Array = np.full(8, 1 / 8)
"""Weights for claims that a harm is there: its size is unknown, so every stake gets the same share."""

BOLD: Array = np.r_[0.5, np.full(7, 0.5 / 7)]
"""Weights for claims that a harm is absent: half on the largest stake, which wins fastest when nothing happens."""

_LARGEST = 1e300  # e-values are reported as finite numbers; a run of 800 pairs can exceed the float range


def log_e_mix(g: ArrayLike, b: float, weights: Array = EVEN, fractions: Array = FRACTIONS) -> Array:
    """Log of the averaged capital after each pair: an anytime-valid e-process against "E[g] <= 0".

    g: scores in registered order along the last axis, shape (..., n), each >= -b. b > 0: the largest possible loss of
    one score, known in advance. Returns shape (..., n). Raises ValueError when a score is below -b, since the guarantee
    would be void.
    """
    scores = np.asarray(g, dtype=float)
    if not b > 0:
        raise ValueError(f"the bound must be positive, not {b}")
    if scores.size and scores.min() < -b * (1 + 1e-9):
        raise ValueError(f"a score of {scores.min():g} lies below its bound {-b:g}")
    column = (-1,) + (1,) * scores.ndim
    steps = np.log1p((fractions / b).reshape(column) * scores)
    return _log_sum(np.cumsum(steps, axis=-1) + np.log(weights).reshape(column))


def log_e_last(g: Array, b: float, weights: Array) -> float:
    """Log e-value after the last pair only: the end of `log_e_mix`, cheaper, for inverting it."""
    steps = np.log1p(np.outer(FRACTIONS / b, g)).sum(axis=1)
    return float(_log_sum((steps + np.log(weights))[:, None])[0])


def log_mean(*paths: Array) -> Array:
    """Log of the average of several e-processes: again one, whatever their dependence. Rejects when any is strong."""
    return _log_sum(np.stack(paths)) - np.log(len(paths))


def peak(path: Array) -> float:
    """Largest log evidence at any look so far. May be compared with log(1/alpha) after any pair (Ville); 0 without
    data, since a capital of one is the start."""
    return float(max(0.0, path.max())) if path.size else 0.0


NEVER: int = int(np.iinfo(np.int64).max)
"""Number of pairs of a look that does not come."""


def first_look(path: Array, alpha: float, pairs_min: int = 1) -> int:
    """Number of pairs at the first look, from `pairs_min` on, by which the path has reached log(1/alpha); NEVER
    without one. What was reached before `pairs_min` counts there (Ville holds for the running maximum)."""
    reached = np.flatnonzero(path >= -np.log(alpha))
    return max(int(reached[0]) + 1, pairs_min) if reached.size else NEVER


def e_value(log_e: float) -> float:
    """The evidence itself, capped at 1e300 so that it stays a JSON number."""
    return float(np.exp(min(log_e, np.log(_LARGEST))))


def _log_sum(rows: Array) -> Array:
    top = rows.max(axis=0)
    return top + np.log(np.exp(rows - top).sum(axis=0))
