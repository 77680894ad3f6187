"""Where a run may end: the first pair at which the registered question is answered, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from harness.analysis import stopped_at
from harness.core.errors import ConfigError
from harness.report.prereg import Prereg
from harness.report.rows import Row
from harness.report.stopping import Look, Until, look, misplaced, told
from harness.report.summary import build_summary
from tests.unit.synthetic import PREREG, manifest, row, synthetic

LEAST = PREREG.design.pairs_min


def arm(name: str, pairs: int, duplicated: int, **more: Any) -> list[Row]:
    return [row(name, index, duplicated=duplicated, **more) for index in range(pairs)]


def test_a_run_goes_on_until_the_kill_criterion_is_reached_and_ends_at_that_very_pair() -> None:
    naive = arm("naive", 400, 4)  # 4 of 11 in every trial of the class with the largest cited rate
    at = look(naive, (), PREREG, "kill_criterion").stop_at
    assert at is not None
    assert at >= LEAST
    assert look(naive[: at - 1], (), PREREG, "kill_criterion").stop_at is None
    assert look(naive[:at], (), PREREG, "kill_criterion").stop_at == at
    assert look(naive, (), PREREG, "all_pairs").stop_at is None


def test_without_harm_it_ends_with_stop_and_between_the_two_it_does_not_end() -> None:
    clean = look(arm("naive", 800, 0), (), PREREG, "kill_criterion")
    assert clean.stop_at is not None
    assert clean.evidence["STOP"][0] >= clean.evidence["STOP"][1]
    between = [row("naive", n, duplicated=2 * (n % 12 == 0)) for n in range(800)]
    assert look(between, (), PREREG, "kill_criterion").stop_at is None


def test_the_full_claim_waits_for_the_comparison_and_ends_where_that_is_settled() -> None:
    naive, mesh = arm("naive", 800, 4), arm("mesh", 800, 0)
    kill = look(naive, mesh, PREREG, "kill_criterion").stop_at
    full = look(naive, mesh, PREREG, "full_claim")
    assert kill is not None
    assert full.stop_at is not None
    assert kill < full.stop_at
    before = look(naive[: full.stop_at - 1], mesh[: full.stop_at - 1], PREREG, "full_claim")
    assert before.stop_at is None
    assert {"GO", "STOP", "duplicate_effect_rate", "lost_incidence", "task_success"} <= set(full.evidence)
    assert look(naive, mesh, PREREG, "full_claim", looked=full.stop_at - 1).stop_at == full.stop_at


def test_a_treatment_that_is_shown_to_lose_settles_the_comparison_too() -> None:
    naive = arm("naive", 800, 4)
    losing = arm("mesh", 800, 0, success=False)
    at = look(naive, losing, PREREG, "full_claim").stop_at
    assert at is not None
    assert at < 200


@pytest.mark.parametrize(
    ("e_value", "guess"), [(1.5, None), (20.0, None), (4.4721359549995796, "pair 200?"), (1e9, None)]
)
def test_a_guess_is_made_only_from_evidence_that_grows(e_value: float, guess: str | None) -> None:
    said = Look(pairs=100, stop_at=None, evidence={"STOP": (e_value, 20.0)}).sentence()
    assert ("?" in said) is (guess is not None)
    assert guess is None or guess in said


def noted(prereg: Prereg, pairs: int, until: Until, stopped_at: int | None) -> tuple[dict[str, Any], list[str]]:
    seen = look(arm("naive", pairs, 4), (), prereg, until)
    entry = told(800, stopped_at, seen, prereg, until)
    return entry, misplaced(entry, pairs)


def test_a_run_that_ended_elsewhere_than_its_rule_says_is_told_apart() -> None:
    at = look(arm("naive", 400, 4), (), PREREG, "kill_criterion").stop_at
    assert at is not None
    assert noted(PREREG, at, "kill_criterion", at)[1] == []
    assert "ends after" in noted(PREREG, at - 1, "kill_criterion", at - 1)[1][0]
    assert "ends after" in noted(PREREG, at + 1, "kill_criterion", at + 1)[1][0]
    entry, wrong = noted(PREREG, 100, "all_pairs", None)
    assert (entry["because"], wrong) == ("100 of 800 pairs are there", [])


def test_the_summary_says_where_it_ended_and_a_wrong_end_makes_it_invalid() -> None:
    rows = synthetic(70)
    right = build_summary(rows, manifest(800), PREREG)
    assert right["stopping"] == {"rule": "all_pairs", "pairs_max": 800, "because": "70 of 800 pairs are there"}
    cut = {**manifest(800), "stopping": {"until": "kill_criterion", "stopped_at": 70}}
    decision = build_summary(rows, cut, PREREG)["decision"]
    assert decision["kill_criterion"] == "INVALID"
    assert "by its rule kill_criterion it ends after 60" in decision["failed_gates"][0]


def test_a_manifest_without_a_number_of_pairs_does_not_stand_for_none() -> None:
    assert stopped_at({"pairs": 8}) == stopped_at({"pairs": 8, "stopping": {"stopped_at": None}}) == 8
    assert stopped_at({"pairs": 8, "stopping": {"stopped_at": 3}}) == 3
    with pytest.raises(ConfigError, match="no number of pairs"):
        stopped_at({})
