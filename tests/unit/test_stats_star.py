"""STaR intervals: bets by hand, agreement of the bound with the test that it inverts, narrower than the mixture."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.stats import intervals, star
from harness.stats.scenarios import duplicates


def test_capital_after_two_pairs_by_hand() -> None:
    g, prior, goal = np.array([[0.2], [-0.1]]), 0.01, np.log(20)
    first = np.sqrt(2 * goal * 5 / (5 * prior * 2))
    assert first > 0.9 / 0.5  # more than may be staked
    capital = np.log1p(0.9 / 0.5 * 0.2)
    second = min(np.sqrt(2 * (goal - capital) * 6 / ((5 * prior + 0.2**2) * 1)), 0.9 / 0.5)
    capital += np.log1p(-second * 0.1)
    assert star.log_e_star(g, 0.5, 0.05, prior) == pytest.approx([capital])


def test_who_is_there_bets_no_more() -> None:
    rising = np.full((40, 1), 0.5)
    done = star.log_e_star(np.vstack([rising, -0.5 * np.ones((10, 1))]), 0.5, 0.05, 0.01)
    assert done[0] >= np.log(20)  # the losses at the end are not bet upon


def test_fair_games_are_called_unfair_no_more_often_than_allowed() -> None:
    rng = np.random.default_rng(1)
    g = rng.choice([-0.1, 0.9], (100, 4000), p=[0.9, 0.1])
    assert np.mean(star.log_e_star(g, 0.1, 0.05, 0.09) >= np.log(20)) <= 0.05
    assert np.exp(star.log_e_star(g, 0.1, 0.05, 0.09)).mean() == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("n", [20, 60])
def test_a_bound_misses_a_value_exactly_if_it_is_rejected(n: int) -> None:
    rng, truth, ones = np.random.default_rng(n), 0.05, np.ones(n)
    order = star.shuffles(n)
    for scores in duplicates(rng, truth, (40, n), "med", 12):
        g = scores[order] - truth
        prior = star.RATE_VARIANCE * truth * (1 - truth)
        above, below = (
            star.averaged(star.log_e_star(side, b, 0.2, prior)) >= np.log(5)
            for side, b in ((g, truth), (-g, 1 - truth))
        )
        assert (star.rate_lower(scores, ones, 1.0, 0.2) > truth) == above
        assert (star.rate_upper(scores, ones, 1.0, 0.2) < truth) == below


def test_bounds_are_as_fine_as_promised() -> None:
    scores = duplicates(np.random.default_rng(2), 0.05, (200,), "med", 12)
    ones, high = np.ones(200), star.rate_upper(scores, np.ones(200), 1.0, 0.025)
    prior = star.RATE_VARIANCE * high * (1 - high)
    order = star.shuffles(200)
    assert star.averaged(star.log_e_star(high - scores[order], 1 - high, 0.025, prior)) >= np.log(40)
    inner = high - 1e-4
    prior = star.RATE_VARIANCE * inner * (1 - inner)
    assert star.averaged(star.log_e_star(inner - scores[order], 1 - inner, 0.025, prior)) < np.log(40)
    assert star.rate_interval(scores, ones, 1.0) == star.rate_interval(scores, ones, 1.0)


@pytest.mark.parametrize("clustering", ["low", "med", "high"])
def test_narrower_than_the_mixture(clustering: str) -> None:
    rng, ones = np.random.default_rng(3), np.ones(200)
    drawn = duplicates(rng, 0.05, (6, 200), clustering, 12)  # type: ignore[arg-type]
    width = {
        module: np.mean([(i := module.rate_interval(x, ones, 1.0)).high - i.low for x in drawn])
        for module in (star, intervals)
    }
    assert width[star] < 0.9 * width[intervals]


def test_a_difference_is_narrower_too() -> None:
    rng, ones = np.random.default_rng(4), np.ones(200)
    excess = duplicates(rng, 0.05, (200,), "med", 12) - duplicates(rng, 0.01, (200,), "med", 12)
    fixed, any_time = star.difference_interval(excess, ones, 1.0), intervals.difference_interval(excess, ones, 1.0)
    assert fixed.high - fixed.low < 0.9 * (any_time.high - any_time.low)
    assert fixed.estimate == any_time.estimate


def test_units_do_not_matter() -> None:
    scores = duplicates(np.random.default_rng(5), 0.1, (50,), "med", 11)
    counted = star.rate_interval(scores * 11, np.full(50, 11), 11)
    shared = star.rate_interval(scores, np.ones(50), 1.0)
    assert (counted.low, counted.high) == pytest.approx((shared.low, shared.high), abs=1e-6)
    tripled = star.rate_interval(3 * scores, np.ones(50), 1.0, cap=3.0)
    assert (tripled.low, tripled.high) == pytest.approx((3 * shared.low, 3 * shared.high), abs=1e-6)


def test_without_events_and_with_nothing_else() -> None:
    ones = np.ones(100)
    nothing, full = star.rate_interval(np.zeros(100), ones, 1.0), star.rate_interval(ones, ones, 1.0)
    assert nothing.estimate == nothing.low == 0.0
    assert 1 - 0.025 ** (1 / 100) < nothing.high < 0.06  # no method can do better than the first of these
    assert (full.estimate, full.high) == (1.0, 1.0)
    assert (full.low, nothing.high) == pytest.approx((1 - nothing.high, 1 - full.low), abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), min_size=1, max_size=30))
def test_swapping_the_arms_mirrors_the_difference(pairs: list[tuple[int, int]]) -> None:
    excess, base = np.array([a - b for a, b in pairs], dtype=float), np.full(len(pairs), 11)
    here, there = star.difference_interval(excess, base, 11), star.difference_interval(-excess, base, 11)
    assert (here.low, here.high) == pytest.approx((-there.high, -there.low), abs=1e-9)
    assert -1 <= here.low <= here.estimate <= here.high <= 1


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="non-empty"):
        star.rate_lower([], [], 1.0, 0.05)
    with pytest.raises(ValueError, match="harm must lie"):
        star.rate_upper([2.0], [1.0], 1.0, 0.05)
