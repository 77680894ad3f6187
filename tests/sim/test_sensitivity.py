"""The study of variation: what levels cost which ledger, on a few pairs."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from msgspec.structs import replace
from typer.testing import CliRunner

from harness.commands import sensitivity as command
from harness.console import silent
from harness.core.errors import ConfigError
from harness.sensitivity import Cell, cells, defeated, planned
from harness.sensitivity.figure import figure, short
from harness.sensitivity.runs import rows

EXACT, ATTEMPT, MESH = "arms.sabotage.arms:EXACT_BYTES", "arms.sabotage.arms:ATTEMPT_KEYED", "mesh"
COMPOSED_ANEW = "mesh_without_provider_replay"


@pytest.fixture(scope="module")
def found() -> list[Cell]:
    return cells(planned(["codegen"], (0, 3), 12), 2, silent)


def test_a_ledger_of_exact_bytes_is_defeated_by_other_words_and_not_by_the_same(found: list[Cell]) -> None:
    by = {(cell.arm, cell.level): cell for cell in found}
    assert {cell.trials for cell in found} == {12}
    assert by[EXACT, 0].miss_rate == 0.0
    assert by[EXACT, 3].miss_rate is not None
    assert by[EXACT, 3].miss_rate > 0.5
    assert by[MESH, 3].duplicated < by[EXACT, 3].duplicated
    assert by[ATTEMPT, 0].missed > 0  # a new attempt is another key, whatever the words
    told = {sentence.split(" on ")[0]: sentence for sentence in defeated(found)}
    assert "defeated at L3 (at worst" in told[EXACT]
    assert "defeated at L0, L3" in told[ATTEMPT]


def test_faults_strike_what_a_workload_has() -> None:
    """It has no transport and no registry, towards which nothing can be cut; its pairs stay as many."""
    variants = {v for spec in planned(["idempotent"], (3,), 60) for v in spec.variants if "_" in v}
    cuts = {v.partition("_")[0] for v in variants} & {"transport", "database", "registry"}
    assert cuts == {"database"}
    assert {v.partition("_")[0] for spec in planned(["codegen"], (3,), 60) for v in spec.variants} >= {
        *("transport", "database", "registry")
    }


def test_other_words_defeat_a_ledger_whose_agent_is_not_given_its_old_answers() -> None:
    """From L4 on; where an answer is replayed after a crash, the level is not seen at all."""
    crashes = ("staging_crash", "orchestrator_restart")  # after which an agent is asked again what it had said
    planned_ones = planned(["brief_tree"], (3, 4), 60)
    wanted = [s for s in planned_ones if s.arm in (MESH, COMPOSED_ANEW) and s.fault_class in crashes]
    by = {(cell.arm, cell.level): cell for cell in cells(wanted, 2, silent)}
    assert by[COMPOSED_ANEW, 4].missed > by[COMPOSED_ANEW, 3].missed
    assert by[COMPOSED_ANEW, 4].missed > by[MESH, 4].missed


def test_rates_are_given_where_there_was_an_occasion() -> None:
    cell = Cell(workload="w", level=2, arm="a", trials=3, intended=30, duplicated=3, suppressed=6, pairs=50, merged=5)
    (line,) = rows([cell])
    rates = [line[name] for name in ("duplicate_rate", "miss_rate", "collision_rate", "suppressed_rate")]
    assert rates == [0.1, "", 0.1, 0.2]
    assert defeated([cell]) == ["a on w: takes distinct effects for one at L2"]
    assert defeated([replace(cell, merged=0, asked_again=10, missed=1)]) == [
        "a on w: not defeated at any level that was looked at (at worst 1 of 10 repeated asks not known again)"
    ]
    few, many = replace(cell, merged=0, level=3, duplicated=0), replace(cell, merged=0, level=4, duplicated=5)
    asked = [replace(one, asked_again=100, missed=one.duplicated) for one in (few, many)]  # few misses, many duplicates
    assert defeated(asked) == ["a on w: defeated at L4 (at worst 5 of 100 repeated asks not known again)"]
    assert defeated([replace(cell, merged=0)]) == ["a on w: not defeated at any level that was looked at"]


def test_the_figure_has_a_column_for_each_workload_and_a_gap_where_nothing_happened() -> None:
    held = [
        Cell(workload=w, level=n, arm="x:MY_ARM", intended=10, duplicated=n) for w in ("one", "two") for n in (0, 1)
    ]
    axes = figure(held).axes
    assert [axis.get_title() for axis in axes[:2]] == ["one", "two"]
    (line,) = axes[0].get_lines()
    assert list(line.get_ydata()) == [0.0, 10.0]
    assert line.get_label() == short("x:MY_ARM") == "my arm"
    assert all(value != value for value in axes[2].get_lines()[0].get_ydata())


@pytest.mark.parametrize(("workloads", "arms"), [(1, 1), (1, 4), (1, 9), (8, 4)])
def test_the_figure_shows_every_ledger_whole_and_only_levels_that_were_run(workloads: int, arms: int) -> None:
    held = [
        Cell(workload=f"w{w}", level=n, arm=f"x:MESH_WITHOUT_PROVIDER_{a}", intended=100, duplicated=a + 7 * w)
        for w in range(workloads)
        for n in (0, 3)
        for a in range(arms)
    ]
    made = figure(held)
    made.draw_without_rendering()
    (legend,) = made.legends
    box, page = legend.get_window_extent(), made.bbox
    assert page.x0 <= box.x0 < box.x1 <= page.x1
    assert len(legend.get_texts()) == arms
    for axis in made.axes:
        looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axis.get_lines()}
        assert len(looks) == arms
        assert list(axis.get_xticks()) == [0, 3]
        bottom, top = axis.get_ylim()
        assert bottom == 0
        assert all(not value > top for line in axis.get_lines() for value in line.get_ydata())
    labels = [axis.yaxis.label.get_window_extent() for axis in made.axes if axis.get_ylabel()]
    assert len(labels) == 4
    assert not any(one.overlaps(other) for one, other in pairwise(labels))


def test_levels_are_told_as_they_are_named() -> None:
    assert command._levels("L0,L3") == command._levels("3, 0") == [0, 3]
    with pytest.raises(ConfigError, match="--levels is 'LL3'"):
        command._levels("LL3")


def test_the_command_writes_table_and_figure_and_says_what_is_defeated(tmp_path: Path) -> None:
    app = typer.Typer()
    command.add(app)
    done = CliRunner().invoke(
        app, [str(tmp_path), "--pairs", "1", "--workloads", "idempotent", "--levels", "0,2", "--jobs", "1"]
    )
    assert done.exit_code == 0, done.output
    with (tmp_path / "sensitivity.csv").open() as file:
        assert [(line["level"], line["arm"]) for line in csv.DictReader(file)] == [
            (level, arm) for level in ("0", "2") for arm in (ATTEMPT, EXACT, MESH, COMPOSED_ANEW)
        ]
    assert (tmp_path / "sensitivity.svg").read_text().startswith("<?xml")
    with pytest.raises(ConfigError, match="--levels is '7'"):
        CliRunner().invoke(app, ["--levels", "7"], catch_exceptions=False)
