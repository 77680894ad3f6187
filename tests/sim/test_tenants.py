"""Whole trials of two tenants on three orchestrators: who died, who was started again, and who went on meanwhile.

Arms that cheat with the name of their host or with another tenant's records are here too, and what the oracle says of
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest
from msgspec.structs import replace

from arms.common.business import business_key
from arms.mesh.arm import layers as mesh_layers
from arms.mesh.m3_effects import EffectLedger
from faults import FAULTS
from harness.core.errors import ConfigError
from harness.core.records import Event, ScoredTrial, SealedTrial, hosts
from harness.core.roles import Arm, ArmContext
from harness.core.seams import Layer, NextEffect, PassThrough
from harness.core.types import EffectCall, Ok, Outcome, Verdict
from harness.pool import run_trial_sim
from harness.query import extract
from harness.runner import Result
from harness.schedule import TrialSpec
from harness.score import score
from harness.telemetry.spans import spans
from harness.timeline import course
from harness.trial import RESTART_MS
from tests.sim.test_trials import digest, spec
from workloads.oracles import ORACLES
from workloads.tenants.task import HOSTS

HOST_OF = {id: host for host, ids in HOSTS.items() for id in ids}
HERE = "tests.sim.test_tenants"


def tenants(arm: str, fault: str = "none", variant: str = "", seed: int = 0, variation: int = 3) -> TrialSpec:
    return replace(spec(arm, fault, variant, seed, variation), workload="tenants")


def sealed(result: Result) -> SealedTrial:
    return SealedTrial(record=result.record, trace=tuple(result.trace), truth=tuple(result.truth))


def judged(result: Result) -> ScoredTrial:
    return score(sealed(result), ORACLES["tenants"])


def fired(truth: list[Event]) -> list[Event]:
    return [e for e in truth if e.kind == "fault" and e.data["state"] == "fired"]


# --- processes ----------------------------------------------------------------------------------------------------


DEADLY = [(f, v) for f in ("staging_crash", "orchestrator_restart") for v in FAULTS[f].variants]


@cache
def deadly(arm: str) -> tuple[Result, ...]:
    """Trials in which orchestrators die, of every kind of death."""
    return tuple(run_trial_sim(tenants(arm, f, v, seed)) for f, v in DEADLY for seed in range(2))


@pytest.mark.parametrize("arm", ["naive", "mesh"])
def test_processes_are_numbered_over_all_hosts_in_the_order_of_their_starts(arm: str) -> None:
    for result in deadly(arm):
        begun = [e for e in result.trace if e.kind == "epoch"]
        assert [e.epoch for e in begun] == [e.data["epoch"] for e in begun] == list(range(len(begun)))
        assert [e.data["host"] for e in begun[:3]] == list(HOSTS)
        deaths = Counter(hosts(result.trace)[e.data["epoch"]] for e in result.truth if e.kind == "exit")
        assert Counter(e.data["host"] for e in begun) == Counter(HOSTS.keys()) + deaths
    assert sum(len(r.trace and [e for e in r.trace if e.kind == "epoch"]) for r in deadly(arm)) > 4 * len(DEADLY)


@pytest.mark.parametrize("arm", ["naive", "mesh"])
def test_no_two_calls_of_a_trial_have_the_same_id(arm: str) -> None:
    for result in deadly(arm):
        ids = Counter(e.data["call_id"] for e in result.trace if e.kind == "call")
        assert max(ids.values()) == 1


@pytest.mark.parametrize("arm", ["naive", "mesh"])
def test_each_event_has_the_number_of_a_process_of_the_host_whose_delegation_it_is_of(arm: str) -> None:
    for result in deadly(arm):
        placed, seen = hosts(result.trace), Counter[str]()
        for event in (*result.trace, *result.truth):
            delegation = (event.data.get("site") or event.data) if event.kind != "billed" else event.data["metadata"]
            of = delegation.get("delegation") if isinstance(delegation, dict) else None
            if of in HOST_OF and event.kind not in ("defective",) and event.data.get("state") != "armed":
                if event.kind == "fault" and event.data["state"] == "observed":
                    continue  # settled after the trial, by nobody's process
                assert placed[event.epoch] == HOST_OF[of], event
                seen[event.kind] += 1
            if event.kind == "exit":
                assert event.epoch == event.data["epoch"]
        assert {"call", "crossed", "checkpoint", "checked", "billed", "fault"} <= seen.keys()


def test_a_fault_that_needs_a_restart_strikes_only_a_host_that_was_started_again() -> None:
    struck = 0
    for result in deadly("naive"):
        armed = {e.data["fault"]: e.data for e in result.truth if e.kind == "fault" and e.data["state"] == "armed"}
        placed = hosts(result.trace)
        for event in fired(result.truth):
            wanted = armed[event.data["fault"]]["strike"].get("epoch_min", 0)
            before = sum(placed[n] == placed[event.epoch] for n in range(event.epoch))
            assert before >= wanted
            struck += wanted > 0
    assert struck > 0


def outages(result: Result) -> Iterator[tuple[str, float, float]]:
    """Host, death and next start of each process that died."""
    placed = hosts(result.trace)
    for death in (e for e in result.truth if e.kind == "exit"):
        host = placed[death.data["epoch"]]
        again = (e.at_ms for e in result.trace if e.kind == "epoch" and e.data["host"] == host)
        yield host, death.at_ms, next(ms for ms in again if ms > death.at_ms)


def test_a_dead_host_is_started_again_while_the_others_go_on() -> None:
    went_on = 0
    for result in deadly("naive"):
        placed = hosts(result.trace)
        for host, died_ms, again_ms in outages(result):
            meanwhile = [placed[e.epoch] for e in result.trace if died_ms < e.at_ms < again_ms]
            assert host not in meanwhile
            assert again_ms - died_ms == pytest.approx(RESTART_MS)
            went_on += bool(meanwhile)
    assert went_on > len(DEADLY)


def test_a_host_whose_restarts_are_used_up_ends_the_trial_at_once() -> None:
    for seed in range(4):
        one = tenants("mesh", "staging_crash", "effect_unrecorded", seed)
        result = run_trial_sim(replace(one, limits=replace(one.limits, restarts=0)))
        deaths = [e for e in result.truth if e.kind == "exit"]
        assert (result.record.status, result.record.because) == ("stuck", "restart limit")
        assert len([e for e in result.trace if e.kind == "epoch"]) == 3
        assert result.record.duration_ms == pytest.approx(deaths[0].at_ms + RESTART_MS)


def _broken_in_south(ctx: ArmContext) -> tuple[Layer, ...]:
    if ctx.worker == "south":
        raise ConfigError("it has no south")
    return mesh_layers(ctx)


BROKEN_IN_SOUTH = Arm(name="broken_in_south", about="Cannot be put together on one host.", layers=_broken_in_south)


def test_a_defect_in_one_host_makes_the_trial_invalid() -> None:
    record = run_trial_sim(tenants(f"{HERE}:BROKEN_IN_SOUTH")).record
    assert record.status == "invalid"
    assert "cannot be put together: it has no south" in record.because


def test_equal_specs_give_equal_bytes() -> None:
    for seed, (fault, variant) in enumerate((f, c.variants[0]) for f, c in FAULTS.items()):
        for arm in ("naive", "mesh"):
            one = tenants(arm, fault, variant, seed)
            assert digest(run_trial_sim(one)) == digest(run_trial_sim(one))


@pytest.mark.parametrize("variation", range(6))
def test_in_every_wording_both_arms_do_the_twelve_effects_once_when_nothing_fails(variation: int) -> None:
    for arm in ("naive", "mesh"):
        scored = judged(run_trial_sim(tenants(arm, seed=variation, variation=variation)))
        assert {f.status for f in scored.findings} == {"exactly_once"}
        assert scored.success


# --- arms that cheat ----------------------------------------------------------------------------------------------


class OnOneHost(PassThrough):
    """Has effects on one host only, and vouches for those of all others."""

    def __init__(self, ctx: ArmContext) -> None:
        self._idle = ctx.worker != "north"

    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome:
        if not self._idle:
            return await next(call)
        body = {"body_b64": "", "content_type": "application/zip", "choices": [{"message": {"content": "yes"}}]}
        return Ok(value=body, receipt="0-1", verdict=Verdict.SUPPRESSED)


class AnswersForAll(PassThrough):
    """Answers a tenant from what was recorded for any other, where content alone tells nothing apart."""

    def __init__(self, ctx: ArmContext) -> None:
        self._ctx = ctx
        with ctx.store.transaction() as db:
            db.execute("CREATE TABLE IF NOT EXISTS anybody (business TEXT PRIMARY KEY, delegation TEXT)")

    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome:
        mine = (business_key(self._ctx, call), call.site.delegation)
        with self._ctx.store.transaction() as db:
            db.execute("INSERT OR IGNORE INTO anybody VALUES (?, ?)", mine)
        (first,) = self._ctx.store.query("SELECT delegation FROM anybody WHERE business=?", mine[:1])
        if first[0] == mine[1] or call.boundary not in ("registry", "provider"):
            return await next(call)
        body = {"body_b64": "", "content_type": "application/zip", "choices": [{"message": {"content": "yes"}}]}
        return Ok(value=body, verdict=Verdict.SUPPRESSED)


class WritesForAnother(EffectLedger):
    """Before it has an effect it writes into the other tenant's ledger that this one had it."""

    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome:
        tenant, _, part = call.site.delegation.partition("/")
        other = {"ash": "birch", "birch": "ash"}.get(tenant)

        async def after(call: EffectCall) -> Outcome:
            with self._ctx.store.transaction() as db:
                row = "?, ?, boundary, fingerprint, occurrence, '', 'recorded', 0, '{}', receipt"
                where = "state='reserved' AND delegation=? AND boundary=?"
                mine = (other, f"{other}/{part}", call.site.delegation, call.boundary)
                db.execute(f"INSERT OR IGNORE INTO ledger SELECT {row} FROM ledger WHERE {where}", mine)
            return await next(call)

        return await super().on_effect(call, after if other else next)


ON_ONE_HOST = Arm(
    name="on_one_host",
    about="Sabotage.",
    layers=lambda ctx: (*mesh_layers(ctx, m3=False), OnOneHost(ctx)),
    contained=True,
)
ANSWERS_FOR_ALL = Arm(
    name="answers_for_all",
    about="Sabotage.",
    layers=lambda ctx: (AnswersForAll(ctx), *mesh_layers(ctx)),
    contained=True,
)


def _writing(ctx: ArmContext) -> tuple[Layer, ...]:
    cheat = WritesForAnother(ctx, holder=ctx.worker)
    return tuple(cheat if isinstance(layer, EffectLedger) else layer for layer in mesh_layers(ctx))


WRITES_FOR_ANOTHER = Arm(name="writes_for_another", about="Sabotage.", layers=_writing, contained=True)


def harm(arm: str, seed: int = 0) -> dict[str, tuple[str, int, int]]:
    """What is not there as it should be, by the start of its key: status, required, observed."""
    scored = judged(run_trial_sim(tenants(f"{HERE}:{arm}", seed=seed, variation=0)))
    return {
        f.key.partition(":")[0].partition("==")[0]: (f.status, f.required, f.observed)
        for f in scored.findings
        if f.status != "exactly_once"
    }


def test_what_the_idle_hosts_vouched_for_is_missed() -> None:
    silent = "over_suppressed_silent"
    assert harm("ON_ONE_HOST") == {
        "meshmoney": (silent, 2, 1),
        "invoice": (silent, 2, 1),
        "birch.orders/A-1306": (silent, 1, 0),
        "birch/order.line/A-1306": (silent, 2, 0),
        "ops.settlements/S-1306": ("never_attempted", 1, 0),  # it finds no order of birch's
    }


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("arm", ["ANSWERS_FOR_ALL", "WRITES_FOR_ANOTHER"])
def test_a_tenant_that_was_answered_from_the_records_of_another_is_found(arm: str, seed: int) -> None:
    missing = ("over_suppressed_silent", 2, 1)
    assert harm(arm, seed) == {"meshmoney": missing, "invoice": missing}


# --- who it was ---------------------------------------------------------------------------------------------------


def test_the_tables_and_the_timeline_say_which_host() -> None:
    result = next(r for r in deadly("mesh") if any(e.kind == "exit" for e in r.truth))
    processes = extract.of_trial(sealed(result))["processes"]
    begun = [e for e in result.trace if e.kind == "epoch"]
    assert [(p["epoch"], p["host"]) for p in processes] == [(e.epoch, e.data["host"]) for e in begun]
    drawn = course(sealed(result))
    lanes = {span.lane for span in drawn.spans if span.lane.startswith("process")}
    assert lanes == {f"process {host}" for host in HOSTS}
    died = {hosts(result.trace)[e.data["epoch"]] for e in result.truth if e.kind == "exit"}
    assert {mark.lane for mark in drawn.marks if mark.kind == "exit"} == {f"process {host}" for host in died}


def test_a_span_of_an_attempt_says_which_host() -> None:
    result = deadly("mesh")[0]
    attempts = [s for s in spans(sealed(result)) if s.key.startswith("attempt/")]
    said = {(s.attributes["agentmesh.delegation"], s.attributes["agentmesh.host"]) for s in attempts}
    assert said == {(id, host) for id, host in HOST_OF.items()}
