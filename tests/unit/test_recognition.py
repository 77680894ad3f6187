"""Collisions and misses of fingerprints, on trials written by hand: an arm that merges, one that recalls nothing."""

from __future__ import annotations

import pytest

from harness.core.records import Intent, NotApplicable, Recognition, ScoredTrial
from harness.metrics import METRICS
from harness.score import score
from tests.unit.handmade import Build, Toy, want


def judged(made: Build, *intents: Intent) -> ScoredTrial:
    return score(made.seal(), Toy(*intents))


def counts(made: Build, *intents: Intent, boundary: str = "transport") -> Recognition:
    return judged(made, *intents).recognition[boundary]


def value(name: str, scored: ScoredTrial) -> float | NotApplicable:
    return METRICS[name].of(scored)


def test_each_once_is_neither() -> None:
    b = Build()
    b.ask("a")
    b.ask("b")
    assert counts(b, want("a"), want("b")) == Recognition(intents=2)
    assert value("fingerprint_miss", judged(b, want("a"), want("b"))) == NotApplicable(
        "no effect was asked for again after it had happened"
    )


def test_asked_again_and_suppressed_is_no_miss() -> None:
    b = Build()
    b.ask("a")
    b.ask("a", crossed=0, commits=0, receipt="r1")
    scored = judged(b, want("a"), want("b"))
    assert scored.recognition["transport"] == Recognition(intents=2, regenerated=1)
    assert value("fingerprint_miss", scored) == 0.0


def test_an_arm_that_recognises_nothing_misses_every_one() -> None:
    b = Build()
    for _ in range(4):
        b.ask("a")
    scored = judged(b, want("a"))
    assert scored.recognition["transport"] == Recognition(intents=1, regenerated=3, missed=3)
    assert (value("fingerprint_miss", scored), value("fingerprint_misses", scored), value("asked_again", scored)) == (
        1.0,
        3.0,
        3.0,
    )
    assert value("ledger_discrimination", scored) == 0.5


def test_a_retry_within_the_arm_is_a_duplicate_and_no_miss() -> None:
    b = Build()
    b.ask("a", crossed=2, commits=2)
    assert counts(b, want("a")) == Recognition(intents=1)


def test_wanted_repetitions_are_no_repetitions() -> None:
    b = Build()
    b.ask("a")
    b.ask("a")
    assert counts(b, want("a", required=2)) == Recognition(intents=2)
    b.ask("a", crossed=0, commits=0)
    assert counts(b, want("a", required=2)) == Recognition(intents=2, regenerated=1)


def test_what_failed_before_it_happened_may_be_asked_for_again() -> None:
    b = Build()
    b.ask("a", commits=0, said="err")
    b.ask("a")
    assert counts(b, want("a")) == Recognition(intents=1)


def test_an_effect_that_was_merged_into_another_is_a_collision() -> None:
    b = Build()
    b.ask("a")
    held = b.truth[-1].data["receipt"]
    b.ask("b", crossed=0, commits=0, receipt=held)
    scored = judged(b, want("a"), want("b"), want("c"))
    assert scored.recognition["transport"] == Recognition(intents=3, merged=1)
    assert value("fingerprint_collision", scored) == 1 / 3


def test_merging_is_transitive() -> None:
    b = Build()
    b.ask("a")
    held = b.truth[-1].data["receipt"]
    b.ask("b", crossed=0, commits=0, receipt=held)
    b.ask("c", crossed=0, commits=0, receipt=held)
    scored = judged(b, want("a"), want("b"), want("c"))
    assert scored.recognition["transport"].merged == 3
    assert value("fingerprint_collision", scored) == 1.0


def test_two_wanted_alike_that_became_one_collided() -> None:
    b = Build()
    b.ask("a")
    b.ask("a", crossed=0, commits=0)
    assert counts(b, want("a", required=2), want("b")) == Recognition(intents=3, merged=1)


def test_suppressing_what_never_happened_is_no_collision() -> None:
    b = Build()
    b.ask("a", crossed=0, commits=0, receipt="x")
    scored = judged(b, want("a"), want("b"))
    assert scored.recognition["transport"] == Recognition(intents=2)
    assert value("wrongly_suppressed", scored) == 0.5


def test_a_receipt_of_somebody_else_for_an_effect_that_was_had_itself_merges_nothing() -> None:
    b = Build()
    b.ask("a")
    held = b.truth[-1].data["receipt"]
    b.ask("b", receipt=held)
    assert counts(b, want("a"), want("b")).merged == 0


def test_boundaries_are_counted_apart() -> None:
    b = Build()
    b.ask("a")
    b.ask("a", boundary="registry")
    b.ask("a", boundary="registry")
    scored = judged(b, want("a"), want("a", boundary="registry"))
    assert scored.recognition == {
        "registry": Recognition(intents=1, regenerated=1, missed=1),
        "transport": Recognition(intents=1),
    }
    assert value("fingerprint_collision", scored) == NotApplicable(
        "the workload intends no two effects at one boundary"
    )


def test_a_batch_repeats_those_of_its_effects_that_were_there() -> None:
    b = Build()
    b.ask("a")
    b.ask("a", "b")
    assert counts(b, want("a"), want("b")) == Recognition(intents=2, regenerated=1, missed=1)


def test_hooks_are_no_primary_effects() -> None:
    b = Build()
    for _ in range(3):
        b.ask("a", boundary="hook")
    scored = judged(b, want("a", boundary="hook"), want("b"))
    assert scored.recognition["hook"].missed == 2
    assert value("fingerprint_misses", scored) == 0.0


@pytest.mark.parametrize("name", ["fingerprint_collision", "fingerprint_miss", "fingerprint_misses", "intent_pairs"])
def test_what_was_not_counted_is_said(name: str) -> None:
    from tests.unit.test_metrics import CLEAN

    found = value(name, CLEAN)
    assert isinstance(found, NotApplicable)
    assert "not counted" in found.because
