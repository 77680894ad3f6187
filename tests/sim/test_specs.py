"""Trace specifications on whole trials: honest ones break none, and a trial with one defect breaks just one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from arms import ARMS
from faults import FAULTS
from harness.core.records import Event, SealedTrial
from harness.pool import run_trial_sim
from harness.specs import check, registered, standard
from tests.sim.test_trials import spec

HONEST = ("naive", "journaled", "mesh")


@functools.cache
def sealed(arm: str, fault: str = "none", variant: str = "", workload: str = "codegen", seed: int = 5) -> SealedTrial:
    done = run_trial_sim(replace(spec(arm, fault, variant, seed=seed), workload=workload))
    return SealedTrial(record=done.record, trace=tuple(done.trace), truth=tuple(done.truth))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("arm", HONEST)
def test_an_honest_trial_breaks_no_specification(arm: str, fault: str) -> None:
    for variant in FAULTS[fault].variants[:4]:
        assert [(v.spec, v.prefix) for v in check(sealed(arm, fault, variant))] == []


@pytest.mark.parametrize("arm", [arm for arm in ARMS if arm not in HONEST])
def test_no_arm_breaks_a_specification(arm: str) -> None:
    for fault in ("staging_crash", "network_partition"):
        assert [(v.spec, v.prefix) for v in check(sealed(arm, fault, FAULTS[fault].variants[-1]))] == []


@pytest.mark.parametrize("arm", HONEST)
def test_waking_repairs_breaks_no_specification(arm: str) -> None:
    assert [(v.spec, v.prefix) for v in check(sealed(arm, workload="relay"))] == []


# --- one defect, one violation ------------------------------------------------------------------------------------

Log = list[Event]


def at(log: Log, kind: str, nth: int = 0, **data: Any) -> int:
    """Position of the nth event of a kind that has this data, in itself or in its site."""
    found = [i for i, e in enumerate(log) if e.kind == kind and fields(e).items() >= data.items()]
    return found[nth]


def fields(event: Event) -> dict[str, Any]:
    """Its data, and that of the site of a call."""
    site = event.data.get("site")
    return {**site, **event.data} if isinstance(site, dict) else event.data


def put(log: Log, position: int, kind: str, **data: Any) -> None:
    """A new event at a position, with the time and epoch of the one before it."""
    near = log[max(0, min(position, len(log)) - 1)]
    log.insert(position, Event(near.seq, near.at_ms, near.epoch, kind, data))


def alter(log: Log, position: int, **data: Any) -> None:
    log[position] = Event(
        *(getattr(log[position], name) for name in Event.__struct_fields__[:-1]), {**log[position].data, **data}
    )


def read_call(trace: Log) -> dict[str, Any]:
    """A call of a tool that only reads, in the middle of a trial."""
    return trace[at(trace, "call", 3, call="tool", tool="read")].data


def answer(trace: Log, **call: Any) -> int:
    """Position of the outcome of a call."""
    return at(trace, "outcome", call_id=trace[at(trace, "call", **call)].data["call_id"])


def ghost_answer(trace: Log, truth: Log) -> None:
    put(trace, len(trace), "outcome", call_id="ghost", result="ok", verdict="executed", code="")


def second_answer(trace: Log, truth: Log) -> None:
    place = at(trace, "outcome", call_id=read_call(trace)["call_id"])
    trace.insert(place, trace[place])


def no_answer(trace: Log, truth: Log) -> None:
    del trace[at(trace, "outcome", call_id=read_call(trace)["call_id"])]


def mute_refusal(trace: Log, truth: Log) -> None:
    alter(trace, at(trace, "outcome", call_id=read_call(trace)["call_id"]), result="refused", verdict=None)


def odd_verdict(trace: Log, truth: Log) -> None:
    alter(trace, at(trace, "outcome", call_id=read_call(trace)["call_id"]), verdict="fine")


def foreign_attempt(trace: Log, truth: Log) -> None:
    alter(trace, at(trace, "call", call_id=read_call(trace)["call_id"]), attempt=9)


def overlap(trace: Log, truth: Log) -> None:
    first = at(trace, "attempt", delegation="orders")
    trace.insert(first + 1, replace(trace[first], data={**trace[first].data, "attempt": 2}))


def turn_after_the_end(trace: Log, truth: Log) -> None:
    end = trace.pop(at(trace, "delegation_end", delegation="inventory"))
    trace.insert(at(trace, "turn", -1, delegation="inventory"), end)


def phase_again(trace: Log, truth: Log) -> None:
    alter(trace, at(trace, "phase", 1, delegation="orders"), phase="test_design")


def unstaged(trace: Log, truth: Log) -> None:
    alter(trace, answer(trace, call="commit", name="stage"), result="err", code="io")


def unpublished(trace: Log, truth: Log) -> None:
    alter(trace, answer(trace, call="commit", name="publish"), result="err", code="io")


def unpaid(trace: Log, truth: Log) -> None:
    alter(trace, at(trace, "turn", 5), completion="cmpl-free")


def unarmed(trace: Log, truth: Log) -> None:
    del truth[at(truth, "fault", state="armed", fault=0)]


def observed_only(trace: Log, truth: Log) -> None:
    del truth[at(truth, "fault", state="fired", fault=0)]


def expired_too(trace: Log, truth: Log) -> None:
    put(truth, len(truth), "fault", fault=0, state="expired")


def crossed_when_dead(trace: Log, truth: Log) -> None:
    answered = {e.data["call_id"] for e in trace if e.kind == "outcome"}
    crossing = next(e for e in truth if e.kind == "crossed" and e.data["call_id"] not in answered)
    truth.append(replace(crossing, at_ms=truth[-1].at_ms + 1))


def asked_when_dead(trace: Log, truth: Log) -> None:
    call = next(i for i, e in enumerate(trace) if e.kind == "call" and e.epoch == 1 and e.data["call"] == "tool")
    trace[call] = replace(trace[call], epoch=0)


def same_process(trace: Log, truth: Log) -> None:
    alter(trace, at(trace, "epoch", 1), epoch=0)


def unasked_crossing(trace: Log, truth: Log) -> None:
    put(truth, len(truth), "crossed", call_id="ghost", boundary="transport", delegation="orders", attempt=1)


def late_crossing(trace: Log, truth: Log) -> None:
    truth.append(replace(truth[at(truth, "crossed")], at_ms=truth[-1].at_ms + 1))


def effect_from_nowhere(trace: Log, truth: Log) -> None:
    put(truth, 1, "effect", boundary="transport", receipt="0-0")


def moved_call(trace: Log, truth: Log) -> None:
    put(truth, len(truth), "tampered", call_id=read_call(trace)["call_id"], delegation="orders")


def delivered_unbilled(trace: Log, truth: Log) -> None:
    put(truth, len(truth), "delivered", completion="cmpl-free", bytes=1)


def billed_twice(trace: Log, truth: Log) -> None:
    truth.append(replace(truth[at(truth, "billed")], at_ms=truth[-1].at_ms))


def ledger(state: str, change: Callable[[Log, int], None]) -> Callable[[Log, Log], None]:
    def edit(trace: Log, truth: Log) -> None:
        change(trace, at(trace, "note", note="ledger", state=state))

    return edit


def drop(trace: Log, place: int) -> None:
    del trace[place]


def other_entry(trace: Log, place: int) -> None:
    alter(trace, place, entry="transport/000000000000/0")


def old_token(trace: Log, place: int) -> None:
    alter(trace, place, token=0)


def given_back(trace: Log, truth: Log) -> None:
    commit = at(trace, "call", 2, call="commit")
    delegation = trace[commit].data["site"]["delegation"]
    put(trace, commit + 1, "note", note="ledger", state="held", delegation=delegation, token=1)
    put(trace, commit, "note", note="ledger", state="released", delegation=delegation, token=1)


def let_out_of_quarantine(trace: Log, truth: Log) -> None:
    call_id = trace[at(trace, "call", tool="run_check")].data["call_id"]
    place = at(trace, "outcome", call_id=call_id)
    put(trace, place, "note", note="quarantine", check="unit", call_id=call_id, ruling="give-up", held=True)


def unfounded_quarantine(trace: Log, truth: Log) -> None:
    call_id = trace[at(trace, "call", tool="run_check")].data["call_id"]
    alter(trace, at(trace, "outcome", call_id=call_id), verdict="quarantined")


def overdrawn(quantity: str) -> Callable[[Log, Log], None]:
    def edit(trace: Log, truth: Log) -> None:
        alter(trace, at(trace, "note", note="budget"), **{f"{quantity}_left": -1})

    return edit


CRASH = ("staging_crash", "effect_unacknowledged")
FLIP = ("nondeterminism", "flip")
DEFECTS: dict[str, tuple[tuple[str, ...], Callable[[Log, Log], None]]] = {
    "answer_to_a_call": (("naive",), ghost_answer),
    "one_answer_to_a_call": (("naive",), second_answer),
    "every_call_is_answered": (("naive",), no_answer),
    "refusal_has_a_verdict": (("naive",), mute_refusal),
    "verdict_is_known": (("naive",), odd_verdict),
    "call_in_its_attempt": (("naive",), foreign_attempt),
    "attempts_do_not_overlap": (("naive",), overlap),
    "nothing_after_the_end": (("naive",), turn_after_the_end),
    "phases_in_order": (("naive",), phase_again),
    "published_after_staged": (("naive",), unstaged),
    "accepted_after_published": (("naive",), unpublished),
    "turn_was_paid_for": (("naive",), unpaid),
    "fired_after_armed": (("naive", *FLIP), unarmed),
    "observed_after_fired": (("naive", *FLIP), observed_only),
    "expired_or_fired": (("naive", *FLIP), expired_too),
    "the_dead_cross_nothing": (("mesh", *CRASH), crossed_when_dead),
    "the_dead_ask_nothing": (("mesh", *CRASH), asked_when_dead),
    "processes_follow_each_other": (("mesh", *CRASH), same_process),
    "crossing_was_asked_for": (("naive",), unasked_crossing),
    "nothing_crosses_after_its_answer": (("naive",), late_crossing),
    "effect_after_a_crossing": (("naive",), effect_from_nowhere),
    "calls_stay_in_their_place": (("naive",), moved_call),
    "delivered_after_billed": (("naive",), delivered_unbilled),
    "billed_once": (("naive",), billed_twice),
    "reserved_before_crossing": (("mesh",), ledger("reserved", drop)),
    "recorded_before_ok": (("mesh",), ledger("recorded", drop)),
    "suppressed_by_an_entry": (("mesh", *CRASH), ledger("repeated", drop)),
    "repeated_was_recorded": (("mesh", *CRASH), ledger("repeated", other_entry)),
    "written_under_the_newest_lease": (("mesh",), ledger("reserved", old_token)),
    "nothing_after_the_lease": (("mesh",), given_back),
    "quarantined_answer_is_withheld": (("mesh",), let_out_of_quarantine),
    "quarantine_is_noted": (("mesh",), unfounded_quarantine),
    "tokens_never_overdrawn": (("mesh",), overdrawn("tokens")),
    "turns_never_overdrawn": (("mesh",), overdrawn("turns")),
}


def defective(base: tuple[str, ...], edit: Callable[[Log, Log], None]) -> SealedTrial:
    trial = sealed(*base)
    trace, truth = list(trial.trace), list(trial.truth)
    edit(trace, truth)
    return SealedTrial(record=trial.record, trace=tuple(trace), truth=tuple(truth))


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_breaks_its_specification_and_no_other(name: str) -> None:
    assert [(v.spec, v.times) for v in check(defective(*DEFECTS[name]))] == [(name, 1)]


def test_a_fatal_fault_without_a_death_is_found() -> None:
    def survived(trace: Log, truth: Log) -> None:
        put(truth, len(truth), "fault", fault=0, state="fired", fate="die", call_id="c0.0")

    (violation,) = check(defective(("naive", *FLIP), survived))
    assert (violation.spec, violation.prefix[-1].kind) == ("death_of_a_fatal_fault", "trial")


def test_every_specification_has_a_defect_that_breaks_it() -> None:
    assert {s.id for s in registered()} == {*DEFECTS, "death_of_a_fatal_fault"}


def test_what_is_said_of_a_primitive_is_asked_where_its_layer_is() -> None:
    asked = {arm: set(standard().asked(sealed(arm))) for arm in ("naive", "mesh", "mesh_without_m3")}
    assert "reserved_before_crossing" in asked["mesh"]
    assert "reserved_before_crossing" not in asked["mesh_without_m3"] | asked["naive"]
    assert "tokens_never_overdrawn" in asked["mesh_without_m3"]
