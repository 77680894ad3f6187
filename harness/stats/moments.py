"""What was measured of the links of a chain: how often they fail together, with bounds that are all true at once.

Why moments: the probabilities that these and those links fail in one run are all that a sample says about their joint
distribution, and each has an exact interval of its own.

X[run, i] = 1 means that link i did not hold in that run. A family is a tuple of subsets S of the links; the moment of S
is E[prod over S of X_i], the probability that all of S fail in one run. A box bounds the moments of a family.
Runs must be independent of each other; links need not be.

Source of the mixture confidence sequence: Robbins (1970).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from harness.stats.asymptotic import clopper_pearson
from harness.stats.betting import Array

Subset = tuple[int, ...]
Family = tuple[Subset, ...]
Bounds = Callable[[int, int, float], tuple[float, float]]


@dataclass(frozen=True)
class Box:
    """Bounds of the moments of a family over k links, all of them true at once with the confidence of the box."""

    k: int
    family: Family
    low: Array
    high: Array

    def of(self, subset: Subset) -> tuple[float, float]:
        """Bounds of one moment; 0 and 1 where it was not measured."""
        place = self._places.get(subset)
        return (0.0, 1.0) if place is None else (float(self.low[place]), float(self.high[place]))

    @property
    def _places(self) -> dict[Subset, int]:
        return {subset: place for place, subset in enumerate(self.family)}

    @property
    def order(self) -> int:
        return max(map(len, self.family), default=0)


def family(k: int, order: int) -> Family:
    """All subsets of k links with 1 to `order` members, the small ones first."""
    return tuple(s for size in range(1, order + 1) for s in itertools.combinations(range(k), size))


def mixture(x: int, n: int, alpha: float) -> tuple[float, float]:
    """Interval of a probability that is true at all n at once, so that it may be looked at whenever one likes: the
    q at which a Beta(1/2, 1/2) mixture of likelihoods stays below 1 / alpha times that of q."""
    if not 0 <= x <= n or n < 1:
        raise ValueError(f"{x} of {n} is no count")
    prior = special.betaln(0.5, 0.5)
    limit = special.betaln(0.5 + x, 0.5 + n - x) - prior + np.log(alpha)

    def excess(q: float) -> float:
        return float(limit - special.xlogy(x, q) - special.xlog1py(n - x, -q))

    middle, edge = x / n, 1e-12
    low = 0.0 if x == 0 or excess(edge) < 0 else float(optimize.brentq(excess, edge, middle))
    high = 1.0 if x == n or excess(1 - edge) < 0 else float(optimize.brentq(excess, middle, 1 - edge))
    return low, high


def box(
    failures: ArrayLike,
    subsets: Family,
    alpha: float,
    bounds: Bounds = clopper_pearson,
    weights: Sequence[float] | None = None,
) -> Box:
    """The box of a family from runs, with confidence 1 - alpha for all of it (Bonferroni).

    failures: bool, shape (runs, k). weights: shares of alpha by subset, which must be fixed before the data are seen;
    equal ones when None.
    """
    x = np.asarray(failures, dtype=bool)
    if x.ndim != 2 or not len(x):
        raise ValueError("failures must be of shape (runs, links), with at least one run")
    shares = np.full(len(subsets), 1.0) if weights is None else np.asarray(weights, dtype=float)
    shares = alpha * shares / shares.sum()
    counts = [int(x[:, list(s)].all(axis=1).sum()) for s in subsets]
    edges = np.array([bounds(c, len(x), float(share)) for c, share in zip(counts, shares, strict=True)])
    return Box(x.shape[1], subsets, edges[:, 0], edges[:, 1])


def box_of_joint(joint: ArrayLike, k: int, subsets: Family) -> Box:
    """The box of no width of a known joint: joint[pattern] is its probability, bit i of the pattern for link i."""
    p = np.asarray(joint, dtype=float)
    moments = held(patterns(k), subsets) @ p
    return Box(k, subsets, moments, moments)


def patterns(k: int) -> NDArray[np.bool_]:
    """All outcomes of k links, shape (2^k, k): bit i of the row's number says whether link i failed."""
    return np.asarray((np.arange(2**k)[:, None] >> np.arange(k)) & 1, dtype=bool)


def held(outcomes: NDArray[np.bool_], subsets: Family) -> Array:
    """Which outcomes have all links of a subset failed: shape (subsets, outcomes)."""
    return np.array([outcomes[:, list(s)].all(axis=1) for s in subsets], dtype=float).reshape(
        len(subsets), len(outcomes)
    )
