"""Errors of the claims about the treatment, by simulation at the worst points, and the tables that are published."""

from __future__ import annotations

import pytest
from statbench import most, registered

from tests.characteristics import comparison, coverage, gate, tables

DESIGN = registered()
REPLICATIONS, PAIRS = 300, 800


@pytest.mark.parametrize("clustering", ["med", "high"])
@pytest.mark.parametrize("other", [0.5, 0.05, 1.5])
def test_a_ratio_at_the_registered_one_is_rarely_called_below_it(clustering: str, other: float) -> None:
    cell = comparison.Cell(0.07, 0.05, 0.5, other, clustering)  # type: ignore[arg-type]
    runs = comparison.simulate(cell, DESIGN, PAIRS, REPLICATIONS, seed=50)
    assert sum(run.better_wrongly for run in runs) <= most(DESIGN.alpha_superiority, REPLICATIONS)


def test_harm_at_a_margin_is_rarely_called_within_it() -> None:
    cell = comparison.Cell(0.07, 0.05, 0.1, 0.1, "med", lost=1.0, failed=1.0)
    runs = comparison.simulate(cell, DESIGN, PAIRS, REPLICATIONS, seed=51)
    assert sum(run.loss for run in runs) <= most(DESIGN.alpha_non_inferiority, REPLICATIONS)
    assert sum(run.success for run in runs) <= most(DESIGN.alpha_non_inferiority, REPLICATIONS)
    assert not any(run.claimed for run in runs if not (run.loss and run.success))


def test_a_tenth_of_the_harm_is_found() -> None:
    runs = comparison.simulate(comparison.Cell(0.07, 0.05, 0.1, 0.1, "med"), DESIGN, PAIRS, 60, seed=52)
    assert sum(run.claimed for run in runs) >= 57


def test_the_mixture_holds_where_the_data_end_the_run() -> None:
    found = coverage.stopped(gate.Cell(3.0, 0.5, "med"), DESIGN, 80, seed=53)
    assert found["mixture"].above <= most(0.025, 80)
    assert found["mixture"].below <= most(0.025, 80)
    assert found["STaR"].replications == 80


def test_rows_and_page_say_what_was_simulated() -> None:
    cell = gate.Cell(5.0, 0.5, "med")
    row = tables.gate_row(cell, gate.simulate(cell, DESIGN, 20, seed=54))
    assert (row["GO"], row["false_GO"], row["peeking_GO"][0], row["replications"]) == (
        "1.0000",
        "0.0000",
        row["GO"][0],
        "20",
    )
    assert 60 <= int(row["pairs_median"]) <= int(row["pairs_90"]) <= 400
    equal = comparison.Cell(0.0, 0.0, 1.0, 1.0, "med")
    compared = tables.comparison_row(equal, comparison.simulate(equal, DESIGN, 400, 5, seed=55))
    assert (compared["superiority"], compared["loss_within_margin"]) == ("0.0000", "1.0000")
    covered = tables.coverage_row("mixture", "none", 20, coverage.Misses(1, 2, 100))
    assert (covered["coverage"], covered["truth_above_interval"]) == ("0.9700", "0.0200")
    stopped = tables.stopped_rows(
        cell, [{"mixture": coverage.Misses(1, 0, 10)}, {"mixture": coverage.Misses(0, 0, 10)}]
    )
    assert stopped[0]["coverage"] == "0.9500"
    found = {"gate": [row], "comparison": [compared], "coverage": [covered], "stopped": stopped}
    text = tables.page(found, "registration-1", DESIGN, 20, 54)
    assert "registration registration-1, seed 54, 20 simulated runs" in text
    assert "| 5 | 0.5 | med | all classes alike | 1.0000 |" in text
