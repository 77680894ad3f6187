"""The entries beside the guaranteed intervals: units, invalid trials as worst case, reasons in place of numbers."""

from __future__ import annotations

import numpy as np
import pytest

from harness.report import precision
from harness.report.evidence import Scale, Series, rate
from harness.stats.intervals import Interval

EFFECTS = Scale("duplicate_effect_rate", lambda row: row.duplicated, 11.0, 1.0)
TOKENS = Scale("work_destroyed_per_fault", lambda row: row.work.destroyed, 60_000.0, 30_000.0)


def arm(every: int, n: int = 240, harm: float = 5 / 11) -> Series:
    scores = np.where(np.arange(n) % every == 0, harm, 0.0)
    return Series(scores, scores, np.ones(n, dtype=bool))


def spoiled(data: Series, trials: int) -> Series:
    low, high, valid = data.low.copy(), data.high.copy(), data.valid.copy()
    low[:trials], high[:trials], valid[:trials] = 0.0, 1.0, False
    return Series(low, high, valid)


def test_an_arm() -> None:
    data = arm(6)
    guaranteed = rate(data, 0.05)
    assert isinstance(guaranteed, Interval)
    found = precision.rate_star(data, 1.0, 0.05, fixed_size=True)
    hull = precision.rate_hull(data, EFFECTS, 0.05)
    assert found["estimate"] == hull["estimate"] == pytest.approx(5 / 66)
    assert guaranteed.low < found["ci_low"] < hull["ci_low"] < 5 / 66
    assert 5 / 66 < hull["ci_high"] < found["ci_high"] < guaranteed.high


def test_units() -> None:
    data = arm(6)
    score, tokens = (precision.rate_star(data, unit, 0.05, fixed_size=True) for unit in (1.0, 30_000.0))
    assert tokens == pytest.approx({key: 30_000 * value for key, value in score.items()})
    assert precision.rate_hull(data, TOKENS, 0.05)["estimate"] == pytest.approx(30_000 * 5 / 66)


def test_invalid_trials_widen_both_sides() -> None:
    clean, dirty = arm(6), spoiled(arm(6), 12)
    for make in (
        lambda data: precision.rate_star(data, 1.0, 0.05, fixed_size=True),
        lambda data: precision.rate_hull(data, EFFECTS, 0.05),
        lambda data: precision.difference_star(data, arm(60), 1.0, 0.05, fixed_size=True),
        lambda data: precision.difference_hull(data, arm(60), EFFECTS, 0.05),
    ):
        assert make(dirty)["ci_low"] < make(clean)["ci_low"]
        assert make(dirty)["ci_high"] > make(clean)["ci_high"]


def test_a_comparison() -> None:
    control, treatment = arm(3, n=600), arm(60, n=600)
    star = precision.difference_star(control, treatment, 1.0, 0.05, fixed_size=True)
    hull = precision.difference_hull(control, treatment, EFFECTS, 0.05)
    truth = 5 / 11 * (1 / 3 - 1 / 60)
    assert star["estimate"] == hull["estimate"] == pytest.approx(truth)
    assert star["ci_low"] < hull["ci_low"] < truth < hull["ci_high"] < star["ci_high"]
    found = precision.ratio(control, treatment, 0.05)
    assert found["estimate"] == pytest.approx(1 / 20)
    assert 0.05 < found["upper"] < 0.5
    assert precision.moved(control, treatment) == {"improved": 190, "worsened": 0, "tied": 410}
    worse = precision.ratio(control, spoiled(treatment, 30), 0.05)
    assert worse["upper"] > found["upper"]


def test_reasons_in_place_of_numbers() -> None:
    data, none = arm(6), Series(np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool))
    assert "lets its data end it" in precision.rate_star(data, 1.0, 0.05, fixed_size=False)["not_applicable"]
    assert precision.rate_star(none, 1.0, 0.05, fixed_size=True) == {"not_applicable": "no trial"}
    assert precision.ratio(none, none, 0.05) == {"not_applicable": "no trial"}
    assert precision.rate_hull(spoiled(arm(6), 240), EFFECTS, 0.05) == {"not_applicable": "no valid trial"}
    assert "below 200" in precision.rate_hull(arm(6, n=60), EFFECTS, 0.05)["not_applicable"]
    found = precision.ratio(arm(500), arm(500), 0.05)
    assert "no bound below 1" in found["upper"]["not_applicable"]
    harmless = precision.ratio(Series(np.zeros(5), np.zeros(5), np.ones(5, dtype=bool)), arm(6, n=5), 0.05)
    assert harmless["estimate"] == {"not_applicable": "the control did no harm"}
    assert precision.moved(none, none)["tied"] == {"not_applicable": "no trial"}


def test_all_that_is_shown_beside_an_interval() -> None:
    one = precision.beside_rate(arm(6), TOKENS, 0.05, fixed_size=True)
    assert set(one) == {"star", "hull"}
    assert one["star"]["estimate"] == one["hull"]["estimate"]
    two = precision.beside_difference(arm(3), arm(60), TOKENS, 0.05, fixed_size=False)
    assert set(two) == {"star", "hull", "ratio", "improved", "worsened", "tied"}
    assert "not_applicable" in two["star"]
    assert set(two["ratio"]) == {"estimate", "upper"}
