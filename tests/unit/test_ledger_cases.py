"""The effect ledger case by case: what a doubt comes to, who waits for whom, and what makes two effects one."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from arms.mesh.doubt import PROBE_PAUSE_MS, PROBES_MAX
from arms.mesh.ledger import SETTLE_MS, absence_counts, resolve
from arms.mesh.m3_effects import EXECUTIONS_MAX
from harness.core.errors import Crash
from harness.core.types import (
    DelegationOutcome,
    EffectCall,
    Err,
    Ok,
    Outcome,
    Probe,
    ToolCall,
    Verdict,
)
from tests.unit.armbench import FETCH, HOOK, attempt, effect, event, run, tool
from tests.unit.ledgerbench import LATE, NO, Place, done, thing_of, verdicts


@pytest.mark.parametrize(
    ("known", "count", "content", "value", "says"),
    [
        (0, None, False, None, "unknown"),
        (3, None, True, "x", "unknown"),
        (0, 0, False, None, "absent"),
        (1, 1, False, None, "absent"),
        (2, 1, False, None, "absent"),  # a boundary may forget; that is no evidence of ours
        (0, 1, False, None, "present"),
        (1, 2, False, None, "present"),
        (0, 3, False, None, "present"),
        (0, 1, True, "answer", "present"),
        (0, 1, True, None, "lost"),
        (1, 1, True, None, "absent"),
    ],
)
def test_a_doubt_is_resolved_by_what_the_boundary_holds_beyond_what_is_recorded(
    known: int, count: int | None, content: bool, value: str | None, says: str
) -> None:
    assert resolve(known, Probe(count=count, value=value), content) == says


# --- repeats ------------------------------------------------------------------------------------------------------


def test_repeats_within_a_check_are_effects_and_a_second_run_of_it_is_not() -> None:
    place = Place()
    said = [place.cross(cause=cause) for cause in ("t1", "t1", "t2", "t2", "t2")]
    assert verdicts(*said) == ["executed"] * 2 + ["suppressed-as-duplicate"] * 2 + ["executed"]
    assert [o.receipt for o in said[:2]] == [o.receipt for o in said[2:4]]
    assert place.count == 3


def test_a_client_that_tries_again_after_an_error_means_the_same_effect() -> None:
    """Otherwise its success stands at the second place of the list, and the next run finds the first one in doubt."""
    place = Place()
    assert verdicts(place.cross(NO), place.cross(), place.cross(cause="t2")) == [
        "http-503",
        "executed",
        "suppressed-as-duplicate",
    ]
    assert place.count == 1


def test_equal_effects_that_are_under_way_together_are_two() -> None:
    place = Place()

    async def both(cause: str) -> list[str]:
        async def beyond(call: EffectCall) -> Outcome:
            await asyncio.sleep(0)
            receipt = place.outside.happen("acme", thing_of(call))
            return Ok(value=None, receipt=receipt)

        calls = [effect(event(n=n), cause=cause) for n in range(2)]
        return verdicts(*await asyncio.gather(*(place.layer.on_effect(call, beyond) for call in calls)))

    assert asyncio.run(both("t1")) == ["executed", "executed"]
    assert asyncio.run(both("t2")) == ["suppressed-as-duplicate"] * 2
    assert place.count == 2


def test_an_error_that_is_certain_leaves_no_doubt_not_even_where_nobody_can_be_asked() -> None:
    place = Place()
    hook = {"payload": {"path": "a", "digest": "1"}, "declared": HOOK}
    assert verdicts(place.cross(NO, **hook)) == ["http-503"]
    place.restart()
    assert verdicts(place.cross(**hook)) == ["executed"]


# --- tenants and delegations --------------------------------------------------------------------------------------


def test_equal_content_in_two_tenants_with_delegations_of_one_name_is_two_effects() -> None:
    place = Place()
    other = place.process(tenant="other")
    said = [place.cross(), place.cross(layer=other, tenant="other"), place.cross(cause="t2")]
    assert verdicts(*said) == ["executed", "executed", "suppressed-as-duplicate"]
    assert place.count == 2


def test_what_another_delegation_of_the_tenant_recorded_is_no_evidence_of_ones_own_effect() -> None:
    place = Place()
    other = place.process("e")
    place.cross()

    async def die(call: EffectCall) -> Outcome:
        raise Crash

    with pytest.raises(Crash):
        run(other.on_effect(effect(event(), delegation="e"), die))
    assert verdicts(place.cross(layer=place.process("e"), delegation="e")) == ["executed"]
    assert place.count == 2


def test_while_one_effect_is_in_doubt_an_equal_one_of_another_delegation_waits() -> None:
    """It would otherwise happen between two questions to the boundary, and be taken for the one in doubt."""
    place = Place()
    place.visible_from = 2
    run(place.layer.on_delegate(attempt("e"), done))
    lost = [Err(code="timeout", definite=False)]

    async def beyond(call: EffectCall) -> Outcome:
        return lost.pop() if lost else Ok(receipt=place.outside.happen("acme", thing_of(call)))

    async def pause(ms: float) -> None:
        await asyncio.sleep(0)
        place.time.slept.append(ms)

    place.layer._ctx = replace(place.layer._ctx, sleep_ms=pause)

    async def both() -> list[str]:
        calls = [effect(event(), delegation=name, cause=name) for name in ("d", "e")]
        return verdicts(*await asyncio.gather(*(place.layer.on_effect(call, beyond) for call in calls)))

    assert asyncio.run(both()) == ["executed", "executed"]
    assert place.count == 2


# --- doubts -------------------------------------------------------------------------------------------------------


def test_a_lost_answer_is_reconciled_with_the_receipt_of_the_boundary() -> None:
    place = Place()
    said = place.cross(LATE)
    assert verdicts(said, place.cross(cause="t2")) == ["reconciled", "suppressed-as-duplicate"]
    assert (place.count, said.receipt) == (1, "1-0")


def test_a_lost_request_is_made_again_a_few_times_and_then_handed_back_as_an_error() -> None:
    place, lost = Place(), Err(code="timeout", definite=False)
    assert verdicts(place.cross(lost, lost)) == ["executed"]
    assert verdicts(place.cross(*[lost] * EXECUTIONS_MAX, payload=event("A-2"))) == ["timeout"]
    assert place.count == 1


def test_a_boundary_that_cannot_tell_at_once_is_asked_again_with_growing_pauses() -> None:
    place = Place()
    place.visible_from = 3
    assert verdicts(place.cross(LATE)) == ["reconciled"]
    assert place.time.slept == [PROBE_PAUSE_MS, 2 * PROBE_PAUSE_MS]


def test_a_boundary_that_never_tells_makes_the_delegation_wait_for_a_person() -> None:
    place = Place()
    place.outside.blind = {"transport"}

    async def attempted(asked: object) -> DelegationOutcome:
        said = place.cross(LATE)
        assert (verdicts(said), place.asked) == (["awaiting-waiver"], PROBES_MAX)
        assert verdicts(run(place.layer.on_tool(tool("run_check"), _no_tool))) == ["awaiting-waiver"]
        assert verdicts(run(place.layer.on_tool(tool("read"), _tool))) == ["executed"]
        return DelegationOutcome(status="failed", code="agent-blocked")

    ended = run(place.layer.on_delegate(attempt(), attempted))
    assert (ended.status, ended.verdict) == ("stopped", Verdict.AWAITING_WAIVER)
    place.restart()
    assert verdicts(place.cross()) == ["awaiting-waiver"]
    place.outside.blind = set()
    assert verdicts(place.cross(cause="t2")) == ["reconciled"]
    assert place.count == 1


async def _tool(call: ToolCall) -> Outcome:
    return Ok()


async def _no_tool(call: ToolCall) -> Outcome:
    raise AssertionError("a check ran although a person must be asked first")


def test_without_the_probe_every_doubt_waits_for_a_person() -> None:
    place = Place()
    place.restart(probe=False)
    assert verdicts(place.cross(LATE)) == ["awaiting-waiver"]
    assert place.asked == 0


def test_an_effect_whose_content_was_lost_is_had_again_and_noted() -> None:
    place = Place()
    lost = {"payload": {"package": "p"}, "declared": FETCH}
    place.outside.answer = lambda tenant, thing: Probe(count=place.count)  # type: ignore[method-assign]
    assert verdicts(place.cross(LATE, **lost)) == ["executed"]
    assert place.count == 2
    assert ("in-doubt", "lost") in [(kind, data.get("says")) for kind, data in place.notes]


def test_absent_counts_after_a_timeout_only_when_it_was_said_again_after_a_while() -> None:
    """The request may still be under way: here it arrives while nobody asks."""
    place = Place()
    sleep = place.time.sleep_ms

    async def lands(ms: float) -> None:
        await sleep(ms)
        if not place.count:
            place.outside.happen("acme", ("transport", "A-1"))

    place.time.sleep_ms = lands  # type: ignore[method-assign]
    place.restart()
    late = Err(code="timeout", definite=False)
    assert verdicts(place.cross(late)) == ["reconciled"]
    assert (place.count, place.time.slept) == (1, [SETTLE_MS])


def test_absent_counts_at_once_after_any_other_error_and_after_a_death() -> None:
    late, gone = Err(code="timeout", definite=False), Err(code="connection-reset", definite=False)
    own = Err(code="x", definite=False, verdict=Verdict.TIMED_OUT)
    said = [absence_counts(failed, False) for failed in (gone, None, late, own)]
    assert said == [True, True, False, False]
    assert absence_counts(late, True)
    place = Place()
    assert verdicts(place.cross(gone)) == ["executed"]
    assert place.time.slept == []
