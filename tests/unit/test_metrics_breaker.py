"""Metrics of the progress breaker: on logs written by hand, right stops, false ones, missed loops and late ones."""

from __future__ import annotations

from typing import Any

import pytest

from harness.core.records import NotApplicable, ScoredTrial, Work
from harness.core.types import Json
from harness.metrics import METRICS
from harness.metrics.breaker import BREAKER
from tests.unit.handmade import Logs


class Story(Logs):
    """What was billed and decided in one trial."""

    def turn(self, n: int = 1, *, drifting: bool = False, d: str = "d", phase: str = "build", tokens: int = 10) -> None:
        about = {"delegation": d, "phase": phase}
        more: dict[str, Json] = {"drifting": True} if drifting else {}
        for _ in range(n):
            self.really("billed", completion="c", prompt_tokens=tokens, completion_tokens=0, metadata=about, **more)

    def decide(
        self,
        decision: str = "trip",
        scope: str = "session",
        d: str = "d",
        phase: str = "build",
        evidence: tuple[str, ...] = ("x",),
        constant: tuple[str, ...] = (),
        done: bool = True,
    ) -> None:
        """A decision; a stop of a session is also carried out, unless it is only talk."""
        facts = {"scope": scope, "decision": decision, "delegation": d, "attempt": 1, "phase": phase, "turn": 0}
        told = {"evidence": list(evidence), "constant": list(constant), "because": "x"}
        self.note("note", note="progress-decision", **facts, **told)
        if decision == "trip" and scope == "session" and done:
            self.refuse(d)

    def refuse(self, d: str = "d", verdict: str = "refused-as-stalled") -> None:
        call_id = f"c{len(self.trace)}"
        self.note("call", call="model", call_id=call_id, site={"delegation": d, "name": "chat"})
        self.note("outcome", call_id=call_id, result="refused", verdict=verdict)

    def scored(self) -> ScoredTrial:
        return ScoredTrial(trial=self.trial(), findings=(), work=Work(), success=True, verdicts={}, exposed=False)

    def value(self, name: str) -> Any:
        return METRICS[name].of(self.scored())


def loop(turns: int = 3, stopped: bool = True) -> Story:
    """Two turns of work and a planted loop of so many."""
    story = Story()
    story.turn(2)
    story.turn(turns, drifting=True)
    if stopped:
        story.decide()
    return story


def test_a_stop_in_a_planted_loop_is_right_and_its_delay_is_counted_from_where_the_loop_began() -> None:
    story = loop(turns=3)
    names = ("breaker_precision", "breaker_recall", "breaker_delay_turns", "breaker_tokens_until_trip", "false_stops")
    assert [story.value(name) for name in names] == [1.0, 1.0, 3.0, 30.0, 0.0]


def test_a_stop_of_work_is_false_and_tells_nothing_of_delay() -> None:
    story = Story()
    story.turn(3)
    story.decide()
    assert (story.value("breaker_precision"), story.value("false_stops")) == (0.0, 1.0)
    assert isinstance(story.value("breaker_delay_turns"), NotApplicable)
    assert isinstance(story.value("breaker_recall"), NotApplicable)


def test_a_loop_that_nobody_stopped_is_missed_also_in_an_arm_without_a_breaker() -> None:
    story = loop(stopped=False)
    assert story.value("breaker_recall") == 0.0
    assert isinstance(story.value("breaker_precision"), NotApplicable)
    assert story.value("false_stops") == 0.0


@pytest.mark.parametrize(
    ("d", "phase", "right"), [("d", "build", 1), ("d", "other", 0), ("e", "build", 0), ("d", "", 1)]
)
def test_a_stop_is_judged_by_the_bills_of_its_own_place(d: str, phase: str, right: int) -> None:
    story = loop(stopped=False)
    story.turn(d="e")
    story.turn(d="d" if phase == "other" else "x", phase="other")
    story.decide(d=d, phase=phase, scope="session")
    assert story.value("breaker_precision") == right
    assert story.value("breaker_recall") == right


def test_bills_after_a_stop_do_not_excuse_it() -> None:
    story = Story()
    story.turn(2)
    story.decide()
    story.turn(3, drifting=True)
    assert story.value("false_stops") == 1.0
    assert story.value("breaker_recall") == 0.0


def test_a_stop_that_is_only_announced_is_none() -> None:
    story = loop(stopped=False)
    story.decide(done=False)
    assert story.value("breaker_recall") == 0.0
    assert isinstance(story.value("breaker_precision"), NotApplicable)
    story.refuse(d="e")
    story.refuse(verdict="executed")
    assert story.value("breaker_recall") == 0.0
    story.refuse(verdict="exhausted-budget")
    assert (story.value("breaker_recall"), story.value("breaker_precision")) == (1.0, 1.0)


@pytest.mark.parametrize("kind", ["attempt_end", "delegation_end"])
def test_a_stop_may_also_be_carried_out_by_the_end_of_its_attempt(kind: str) -> None:
    story = loop(stopped=False)
    story.note(kind, delegation="d", status="stopped", code="", verdict="refused-as-stalled")  # before it was announced
    story.decide(done=False)
    assert story.value("breaker_recall") == 0.0
    story.note(kind, delegation="d", status="stopped", code="", verdict="refused-as-stalled")
    assert story.value("breaker_recall") == 1.0


def test_a_refusal_and_the_ends_that_follow_from_it_are_one_stop() -> None:
    story = Story()
    story.turn(2)
    story.decide()
    for kind in ("attempt_end", "delegation_end"):
        story.note(kind, delegation="d", status="stopped", code="", verdict="refused-as-stalled")
    assert story.value("false_stops") == 1.0


def test_one_refusal_does_not_vouch_for_two_announcements() -> None:
    story = loop(stopped=False)
    story.decide(done=False)
    story.turn(2)
    story.decide()
    assert story.value("breaker_recall") == 0.0
    assert story.value("false_stops") == 1.0


def test_a_second_stop_is_counted_from_the_first_on() -> None:
    story = loop(turns=3)
    story.turn(1, drifting=True)
    story.decide()
    assert story.value("breaker_delay_turns") == 2.0  # 3 and 1
    assert story.value("breaker_recall") == 1.0


def test_two_loops_with_work_between_are_two() -> None:
    story = loop(turns=3)
    story.turn(1)
    story.turn(2, drifting=True)
    assert story.value("breaker_recall") == 0.5


def test_what_follows_from_a_stop_a_round_and_a_deadline_are_no_stops_of_sessions() -> None:
    story = loop()
    story.turn()
    story.decide(scope="component")
    story.decide(scope="fingerprint", phase="")
    story.decide(scope="wait")
    story.decide("grant", scope="component")
    assert story.value("breaker_precision") == 1.0
    assert story.value("false_stops") == 0.0


@pytest.mark.parametrize(
    ("decisions", "power"),
    [
        ([("trip", ("a",), ())], 1.0),
        ([("trip", ("unit",), ("unit",))], 0.0),  # it stopped on a name that every round repeats
        ([("trip", (), ("unit",))], 0.0),
        ([("trip", ("a", "unit"), ("unit",)), ("continue", ("unit",), ("unit",))], 0.5),
        ([("withheld", (), ("unit",)), ("continue", ("a",), ())], 1.0),
    ],
)
def test_power_is_the_share_of_decisions_on_evidence_that_could_be_otherwise(
    decisions: list[tuple[str, tuple[str, ...], tuple[str, ...]]], power: float
) -> None:
    story = Story()
    for decision, evidence, constant in decisions:
        story.decide(decision, "fingerprint", evidence=evidence, constant=constant)
    assert story.value("discriminating_power") == power


def test_a_breaker_that_only_withholds_took_no_decision() -> None:
    story = Story()
    story.decide("withheld", "fingerprint", evidence=(), constant=("unit",))
    assert isinstance(story.value("discriminating_power"), NotApplicable)
    assert isinstance(Story().value("discriminating_power"), NotApplicable)


@pytest.mark.parametrize("name", list(BREAKER))
def test_each_metric_has_a_sabotage_that_moves_it_the_wrong_way(name: str) -> None:
    """Trips on constants, never trips, trips late, or trips on work."""
    good, bad = loop(), loop(turns=9)
    if name == "discriminating_power":
        bad.decide(evidence=("unit",), constant=("unit",))
    elif name == "breaker_recall":
        bad = loop(stopped=False)
    elif name in ("breaker_precision", "false_stops"):
        bad.turn(1)
        bad.decide()
    before, after = good.value(name), bad.value(name)
    assert after > before if METRICS[name].better == "lower" else after < before
