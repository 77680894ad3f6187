"""The gate's own errors, by simulation with the registered rates and weights: false GO, false STOP, wrong names.

Harm sits exactly at the threshold, where both answers are wrong and most likely: on both primaries, on one of them, and
all of it in a single fault class.
"""

from __future__ import annotations

from collections import Counter

import pytest
from statbench import most, registered

from tests.characteristics.gate import EVEN, NARROW, Cell, means, simulate

DESIGN = registered()
REPLICATIONS = 500

WORST = [
    Cell(1.0, 1.0, "med"),
    Cell(1.0, 0.0, "med"),
    Cell(0.0, 1.0, "med"),
    Cell(1.0, 1.0, "high"),
    Cell(1.0, 0.0, "high"),
    Cell(1.0, 0.0, "med", "hung_check"),
    Cell(1.0, 0.0, "high", "provider_interruption"),
    Cell(0.0, 1.0, "high", "provider_interruption"),
    Cell(1.0, 1.0, "high", "nondeterminism"),
    Cell(1.0, 1.0, "high", NARROW),
]


@pytest.mark.parametrize("cell", WORST, ids=str)
def test_errors_stay_at_their_registered_rates(cell: Cell) -> None:
    runs = simulate(cell, DESIGN, REPLICATIONS, seed=20)
    wrong = Counter(run.outcome for run in runs if run.false)
    assert wrong["GO"] <= most(DESIGN.kill.alpha_go, REPLICATIONS)
    assert wrong["STOP"] <= most(DESIGN.kill.alpha_stop, REPLICATIONS)
    assert sum(run.named_wrongly for run in runs) <= most(DESIGN.kill.alpha_narrow, REPLICATIONS)


def test_at_the_threshold_go_and_stop_count_as_errors() -> None:
    runs = simulate(Cell(1.0, 0.0, "high"), DESIGN, 100, seed=20)
    assert all(run.false == (run.outcome in ("GO", "STOP")) for run in runs)


def test_peeking_fails_the_same_test() -> None:
    runs = simulate(Cell(1.0, 1.0, "med"), DESIGN, 200, seed=21)
    naive = Counter(run.naive for run in runs)
    assert naive["GO"] > most(DESIGN.kill.alpha_go, 200)
    assert naive["STOP"] > most(DESIGN.kill.alpha_stop, 200)


@pytest.mark.parametrize(
    ("cell", "expected", "latest"),
    [
        (Cell(0.0, 0.0, "med"), "STOP", 230),
        (Cell(0.1, 0.2, "med"), "STOP", 600),
        (Cell(5.0, 0.5, "med"), "GO", 300),
        (Cell(0.1, 3.0, "med"), "GO", 300),
    ],
)
def test_clear_truths_are_found_in_time(cell: Cell, expected: str, latest: int) -> None:
    runs = simulate(cell, DESIGN, 100, seed=22)
    assert sum(run.outcome == expected and run.decided_at <= latest for run in runs) >= 95


def test_harm_that_no_class_can_do_is_told_apart() -> None:
    found = means(Cell(1.0, 0.0, "med", "staging_crash"), DESIGN)
    assert isinstance(found, str)
    assert "even full harm" in found
    with pytest.raises(ValueError, match="even full harm"):
        simulate(Cell(1.0, 0.0, "med", "staging_crash"), DESIGN, 1, seed=1)


def test_means_add_up_to_the_threshold() -> None:
    rates = [c.rate for c in DESIGN.kill.classes]
    for spread in (EVEN, "nondeterminism"):
        found = means(Cell(1.0, 1.0, "med", spread), DESIGN)
        assert not isinstance(found, str)
        assert sum(rates * found[0]) == pytest.approx(DESIGN.tau_duplicates)
        assert sum(rates * found[1]) == pytest.approx(DESIGN.tau_work)
