"""Ratios with bounds, counts of pairs, and procedures for many claims at once."""

from __future__ import annotations

import numpy as np
import pytest

from harness.stats.betting import NEVER, first_look, log_e_mix, log_mean, peak
from harness.stats.claims import Contrast, superiority
from harness.stats.effect_size import Ratio, harm_ratio, pair_counts
from harness.stats.holm import closed_peaks, e_holm
from harness.stats.scenarios import duplicates


def arms(n: int, ratio: float, seed: int = 1) -> Contrast:
    rng = np.random.default_rng(seed)
    return Contrast("P1", duplicates(rng, 0.05, (n,), "med", 12), duplicates(rng, 0.05 * ratio, (n,), "med", 12))


def test_the_bound_is_where_superiority_begins() -> None:
    contrast = arms(800, 0.1)
    found = harm_ratio(contrast)
    assert found.estimate == pytest.approx(contrast.treatment.sum() / contrast.control.sum())
    assert isinstance(found.upper, float)
    assert 0.1 < found.upper < 0.6
    assert superiority([contrast], found.upper + 1e-6, 0.05)[0].shown
    assert not superiority([contrast], found.upper - 1e-6, 0.05)[0].shown


def test_more_pairs_bind_the_ratio_closer() -> None:
    few, many = harm_ratio(arms(400, 0.1)), harm_ratio(arms(1600, 0.1))
    assert isinstance(few.upper, float)
    assert isinstance(many.upper, float)
    assert many.upper < few.upper


def test_without_a_bound_the_reason_is_given() -> None:
    assert "no bound below 1" in str(harm_ratio(arms(40, 0.1)).upper)
    assert "no bound below 1" in str(harm_ratio(arms(800, 1.0)).upper)
    assert harm_ratio(Contrast("P1", np.zeros(5), np.ones(5))) == Ratio(
        "the control did no harm", "the control did no harm, so nothing can be below it"
    )
    assert isinstance(harm_ratio(Contrast("P1", np.empty(0), np.empty(0))).estimate, str)


def test_the_bound_is_above_the_truth_as_often_as_promised() -> None:
    missed = 0
    for seed in range(200):
        upper = harm_ratio(arms(300, 0.3, seed)).upper
        missed += isinstance(upper, float) and upper < 0.3
    assert missed <= 0.05 * 200


def test_pairs_are_counted() -> None:
    found = pair_counts(Contrast("P1", np.array([0.5, 0.0, 0.3, 0.1 + 0.2]), np.array([0.1, 0.2, 0.3, 0.3])))
    assert (found.improved, found.worsened, found.tied) == (1, 1, 2)


def test_holm_asks_less_of_each_next_claim_and_ends_at_the_first_that_falls_short() -> None:
    logs = {name: float(np.log(e)) for name, e in {"a": 301.0, "b": 199.0, "c": 150.0, "d": 1.0}.items()}
    assert e_holm(logs, 0.01) == ()
    assert e_holm({"a": np.log(301), "b": np.log(199), "c": np.log(150), "d": np.log(401)}, 0.01) == ("d", "a")
    assert e_holm({"a": np.log(301), "b": np.log(201), "c": np.log(101), "d": np.log(401)}, 0.01) == tuple("dabc")
    assert e_holm({}, 0.01) == ()


def test_closed_test_of_three_asks_for_every_pair_of_them() -> None:
    """Own evidence and that of all are not enough: with two false claims in three, the third would carry both."""
    strong, weak = np.log([1000.0]), np.log([25.0])
    none = np.log([1.0])
    found = closed_peaks([strong, weak, none])
    assert np.exp(found[1]) == pytest.approx((25 + 1) / 2)
    assert np.exp(found[0]) == pytest.approx(min(1000, 1025 / 2, 1001 / 2, 1026 / 3))
    assert found[2] == pytest.approx(0.0)


def test_closed_test_of_two_is_own_evidence_and_that_of_both() -> None:
    rng = np.random.default_rng(2)
    paths = [log_e_mix(rng.normal(0.02, 0.2, 100).clip(-1, 1), 1.0) for _ in range(2)]
    both = peak(log_mean(*paths))
    assert closed_peaks(paths) == tuple(min(peak(path), both) for path in paths)


def test_first_look() -> None:
    path = np.log([1.0, 30.0, 2.0, 2.0])
    assert first_look(path, 0.05) == 2
    assert first_look(path, 0.05, pairs_min=4) == 4
    assert first_look(path, 0.01) == NEVER
    assert first_look(np.empty(0), 0.05) == NEVER


def test_many_runs_at_once_are_the_same_as_one_by_one() -> None:
    g = np.random.default_rng(3).uniform(-0.5, 0.5, (3, 40))
    assert np.array_equal(log_e_mix(g, 0.5), np.stack([log_e_mix(row, 0.5) for row in g]))
