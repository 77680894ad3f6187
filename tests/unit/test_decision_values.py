"""The decision, value by value: what it must come to on data so plain that it can be worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from harness.judge import _complete
from harness.report.arrange import arrange, registered
from harness.report.decision import kill_criterion, phase_two
from harness.report.rows import Row
from harness.report.stopping import look, misplaced
from harness.stats.betting import BOLD, EVEN, FRACTIONS, e_value, peak
from harness.stats.claims import Contrast, non_inferiority, superiority_path
from harness.stats.holm import closed_peaks, e_holm
from harness.stats.kill import FaultRate, KillPlan, Primary, decide
from tests.unit.synthetic import PREREG, invalid, manifest, row

ONE_CLASS = KillPlan((FaultRate("x", 1.0, 1.0, 1.0),), 1, 300)


def rows(arm: str, pairs: int, duplicated: int = 0, **more: Any) -> list[Row]:
    return [row(arm, n, duplicated=duplicated, **more) for n in range(pairs)]


def test_evidence_is_what_it_says_and_counts_at_its_peak() -> None:
    assert e_value(float(np.log(7))) == pytest.approx(7)
    assert peak(np.array([0.0, 3.0, 1.0])) == 3


def test_go_averages_the_evidence_of_both_primaries_on_even_stakes() -> None:
    n, tau = 3, 0.1  # few enough for nothing to be decided before
    harmful, harmless = np.full(n, 0.5), np.zeros(n)
    primaries = [Primary("a", harmful, harmful, tau), Primary("b", harmless, harmless, tau)]
    capital = [float((EVEN * (1 + FRACTIONS / tau * (g - tau)) ** n).sum()) for g in (0.5, 0.0)]
    assert decide(primaries, ["x"] * n, ONE_CLASS).e_go == pytest.approx(sum(capital) / 2)


def test_nothing_beyond_the_registered_most_is_looked_at() -> None:
    nothing = np.zeros(800)
    plan = KillPlan((FaultRate("x", 1.0, 1.0, 1.0),), 1, 20)
    found = decide([Primary("a", nothing, nothing, 0.01)], ["x"] * 800, plan)
    assert (found.outcome, found.decided_at) == ("INCONCLUSIVE", 20)


def test_superiority_bets_on_a_registered_share_of_the_control_and_on_even_stakes() -> None:
    path = superiority_path(Contrast("a", np.ones(1), np.zeros(1)), 0.5)
    assert float(np.exp(path[-1])) == pytest.approx((1 + FRACTIONS * 0.5).mean())


def test_harm_beyond_the_margin_is_shown_at_the_margin_and_not_at_twice_of_it() -> None:
    assert non_inferiority("success", np.full(400, 0.08), 0.05, 0.05).contrary_shown


def test_the_registered_margins_are_those_that_are_tested() -> None:
    n = 50
    claims = phase_two(rows("naive", n), rows("mesh", n), PREREG)["non_inferiority"]["claims"]
    for claim, margin in zip(claims, (PREREG.claims.loss_margin, PREREG.claims.success_margin), strict=True):
        assert claim["e_value"] == pytest.approx(float((BOLD * (1 + FRACTIONS * margin / (1 - margin)) ** n).sum()))


def test_holm_asks_most_of_the_first_and_stops_at_the_first_that_fails() -> None:
    log = {name: float(np.log(value)) for name, value in {"a": 30, "b": 25}.items()}
    assert e_holm(log, 0.05) == ()
    assert e_holm({**log, "a": float(np.log(50))}, 0.05) == ("a", "b")
    assert closed_peaks([np.array([np.log(8.0)]), np.array([0.0])]) == pytest.approx((np.log(4.5), 0.0))


def test_what_the_harness_spoiled_counts_against_the_claim() -> None:
    spoiled = [invalid("naive", n) for n in range(400)]
    assert kill_criterion(spoiled, PREREG, ()).outcome == "INCONCLUSIVE"
    claims = phase_two(spoiled, rows("mesh", 400), PREREG)["superiority"]["claims"]
    assert [claim["e_value"] for claim in claims] == [1.0, 1.0]


def test_a_lagging_trial_spoils_its_pair_and_no_other() -> None:
    lagged = replace(invalid("naive", 1), because="scheduler lag 11000 ms")
    held = [row("naive", 0), row("mesh", 0), lagged, row("mesh", 1), row("naive", 2), row("mesh", 2)]
    found = arrange(held, manifest(3, ("naive", "mesh")), PREREG)
    assert [one.valid for one in found.rows["mesh"]] == [True, False, True]
    other = replace(lagged, because="a service of ours broke")
    found = arrange([other if one is lagged else one for one in held], manifest(3, ("naive", "mesh")), PREREG)
    assert [one.valid for one in found.rows["mesh"]] == [True, True, True]


def test_derived_files_rest_on_the_registered_prefix_and_its_twins() -> None:
    held = [*rows("naive", 3), row("naive", 4), row("naive", 0, "none"), row("naive", 4, "none")]
    found = registered(held, manifest(5, ("naive",)), PREREG)
    assert [(one.index, one.fault_class == "none") for one in found] == [(0, False), (0, True), (1, False), (2, False)]
    most = PREREG.design.pairs_max
    assert len(registered(rows("naive", most + 5), manifest(most + 5, ("naive",)), PREREG)) == most


def test_the_full_claim_ends_no_sooner_than_the_kill_criterion_and_looks_only_at_what_is_new() -> None:
    naive, losing, mesh = rows("naive", 400, 4), rows("mesh", 400, success=False), rows("mesh", 800)
    at = look(naive, losing, PREREG, "kill_criterion").stop_at
    assert look(naive, losing, PREREG, "full_claim").stop_at == at
    control = rows("naive", 800, 4)
    full = look(control, mesh, PREREG, "full_claim").stop_at
    assert full is not None
    assert look(control, mesh, PREREG, "full_claim", looked=full + 10).stop_at == full + 11


def test_the_end_is_where_rule_run_and_rows_say_so_alike() -> None:
    entry = {"rule": "kill_criterion", "pairs_max": 800, "stop_at": 60, "stopped_at": 60}
    assert misplaced(entry, 60) == []
    assert misplaced(entry, 59)


def test_the_judge_waits_for_a_pair_that_lacks_a_trial() -> None:
    assert list(_complete({0: ["a", "b"], 1: ["c"], 2: ["d"]}, ["a", "b", "d"])) == [0]
