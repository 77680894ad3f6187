"""Lower bounds for P(all k links of a chain hold) that assume nothing about how the links depend on each other.

Why a linear program: what was measured of single links and of pairs of them (`harness.stats.moments`) leaves many joint
distributions possible. The worst that agrees with all measurements is what can be promised; a product of rates is not.

The maximum of several bounds on one box is a bound again.

Sources: Boole; Hunter (1976) and Worsley (1982) for the spanning tree; Hailperin (1965) and Prekopa (1988) for bounds
by linear programming.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, sparse

from harness.stats.asymptotic import clopper_pearson
from harness.stats.betting import Array
from harness.stats.moments import Bounds, Box, held, patterns

EXACT_MAX = 12
"""Links up to which the program over all 2^k outcomes is solved as it is."""

LINKS_MAX = 26
"""Links up to which columns are generated: each pricing looks at 2^k outcomes."""

_SLACK = 1e-6  # of the solver's feasibility; taken off every bound that it gives
_TOLERANCE = 1e-9

_CLOSED = 1e-5
"""Reduced cost below which no outcome is worth adding any more."""

_COLUMNS, _ROWS = 60, 1024
"""Outcomes that are added in one round, and rows of outcomes that are in memory at a time."""


# --- bounds in closed form ----------------------------------------------------------------------------------------


def boole(it: Box) -> float:
    """1 - sum of the most that each link can fail."""
    return max(0.0, 1.0 - sum(it.of((i,))[1] for i in range(it.k)))


def hunter_worsley(it: Box) -> float:
    """Boole's bound and what a spanning tree of pairs that fail together at least gives back."""
    together = np.array(
        [[it.of((min(i, j), max(i, j)))[0] if i != j else 0.0 for j in range(it.k)] for i in range(it.k)]
    )
    tree, reach = {0}, together[0].copy()
    given_back = 0.0
    while len(tree) < it.k:
        nearest = max((j for j in range(it.k) if j not in tree), key=lambda j: reach[j])
        given_back += float(reach[nearest])
        tree.add(nearest)
        reach = np.maximum(reach, together[nearest])
    return max(0.0, 1.0 - sum(it.of((i,))[1] for i in range(it.k)) + given_back)


def direct(clean: int, runs: int, alpha: float, bounds: Bounds = clopper_pearson) -> float:
    """Lower bound, one-sided at alpha, of P(all hold) from chains that were run end to end."""
    return bounds(clean, runs, 2 * alpha)[0]


def reduced(failed_links: ArrayLike, k: int) -> Array:
    """h(N) = N (k + 1 - N) / k of the number N of failed links of each run, shape (runs,), from 0 to `reduced_max(k)`.

    P(any fails) <= E[h(N)], because h(0) = 0 and h(N) >= 1 from there on: one bounded mean instead of k (k + 1) / 2
    moments. A lower bound of P(all hold) is 1 less an upper bound of that mean.
    """
    n = np.asarray(failed_links, dtype=float)
    return np.asarray(n * (k + 1 - n) / k)


def reduced_max(k: int) -> float:
    """The largest value of `reduced`."""
    return float(reduced([(k + 1) // 2], k)[0])


# --- linear programs ----------------------------------------------------------------------------------------------


def exact(it: Box) -> float:
    """The least P(all hold) over every joint of the box, k <= EXACT_MAX. Sharp for what the box says; nothing above it
    can be promised. Raises ValueError where k is larger or no joint is in the box."""
    return max(0.0, _over_all(it, 1.0) - _SLACK)


def exact_upper(it: Box) -> float:
    """The greatest P(all hold) over every joint of the box, k <= EXACT_MAX."""
    return min(1.0, -_over_all(it, -1.0) + _SLACK)


def _over_all(it: Box, sense: float) -> float:
    if it.k > EXACT_MAX:
        raise ValueError(f"{it.k} links are too many for all outcomes: at most {EXACT_MAX}")
    outcomes = patterns(it.k)
    objective = np.zeros(len(outcomes))
    objective[0] = sense
    return float(_solve(objective, held(outcomes, it.family), it).fun)


def aggregated(it: Box) -> float:
    """A relaxation with k^2 variables, at most `exact` and sound for any joint: q[i, j] is the probability that link i
    fails and j links fail in all."""
    k = it.k
    cells = np.arange(k * k).reshape(k, k)  # [link, number of failed links - 1]
    rows: list[Array] = []
    most: list[float] = []

    def at_most(row: Array, bound: float) -> None:
        rows.append(row)
        most.append(bound)

    for i in range(k):
        fails, others = np.zeros(k * k), np.zeros(k * k)
        fails[cells[i]] = 1.0
        others[cells[i]] = np.arange(k)
        low, high = it.of((i,))
        at_most(fails, high)
        at_most(-fails, -low)
        pairs = [it.of((min(i, j), max(i, j))) for j in range(k) if j != i]
        at_most(others, sum(high for _, high in pairs))
        at_most(-others, -sum(low for low, _ in pairs))
    number = np.zeros((k, k * k))  # P(N = j) by j - 1
    for j in range(k):
        number[j, cells[:, j]] = 1.0 / (j + 1)
    for i, j in itertools.product(range(k), range(k)):
        row = -number[j].copy()
        row[cells[i, j]] += 1.0
        at_most(row, 0.0)
    at_most(number.sum(axis=0), 1.0)
    done = optimize.linprog(
        -number.sum(axis=0), A_ub=sparse.csr_matrix(np.array(rows)), b_ub=most, bounds=(0, 1), method="highs"
    )
    if done.status != 0:
        raise ValueError(f"no joint is in the box: {done.message}")
    return max(0.0, 1.0 + float(done.fun) - _SLACK)


def generated(it: Box, rounds_max: int = 60) -> float:
    """`exact` for families of single links and pairs, up to LINKS_MAX links, by generating outcomes as they are needed.

    The dual value of each round, corrected by the most negative reduced cost over all 2^k outcomes, is a bound in
    itself, so that the result is sound wherever it stops. Raises ValueError for larger chains and families.
    """
    if it.k > LINKS_MAX or it.order > 2:
        raise ValueError(f"{it.k} links with moments of order {it.order}: at most {LINKS_MAX}, and order 2")
    single = np.eye(it.k, dtype=bool)
    pairs = [single[i] | single[j] for i, j in itertools.combinations(range(it.k), 2)]
    outcomes = np.unique(np.vstack([np.zeros((1, it.k), bool), single, *pairs, np.ones((1, it.k), bool)]), axis=0)
    best = 0.0
    for _ in range(rounds_max):
        objective = (~outcomes.any(axis=1)).astype(float)
        prices, level = _master(objective, held(outcomes, it.family), it)
        least, rounding, wanted = _priced(prices, level, it)
        best = max(best, _dual_value(prices, level, it) + min(least, 0.0) - rounding)
        if least > -_CLOSED:
            break
        outcomes = np.unique(np.vstack([outcomes, wanted]), axis=0)
    return best


def _master(objective: Array, matrix: Array, it: Box) -> tuple[Array, float]:
    """Dual prices of the moments, and of the total, over the outcomes so far. Elastic: where no mix of these outcomes
    is in the box yet, leaving it costs more than anything can be worth."""
    m = len(it.family)
    penalty = np.full(2 * m, 10.0)
    above = sparse.hstack([sparse.csr_matrix(matrix), -sparse.eye(m), sparse.csr_matrix((m, m))])
    below = sparse.hstack([-sparse.csr_matrix(matrix), sparse.csr_matrix((m, m)), -sparse.eye(m)])
    total = np.r_[np.ones(len(objective)), np.zeros(2 * m)][None]
    done = optimize.linprog(
        np.r_[objective, penalty],
        A_ub=sparse.vstack([above, below]).tocsr(),
        b_ub=np.r_[it.high, -it.low],
        A_eq=total,
        b_eq=[1.0],
        bounds=(0, None),
        method="highs",
    )
    if done.status != 0:
        raise ValueError(f"the program was not solved: {done.message}")
    duals = np.asarray(done.ineqlin.marginals, dtype=float)
    return np.minimum(duals, 0.0), float(done.eqlin.marginals[0])


def _dual_value(prices: Array, level: float, it: Box) -> float:
    m = len(it.family)
    return float(prices[:m] @ it.high - prices[m:] @ it.low + level)


def _priced(prices: Array, level: float, it: Box) -> tuple[float, float, NDArray[np.bool_]]:
    """The least reduced cost of all outcomes, how wrong it can be, and outcomes whose cost is the most negative.

    All 2^k are looked at, as pairs of a half of the links and the other half, some rows at a time.
    """
    m, half = len(it.family), it.k // 2
    quadratic = np.zeros((it.k, it.k), np.float32)
    for subset, price in zip(it.family, prices[:m] - prices[m:], strict=True):
        quadratic[subset[0], subset[-1]] += price
    left, right = patterns(half).astype(np.float32), patterns(it.k - half).astype(np.float32)
    first = np.einsum("ni,ij,nj->n", left, quadratic[:half, :half], left)
    second = np.einsum("ni,ij,nj->n", right, quadratic[half:, half:], right)
    between = left @ (quadratic[:half, half:] + quadratic[half:, :half].T)
    least, partner = np.empty(len(left), np.float32), np.empty(len(left), int)
    for start in range(0, len(left), _ROWS):
        rows = slice(start, start + _ROWS)
        costs = -(first[rows, None] + second[None] + between[rows] @ right.T) - np.float32(level)
        if start == 0:
            costs[0, 0] += 1.0  # the one outcome in which all hold
        least[rows], partner[rows] = costs.min(axis=1), costs.argmin(axis=1)
    wanted = np.argsort(least)[:_COLUMNS]
    rounding = 4 * float(np.finfo(np.float32).eps) * (float(np.abs(prices).sum()) + abs(level) + 1.0)
    return float(least.min()), rounding, np.hstack([left[wanted], right[partner[wanted]]]).astype(bool)


def _solve(objective: Array, matrix: Array, it: Box) -> Any:
    moments = sparse.csr_matrix(matrix)
    done = optimize.linprog(
        objective,
        A_ub=sparse.vstack([moments, -moments]).tocsr(),
        b_ub=np.r_[it.high + _TOLERANCE, _TOLERANCE - it.low],
        A_eq=np.ones((1, len(objective))),
        b_eq=[1.0],
        bounds=(0, 1),
        method="highs",
    )
    if done.status != 0:
        raise ValueError(f"no joint is in the box: {done.message}")
    return done


def certificate(it: Box) -> float:
    """The best of these bounds that the size of the chain allows."""
    if it.k <= EXACT_MAX:
        return max(boole(it), exact(it))
    bounds = [boole(it), hunter_worsley(it), aggregated(it)]
    return max([*bounds, generated(it)] if it.k <= LINKS_MAX and it.order <= 2 else bounds)
