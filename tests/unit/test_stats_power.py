"""Planning: exact numbers where nothing is random, published ones where it is, and the command."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import typer
from statbench import REGISTRATION, registered
from typer.testing import CliRunner

from harness.commands import power as command
from harness.core.errors import ConfigError
from harness.stats.kill import FaultRate, KillPlan, Primary, decide
from harness.stats.power import Design, Truth, pairs_least, power
from harness.stats.scenarios import CLUSTERINGS, design_effect, duplicates, losses

PLAIN = Design(
    kill=KillPlan((FaultRate("any", 1.0, 1.0, 1.0),), pairs_min=1, pairs_max=1000),
    tau_duplicates=0.01,
    tau_work=0.05,
    rho=0.5,
    loss_margin=0.01,
    success_margin=0.05,
    alpha_superiority=0.05,
    alpha_non_inferiority=0.05,
    effects=12,
)
"""One class at a rate of one: harm per forced trial is harm in operation."""


def test_the_least_that_is_possible_is_exact() -> None:
    least = pairs_least(PLAIN)
    assert least["STOP"] == 366
    assert least["loss_non_inferiority"] == 366
    assert least["success_non_inferiority"] == 72
    assert least["superiority"] == 366  # the loss gate asks for more than the comparison
    assert least["GO"] == 2
    assert pairs_least(replace(PLAIN, loss_margin=0.005))["loss_non_inferiority"] == 733


def test_the_least_for_stop_is_where_the_gate_stops_without_harm() -> None:
    design = registered()
    nothing = np.zeros(400)
    primaries = [
        Primary("P1", nothing, nothing, design.tau_duplicates),
        Primary("P2", nothing, nothing, design.tau_work),
    ]
    names = [design.kill.classes[0].name] * 400
    assert decide(primaries, names, design.kill).decided_at == pairs_least(design)["STOP"] == 230


def test_what_no_data_can_show_is_said() -> None:
    harmless = replace(PLAIN, kill=KillPlan((FaultRate("any", 1.0, 0.001, 0.001),), 60, 800))
    least = pairs_least(harmless)
    assert least["GO"] == least["GO_NARROW"] == "not possible with these rates"
    assert least["STOP"] == 60


@pytest.mark.parametrize(("clustering", "pairs_90", "median"), [("low", 87, 34), ("med", 362, 140), ("high", 669, 273)])
def test_go_at_three_per_cent_takes_the_published_pairs(clustering: str, pairs_90: int, median: int) -> None:
    """Published at 20:1 for one primary alone; two primaries at 25:1 ask for twice that, and a little more: the factor
    ln(50)/ln(20) = 1.31."""
    truth = Truth(0.03, 0.0, clustering, 1.0)  # type: ignore[arg-type]
    found = power(PLAIN, truth, [1000], ["GO"], replications=200)[0]
    assert isinstance(found.pairs_median, int)
    assert found.pairs_median == pytest.approx(1.31 * median, rel=0.35)
    if clustering != "high":
        assert found.pairs_90 == pytest.approx(1.31 * pairs_90, rel=0.3)


def test_chances_grow_with_the_pairs_and_with_the_harm() -> None:
    few = power(PLAIN, Truth(0.02, 0.0, "med", 0.1), [100, 400, 1000], ["GO", "superiority"], replications=100)
    more = power(PLAIN, Truth(0.10, 0.0, "med", 0.1), [100, 400, 1000], ["GO", "superiority"], replications=100)
    for line, better in zip(few, more, strict=True):
        assert list(line.probability.values()) == sorted(line.probability.values())
        assert all(better.probability[n] >= line.probability[n] for n in line.probability)
    assert more[0].probability[1000] == 1.0
    assert isinstance(few[1].pairs_90, str)
    assert few[1].pairs_90 == "more than 1000"


def test_a_claim_is_the_same_whatever_else_is_asked_for() -> None:
    truth = Truth(0.05, 0.02, "med", 0.1, lost=0.001, discordant=0.02)
    alone = power(PLAIN, truth, [800], ["STOP"], replications=20)[0]
    together = power(PLAIN, truth, [800], replications=20)
    assert alone in together


@pytest.mark.parametrize("clustering", CLUSTERINGS)
@pytest.mark.parametrize("mean", [0.001, 0.03, 0.3, 0.95])
def test_scenarios_have_the_mean_that_was_asked_for(clustering: str, mean: float) -> None:
    rng = np.random.default_rng(7)
    for scores in (
        duplicates(rng, mean, (100_000,), clustering, 11),  # type: ignore[arg-type]
        losses(rng, mean, (100_000,), clustering),  # type: ignore[arg-type]
    ):
        assert scores.mean() == pytest.approx(mean, abs=5 * scores.std() / np.sqrt(100_000))
        assert 0 <= scores.min() <= scores.max() <= 1


def test_scenarios_cluster_as_published() -> None:
    rng = np.random.default_rng(8)
    found = [design_effect(duplicates(rng, 0.03, (200_000,), c, 12), 0.03, 12) for c in CLUSTERINGS]
    assert found == pytest.approx([1.55, 7.2, 12.0], rel=0.1)


def test_nothing_stays_nothing() -> None:
    rng = np.random.default_rng(9)
    for clustering in CLUSTERINGS:
        assert not duplicates(rng, 0.0, (500,), clustering, 11).any()
        assert not losses(rng, 0.0, (500,), clustering).any()
        assert duplicates(rng, 1.0, (500,), clustering, 11).min() == 1.0


def app() -> typer.Typer:
    made = typer.Typer()
    made.callback()(lambda: None)
    command.add(made)
    return made


def test_the_command_prints_a_line_for_each_claim() -> None:
    done = CliRunner().invoke(
        app(), ["power", str(REGISTRATION), "--duplicates", "0", "--work", "0", "--replications", "50"]
    )
    assert done.exit_code == 0, done.output
    lines = {line.split()[0]: line.split() for line in done.output.splitlines() if "%" in line and "ation" not in line}
    assert lines["STOP"][1:4] == ["0%", "0%", "0%"]
    assert lines["STOP"][-3:] == ["230", "230", "230"]
    assert lines["GO"][-5:] == [">", "800", ">", "800", "60"]
    assert "which is 0.00% in operation (threshold 1.00%)" in done.output


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--clustering", "medium"], "did you mean 'med'"),
        (["--claim", "STPO"], "did you mean 'STOP'"),
        (["--duplicates", "1.5"], "--duplicates is 1.5; allowed: 0 to 1"),
        (["--pairs-max", "10"], "60 \\(pairs_min\\) or more"),
    ],
)
def test_the_command_refuses_what_cannot_be(arguments: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        CliRunner().invoke(app(), ["power", str(REGISTRATION), *arguments], catch_exceptions=False)
