"""Guaranteed intervals keep their coverage on both sides where usual ones do not, at 20, 50 and 200 pairs."""

from __future__ import annotations

import numpy as np
import pytest
from statbench import most

from harness.stats.asymptotic import delta_t
from tests.characteristics.coverage import DIFFERENCES, RATES, Case, interval, mixture, starred

REPLICATIONS = 1000
SIZES = [20, 50, 200]
SIDE = most(0.025, REPLICATIONS)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("case", RATES, ids=lambda case: case.name)
def test_rates(case: Case, n: int) -> None:
    for method in (mixture, starred):
        found = method(case, n, REPLICATIONS, 30)
        assert found.above <= SIDE, method.__name__
        assert found.below <= SIDE, method.__name__


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("case", DIFFERENCES, ids=lambda case: case.name)
def test_differences(case: Case, n: int) -> None:
    for method in (mixture, starred):
        found = method(case, n, REPLICATIONS, 31, floor=-1.0)
        assert found.above <= SIDE, method.__name__
        assert found.below <= SIDE, method.__name__


def test_the_usual_interval_fails_the_same_test() -> None:
    bursts = next(case for case in RATES if case.name == "bursts 1%")
    assert interval(bursts, 50, REPLICATIONS, 30, delta_t).below > 5 * SIDE


@pytest.mark.parametrize("case", [*RATES, *DIFFERENCES], ids=lambda case: case.name)
def test_cases_have_the_mean_that_they_state(case: Case) -> None:
    scores = case.draw(np.random.default_rng(32), (400, 500))
    assert scores.mean() == pytest.approx(case.mean, abs=5 * scores.std() / np.sqrt(scores.size))
