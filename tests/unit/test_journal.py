"""The journal of steps: what is done is handed back after a crash, what was in flight runs again, or is asked about."""

from __future__ import annotations

import pytest

from arms.common.journal import Journal
from harness.core.errors import Crash
from harness.core.types import (
    Attempt,
    Commit,
    DelegationOutcome,
    EffectCall,
    Err,
    Ok,
    Outcome,
    Probe,
    Seam,
    Site,
    Verdict,
)
from harness.orchestrator.store import SqliteStore
from tests.unit.armbench import FETCH, Outside, attempt, context, effect, event, model, run, tool

LOST = Err(code="timeout", definite=False)


class Place:
    """A durable store, a boundary, and processes that come and go."""

    def __init__(self, probe: bool = False) -> None:
        self.store, self.outside, self.probes = SqliteStore(":memory:"), Outside(), probe
        self.asked = self.reached = 0
        self.layer = self.restart()

    def restart(self) -> Journal:
        async def probe(call: EffectCall) -> Probe:
            self.asked += 1
            return self.outside.answer("acme", _thing(call))

        self.layer = Journal(context(self.store, probe=probe), probe=self.probes)
        return self.layer

    def cross(self, *, fault: str = "", **call: object) -> Outcome:
        """An effect, with a crash before it, after it, or a lost answer."""

        async def beyond(asked: EffectCall) -> Outcome:
            self.reached += 1
            if fault == "before":
                raise Crash
            receipt = self.outside.happen("acme", _thing(asked))
            if fault == "after":
                raise Crash
            return LOST if fault == "lost" else Ok(value={"receipt": receipt}, receipt=receipt)

        fields = {"payload": event(n=self.reached), **call}
        return run(self.layer.on_effect(effect(**fields), beyond))

    def crash(self, fault: str, **call: object) -> None:
        with pytest.raises(Crash):
            self.cross(fault=fault, **call)
        self.restart()

    @property
    def count(self) -> int:
        return len(self.outside.held)


def _thing(call: EffectCall) -> tuple[str, str]:
    return call.boundary, str(call.payload.get("event", {}).get("subject", call.target))


def commit(step: str = "stage") -> Commit:
    site = Site(delegation="d", phase="p", seam=Seam.COMMIT, name=step)
    return Commit(site=site, call_id="s1", attempt=1, step=step, changes={})  # type: ignore[arg-type]


def test_every_kind_of_finished_step_is_handed_back_after_a_restart() -> None:
    place, reached = Place(), []

    async def beyond(call: object) -> Outcome:
        reached.append(call)
        return Ok(value={"n": len(reached)}, receipt=f"r{len(reached)}")

    def steps() -> list[Outcome]:
        layer = place.layer
        return [
            run(layer.on_model(model(), beyond)),
            run(layer.on_tool(tool("read"), beyond)),
            run(layer.on_effect(effect(), beyond)),
            run(layer.on_commit(commit("stage"), beyond)),
            run(layer.on_commit(commit("publish"), beyond)),
        ]

    first = steps()
    place.restart()
    again = steps()
    assert len(reached) == 5
    assert [(o.value, o.receipt) for o in again] == [(o.value, o.receipt) for o in first]
    assert {o.verdict for o in first} == {Verdict.EXECUTED}
    assert {o.verdict for o in again} == {Verdict.SUPPRESSED}


@pytest.mark.parametrize(
    "other",
    [{"attempt": 2}, {"turn": 1}, {"index": 1}, {"ordinal": 1}, {"delegation": "e"}],
    ids=lambda other: next(iter(other)),
)
def test_a_step_is_known_by_its_place_and_another_place_is_another_step(other: dict) -> None:
    place = Place()
    place.cross()
    place.restart()
    assert place.cross(**other).verdict is Verdict.EXECUTED
    assert place.count == 2


def test_another_spelling_and_another_call_at_the_same_place_are_the_same_step() -> None:
    place = Place()
    place.cross()
    place.restart()
    assert place.cross(payload=event("A-9"), call_id="e9", cause="t9").verdict is Verdict.SUPPRESSED
    assert place.count == 1


def test_a_step_that_failed_is_not_kept() -> None:
    place = Place()
    assert place.cross(fault="lost") is LOST
    assert place.cross().verdict is Verdict.EXECUTED
    assert place.count == 2


@pytest.mark.parametrize(("fault", "held"), [("before", 1), ("after", 2)])
def test_the_step_in_flight_runs_again_and_is_doubled_where_it_had_happened(fault: str, held: int) -> None:
    place = Place()
    place.crash(fault)
    assert place.cross().verdict is Verdict.EXECUTED
    assert (place.count, place.asked) == (held, 0)


# --- with the probe -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "verdict"), [("before", Verdict.EXECUTED), ("after", Verdict.RECONCILED)])
def test_with_the_probe_the_step_in_flight_is_asked_about(fault: str, verdict: Verdict) -> None:
    place = Place(probe=True)
    place.crash(fault)
    said = place.cross()
    assert (said.verdict, said.receipt) == (verdict, "1-0")
    assert (place.count, place.asked) == (1, 1)
    place.restart()
    assert place.cross().verdict is Verdict.SUPPRESSED


@pytest.mark.parametrize(("fault", "verdict"), [("before", Verdict.EXECUTED), ("after", Verdict.RECONCILED)])
def test_a_legitimate_repeat_in_flight_is_told_from_the_one_that_is_done(fault: str, verdict: Verdict) -> None:
    place = Place(probe=True)
    place.cross()
    place.crash(fault, ordinal=1)
    said = place.cross(ordinal=1)
    assert (said.verdict, said.receipt, place.count) == (verdict, "2-0", 2)


def test_a_boundary_that_cannot_tell_is_no_reason_to_wait_and_so_the_step_is_doubled() -> None:
    place = Place(probe=True)
    place.crash("after")
    place.outside.blind = {"transport"}
    assert place.cross().verdict is Verdict.EXECUTED
    assert place.count == 2


def test_an_effect_whose_content_is_needed_and_cannot_be_had_again_runs_again() -> None:
    place = Place(probe=True)
    fetch = {"payload": {"package": "p"}, "declared": FETCH}
    place.outside.answer = lambda tenant, thing: Probe(count=place.count)  # type: ignore[method-assign]
    place.crash("after", **fetch)
    assert place.cross(**fetch).verdict is Verdict.EXECUTED
    assert place.count == 2


def test_only_effects_are_asked_about() -> None:
    place = Place(probe=True)

    async def die(call: object) -> Outcome:
        raise Crash

    async def answer(call: object) -> Outcome:
        return Ok(value=None)

    with pytest.raises(Crash):
        run(place.layer.on_tool(tool("run_check"), die))
    assert run(place.restart().on_tool(tool("run_check"), answer)).verdict is Verdict.EXECUTED
    assert place.asked == 0


@pytest.mark.parametrize("resumed", [True, False])
def test_a_resumed_attempt_keeps_its_files_since_its_steps_are_not_done_again(resumed: bool) -> None:
    seen: list[Attempt] = []

    async def beyond(asked: Attempt) -> DelegationOutcome:
        seen.append(asked)
        return DelegationOutcome(status="done")

    run(Place().layer.on_delegate(Attempt(delegation=attempt().delegation, resumed=resumed), beyond))
    assert seen[0].keep_workspace is resumed
