"""The effect ledger: who may write, what a process that was replaced can still do, and answers that were paid for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from arms.mesh.m3_effects import EffectLedger
from harness.core.types import EffectCall, ModelCall, Ok, Outcome, Refused, Verdict
from harness.orchestrator.store import SqliteStore
from tests.unit.armbench import attempt, context, effect, event, model, run
from tests.unit.ledgerbench import LATE, Place, done, thing_of, verdicts


def test_a_process_that_was_replaced_is_fenced_before_its_effect() -> None:
    place = Place()
    old = place.layer
    place.restart()
    assert verdicts(place.cross(layer=old)) == ["fenced"]
    assert place.count == 0


def test_a_process_replaced_between_reservation_and_effect_is_told_but_its_effect_stands() -> None:
    """The ledger cannot take an effect back: only a boundary that checks tokens could refuse it. Where the successor
    asks after the effect it is reconciled; where it asked before, this is the one double that is left."""
    place = Place()

    async def beyond(call: EffectCall) -> Outcome:
        place.restart()
        return Ok(receipt=place.outside.happen("acme", thing_of(call)))

    assert verdicts(run(place.layer.on_effect(effect(event()), beyond))) == ["fenced"]
    assert verdicts(place.cross()) == ["reconciled"]
    assert place.count == 1


def test_a_second_attempt_in_the_same_process_takes_a_new_token_and_goes_on() -> None:
    place = Place()
    place.cross()
    run(place.layer.on_delegate(attempt(number=2), done))
    assert verdicts(place.cross(cause="t9", attempt=2)) == ["suppressed-as-duplicate"]


# --- model answers ------------------------------------------------------------------------------------------------


def bought(answers: list[Outcome]) -> Callable[[ModelCall], Awaitable[Outcome]]:
    async def buy(call: ModelCall) -> Outcome:
        return answers.pop(0)

    return buy


ANSWER = Ok(value={"id": "cmpl-1"}, receipt="cmpl-1")


@pytest.mark.parametrize(
    ("again", "options", "verdict"),
    [
        ({}, {}, "suppressed-as-duplicate"),
        ({"call_id": "m9", "turn": 7}, {}, "suppressed-as-duplicate"),
        ({"attempt": 2}, {}, "executed"),
        ({"request": {"messages": ["more"]}}, {}, "executed"),
        ({"delegation": "e"}, {}, "executed"),
        ({}, {"provider_replay": False}, "executed"),
    ],
)
def test_a_request_that_was_paid_for_is_answered_from_the_ledger(again: dict, options: dict, verdict: str) -> None:
    place = Place()
    run(place.layer.on_model(model(), bought([ANSWER])))
    layer = place.restart(again.get("delegation", "d"), **options)
    assert verdicts(run(layer.on_model(model(**again), bought([ANSWER])))) == [verdict]


def test_an_error_of_the_model_is_not_kept_and_a_replaced_process_is_fenced() -> None:
    place = Place()
    answers = [LATE, ANSWER, ANSWER]
    old = place.layer
    assert verdicts(*(run(old.on_model(model(), bought(answers))) for _ in range(2))) == ["timeout", "executed"]
    place.restart()
    fenced = run(old.on_model(model({"messages": ["x"]}), bought(answers)))
    assert isinstance(fenced, Refused)
    assert fenced.verdict is Verdict.FENCED


def test_two_contexts_of_one_store_make_the_tables_once() -> None:
    store = SqliteStore(":memory:")
    for _ in range(2):
        EffectLedger(context(store))
    assert store.query("SELECT count(*) FROM ledger") == [(0,)]
