"""Blame matrix and variation levels of a run: sums over trials, and reasons where a ratio would be empty."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from harness.core.records import NotApplicable
from harness.metrics.blame import CELLS, GUARDS, name_of
from harness.report.blame import blame, counts
from harness.report.levels import EVENTS, levels
from harness.report.rows import Row
from tests.unit.synthetic import invalid, row


def judged(arm: str, index: int, guard: str, *cells: int) -> Row:
    """A trial with these counts of one guard: guilty stopped and spared, healthy killed and spared."""
    made = row(arm, index)
    told = {name_of(guard, cell): float(n) for cell, n in zip(CELLS, cells, strict=True)}
    return replace(made, metrics={**made.metrics, **told})


def test_precision_and_recall_are_ratios_of_sums() -> None:
    rows = {"a": [judged("a", 0, "stalls", 1, 0, 0, 9), judged("a", 1, "stalls", 2, 1, 6, 1)]}
    found = blame(rows)["a"]["stalls"]
    assert [found[cell] for cell in CELLS] == [3, 1, 6, 10]
    assert found["precision"] == {"estimate": 3 / 9, "stops": 9}
    assert found["recall"] == {"estimate": 3 / 4, "guilty": 4}
    assert (found["trials"], found["not_applicable_trials"]) == (2, 0)


def test_who_stops_nothing_has_no_precision_and_who_met_nobody_guilty_no_recall() -> None:
    found = blame({"a": [judged("a", 0, "outages", 0, 2, 0, 5)], "b": [judged("b", 0, "outages", 0, 0, 3, 5)]})
    assert found["a"]["outages"]["precision"] == {"not_applicable": "nothing was stopped"}
    assert found["a"]["outages"]["recall"] == {"estimate": 0.0, "guilty": 2}
    assert found["b"]["outages"]["precision"] == {"estimate": 0.0, "stops": 3}
    assert found["b"]["outages"]["recall"] == {"not_applicable": "nobody was guilty"}


def test_a_killer_of_the_healthy_and_a_sparer_of_the_guilty_both_look_worse() -> None:
    good, killer, sparer = (2, 0, 0, 8), (2, 0, 4, 4), (0, 2, 0, 8)
    found = blame({name: [judged(name, 0, "loops", *c)] for name, c in (("g", good), ("k", killer), ("s", sparer))})
    assert found["g"]["loops"]["precision"]["estimate"] == 1.0 > found["k"]["loops"]["precision"]["estimate"]
    assert found["g"]["loops"]["recall"]["estimate"] == 1.0 > found["s"]["loops"]["recall"]["estimate"]


def test_invalid_trials_and_trials_without_counts_count_for_nobody() -> None:
    unknown = row("a", 1)
    names = {name_of("stalls", cell): NotApplicable("recorded before") for cell in CELLS}
    old = replace(unknown, metrics={**unknown.metrics, **names})
    rows = [judged("a", 0, "stalls", 1, 1, 1, 1), old, invalid("a", 2)]
    found = blame({"a": rows})["a"]["stalls"]
    assert (found["trials"], found["not_applicable_trials"], found["healthy_killed"]) == (1, 2, 1)
    assert counts(rows, "stalls") == [dict.fromkeys(CELLS, 1)]
    assert blame({"a": [old]})["a"]["stalls"]["not_applicable"] == "recorded before"
    assert blame({"a": []})["a"]["stalls"]["not_applicable"] == "no trial counted it"
    assert set(blame({"a": rows})["a"]) == set(GUARDS)


# --- levels -----------------------------------------------------------------------------------------------------------


def at(level: int, index: int, duplicated: int = 0, **metrics: Any) -> Row:
    made = row("a", index, duplicated=duplicated)
    zero = {"fingerprint_misses": 0.0, "asked_again": 0.0, "fingerprint_collisions": 0.0, "intent_pairs": 10.0}
    told = {**made.metrics, "wrongly_suppressed": 0.0, **zero, **metrics}
    return replace(made, variation=level, metrics=told)


def test_levels_are_counted_apart() -> None:
    rows = [at(0, 0), at(0, 1), at(4, 2, fingerprint_misses=2.0, asked_again=3.0), at(4, 3, duplicated=2)]
    found = levels({"a": rows})
    assert list(found) == ["L0", "L4"]
    assert found["L0"]["a"]["trials"] == found["L4"]["a"]["trials"] == 2
    misses = found["L4"]["a"]["misses"]
    assert (misses["count"], misses["among"], misses["rate"]) == (2, 3, 2 / 3)
    assert found["L0"]["a"]["misses"]["rate"] == {"not_applicable": "no effects asked for again"}
    assert found["L4"]["a"]["duplicates"]["count"] == 2
    assert found["L4"]["a"]["duplicates"]["rate"] == 2 / (2 * rows[0].intended)


def test_the_rule_of_three_is_over_trials_that_had_a_chance_and_only_where_nothing_was_seen() -> None:
    never = [at(3, n, asked_again=50.0) for n in range(60)] + [at(3, 60 + n) for n in range(40)]
    found = levels({"a": never})["L3"]["a"]
    assert (found["misses"]["trials"], found["misses"]["trials_with"]) == (60, 0)
    assert found["misses"]["share_of_trials_at_most"] == 3 / 60
    assert found["collisions"]["share_of_trials_at_most"] == 3 / 100
    once = levels({"a": [*never, at(3, 100, asked_again=1.0, fingerprint_misses=1.0)]})["L3"]["a"]
    assert "share_of_trials_at_most" not in once["misses"]
    assert levels({"a": [at(3, 0, asked_again=9.0)]})["L3"]["a"]["misses"]["share_of_trials_at_most"] == 1.0
    assert "share_of_trials_at_most" not in levels({"a": [at(3, 0)]})["L3"]["a"]["misses"]


def test_wrong_suppressions_are_counted_in_effects() -> None:
    made = at(2, 0)
    share = 3 / made.intended
    found = levels({"a": [replace(made, metrics={**made.metrics, "wrongly_suppressed": share})]})["L2"]["a"]
    assert (found["wrongly_suppressed"]["count"], found["wrongly_suppressed"]["among"]) == (3, made.intended)


def test_an_arm_without_trials_at_a_level_is_left_out_and_uncounted_trials_say_why() -> None:
    old = at(1, 0, fingerprint_misses=NotApplicable("not counted"))
    found = levels({"a": [old], "b": [at(2, 0), invalid("b", 1)]})
    assert set(found["L1"]) == {"a"}
    assert found["L1"]["a"]["misses"] == {"not_applicable": "not counted", "trials": 0}
    assert found["L2"]["b"]["trials"] == 1
    assert set(found["L2"]["b"]) == {"trials", *EVENTS}
