"""Intervals from the variance between pairs: values by hand, edges without variance, refusals; never NaN."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from harness.stats.asymptotic import (
    bootstrap_t,
    clopper_pearson,
    delta_t,
    hull_difference,
    hull_rate,
    korn_graubard,
    linearised,
)
from harness.stats.intervals import Interval
from harness.stats.scenarios import duplicates


def test_linearised_error_by_hand() -> None:
    found = linearised([1, 0, 2], [6, 12, 20])
    theta = 3 / 38
    z = np.array([1 - theta * 6, -theta * 12, 2 - theta * 20])
    assert found.estimate == pytest.approx(theta)
    assert found.se == pytest.approx(np.sqrt(3 / 2 * (z @ z)) / 38)
    with pytest.raises(ValueError, match="two of them"):
        linearised([1], [2])


def test_with_equal_denominators_it_is_the_error_of_a_mean() -> None:
    scores = np.array([0.1, 0.4, 0.0, 0.3])
    assert linearised(scores, np.ones(4)).se == pytest.approx(scores.std(ddof=1) / 2)
    found = delta_t(scores, np.ones(4))
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, 3, scores.mean(), scores.std(ddof=1) / 2))


def test_clopper_pearson_against_known_values() -> None:
    assert clopper_pearson(182, 200) == pytest.approx((0.8614, 0.9456), abs=2e-4)
    assert clopper_pearson(11, 18) == pytest.approx((0.357, 0.827), abs=5e-4)
    assert clopper_pearson(6, 44) == pytest.approx((0.052, 0.274), abs=5e-4)
    assert clopper_pearson(0, 10) == pytest.approx((0.0, 1 - 0.025 ** (1 / 10)))
    assert clopper_pearson(10, 10) == pytest.approx((0.025 ** (1 / 10), 1.0))
    exact = stats.binomtest(7, 30).proportion_ci(0.95)
    assert clopper_pearson(7, 30) == pytest.approx((exact.low, exact.high))
    with pytest.raises(ValueError, match="events in"):
        clopper_pearson(3, 2)


def test_korn_graubard_counts_trials_where_harm_is_all_or_nothing() -> None:
    harm = np.r_[np.full(10, 12.0), np.zeros(190)]
    found = korn_graubard(harm, np.full(200, 12.0))
    trials = clopper_pearson(10, 200)
    assert (found.low, found.high) == pytest.approx(trials, rel=0.03)
    spread = korn_graubard(np.r_[np.ones(120), np.zeros(80)], np.full(200, 12.0))
    naive = clopper_pearson(120, 2400)
    assert (spread.low, spread.high) == pytest.approx(naive, rel=0.03)


def test_without_events_the_bound_is_that_of_as_many_trials() -> None:
    nothing = np.zeros(200)
    assert korn_graubard(nothing, np.full(200, 11.0)).high == pytest.approx(1 - 0.025 ** (1 / 200))
    assert hull_rate(nothing, np.full(200, 11.0)) == korn_graubard(nothing, np.full(200, 11.0))
    assert np.isinf(bootstrap_t(nothing, np.full(200, 11.0)).high)
    found = hull_difference(nothing, np.full(200, 11.0))
    assert isinstance(found, Interval)
    assert (found.low, found.high) == pytest.approx((-(1 - 0.025 ** (1 / 200)), 1 - 0.025 ** (1 / 200)))


def test_three_harmful_trials_leave_the_bootstrap_without_an_upper_bound() -> None:
    harm = np.r_[np.full(3, 12.0), np.zeros(197)]
    boot = bootstrap_t(harm, np.full(200, 12.0))
    assert boot.high == np.inf
    found = hull_rate(harm, np.full(200, 12.0))
    assert isinstance(found, Interval)
    assert found.high >= clopper_pearson(3, 200)[1]
    assert found.high == pytest.approx(clopper_pearson(3, 200)[1], rel=0.01)
    ten = bootstrap_t(np.r_[np.full(10, 12.0), np.zeros(190)], np.full(200, 12.0))
    assert 0 < ten.low < 0.05 < ten.high < 0.2


def test_full_harm_mirrors_no_harm() -> None:
    base = np.full(200, 12.0)
    for harmed in (0, 3, 40):
        harm = np.r_[np.full(harmed, 12.0), np.zeros(200 - harmed)]
        here, there = hull_rate(harm, base), hull_rate(base - harm, base)
        assert isinstance(here, Interval)
        assert isinstance(there, Interval)
        assert (there.low, there.high) == pytest.approx((1 - here.high, 1 - here.low), abs=0.01)


def test_a_difference_that_is_the_same_everywhere_is_no_certainty() -> None:
    found = hull_difference(np.full(200, 3.0), np.full(200, 11.0))
    assert isinstance(found, Interval)
    assert found.low < 0 < 3 / 11 < found.high


def test_the_hull_holds_both_of_its_parts() -> None:
    scores = duplicates(np.random.default_rng(6), 0.05, (300,), "med", 12) * 12
    base = np.full(300, 12.0)
    hull, parts = hull_rate(scores, base), (korn_graubard(scores, base), bootstrap_t(scores, base))
    assert isinstance(hull, Interval)
    assert hull.low == min(part.low for part in parts)
    assert hull.high == max(part.high for part in parts)
    assert hull == hull_rate(scores, base)


def test_below_two_hundred_pairs_the_reason_is_given() -> None:
    for make in (hull_rate, hull_difference):
        assert make(np.zeros(199), np.ones(199)) == (
            "199 pairs; below 200 no interval from the variance between pairs can be trusted"
        )
        assert isinstance(make(np.zeros(0), np.zeros(0)), str)
        assert isinstance(make(np.zeros(200), np.ones(200)), Interval)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 12))
def test_never_a_number_that_is_none(harmed: int, other: int, size: int) -> None:
    first = np.where(np.arange(200) < harmed, size, 0.0)
    second = np.where(np.arange(200) >= 200 - other, 12.0, 0.0)
    base = np.full(200, 12.0)
    for found in (hull_rate(first, base), hull_rate(second, base), hull_difference(first - second, base)):
        assert isinstance(found, Interval)
        assert -1 <= found.low <= found.estimate + 1e-12
        assert found.estimate - 1e-12 <= found.high <= 1
