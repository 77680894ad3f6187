"""Hulls keep their coverage at 200 pairs, where each of their parts alone loses it somewhere."""

from __future__ import annotations

import pytest
from statbench import most

from harness.stats.asymptotic import delta_t, hull_difference, hull_rate
from tests.characteristics.coverage import DIFFERENCES, RATES, Case, interval

REPLICATIONS = 200
MISSES = most(0.05, REPLICATIONS)


@pytest.mark.parametrize("case", RATES, ids=lambda case: case.name)
def test_rates(case: Case) -> None:
    found = interval(case, 200, REPLICATIONS, 40, hull_rate)
    assert found.above + found.below <= MISSES


@pytest.mark.parametrize("case", DIFFERENCES, ids=lambda case: case.name)
def test_differences(case: Case) -> None:
    found = interval(case, 200, REPLICATIONS, 41, hull_difference)
    assert found.above + found.below <= MISSES


def test_a_part_alone_fails_the_same_test() -> None:
    rare = next(case for case in RATES if case.name == "all or nothing 1%")
    found = interval(rare, 200, 1000, 40, delta_t)
    assert found.above + found.below > most(0.05, 1000)
