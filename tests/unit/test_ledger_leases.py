"""The effect ledger: who may write, what a process that was replaced can still do, and answers that were paid for."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence

import pytest

from arms.mesh.ledger import (
    LEASE_MS,
    LOCAL,
    Lease,
    SqliteBackend,
    Write,
    holds,
    may_begin,
    may_take,
    open_backend,
)
from arms.mesh.m3_effects import EffectLedger
from harness.core.clock import Clock
from harness.core.errors import ConfigError, Crash
from harness.core.roles import ArmContext
from harness.core.types import (
    DelegationOutcome,
    EffectCall,
    EffectContract,
    ModelCall,
    Ok,
    Outcome,
    Refused,
    ToolCall,
    Verdict,
)
from harness.incidents.layerbench import on_virtual_time
from harness.orchestrator.store import SqliteStore
from tests.unit.armbench import attempt, context, effect, event, model, run, tool
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


# --- leases of several hosts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lease", "holder", "now_ms", "may"),
    [
        (Lease(), "north", 0.0, True),
        (Lease(3, "north", 9e9), "north", 0.0, True),  # started again
        (Lease(3, "south", 100.0), "north", 99.0, False),
        (Lease(3, "south", 100.0), "north", 100.0, True),
    ],
)
def test_a_lease_is_taken_when_it_is_free_ones_own_or_over(lease: Lease, holder: str, now_ms: float, may: bool) -> None:
    assert may_take(lease, holder, now_ms) is may


@pytest.mark.parametrize(
    ("lease", "token", "now_ms", "held"),
    [
        (Lease(3, "south", 100.0), 3, 99.0, True),
        (Lease(3, "south", 100.0), 2, 99.0, False),
        (Lease(3, "south", 100.0), 3, 100.0, False),  # it ran out: others count its work as over
        (Lease(3, LOCAL, 100.0), 3, 9e9, True),  # there are no others
        (Lease(3, LOCAL, 100.0), 2, 0.0, False),
    ],
)
def test_the_newest_token_writes_while_its_lease_lasts(lease: Lease, token: int, now_ms: float, held: bool) -> None:
    assert holds(lease, token, now_ms) is held


def host(place: Place, name: str, store: SqliteStore | None = None) -> EffectLedger:
    return EffectLedger(context(store or place.store, time=place.time, note=place.notes), holder=name)


def test_another_host_waits_for_a_lease_to_end_and_not_for_one_that_was_released() -> None:
    place = Place()

    async def stays(asked: object) -> DelegationOutcome:
        assert run(host(place, "south").on_delegate(attempt(), done)).status == "done"
        return DelegationOutcome(status="done")

    run(host(place, "north").on_delegate(attempt(), stays))
    assert LEASE_MS <= sum(place.time.slept) <= LEASE_MS + 100
    assert [data["from"] for kind, data in place.notes if kind == "lease"] == ["north"]
    slept = len(place.time.slept)
    run(host(place, "north").on_delegate(attempt(), done))
    assert len(place.time.slept) == slept


def test_a_host_that_waited_long_for_a_lease_that_is_kept_says_that_it_is_fenced() -> None:
    place = Place()
    north = SqliteBackend(context(place.store, time=place.time))
    token = north.lease("acme", "d", "north").token
    sleep = place.time.sleep_ms

    async def kept(ms: float) -> None:
        await sleep(ms)
        assert north.renew("acme", "d", token)

    place.time.sleep_ms = kept  # type: ignore[method-assign]
    ended = run(host(place, "south").on_delegate(attempt(), done))
    assert (ended.status, ended.verdict, "north" in ended.because) == ("stopped", Verdict.FENCED, True)


def test_a_crossing_keeps_the_lease_of_its_delegation_as_long_as_it_shows_progress() -> None:
    """A check may run longer than a lease lasts; one that hangs does not keep others out for ever."""

    async def played(units: Callable[[], int], ms: float) -> bool:
        place, clock = Place(), Clock()
        ctx = context(place.store, now_ms=clock.now_ms, sleep_ms=clock.sleep_ms, progress=lambda call_id: units())
        layer, other = EffectLedger(ctx, holder="north"), SqliteBackend(ctx)

        async def check(call: ToolCall) -> Outcome:
            await clock.sleep_ms(ms)
            return Ok(value=other.lease("acme", "d", "south").token == 0)

        async def work(asked: object) -> DelegationOutcome:
            kept.append((await layer.on_tool(tool("run_check"), check)).value)  # type: ignore[union-attr]
            return DelegationOutcome(status="done")

        kept: list[bool] = []
        await layer.on_delegate(attempt(), work)
        return kept[0]

    numbers = itertools.count()
    assert on_virtual_time(played(lambda: next(numbers), 30 * LEASE_MS))
    assert on_virtual_time(played(lambda: 0, 3 * LEASE_MS))
    assert not on_virtual_time(played(lambda: 0, 30 * LEASE_MS))


def test_a_contract_may_say_how_long_its_lease_lasts() -> None:
    place = Place()
    ctx = context(place.store, time=place.time, contract=EffectContract(terms={"lease_ms": 3_000.0}))

    async def stays(asked: object) -> DelegationOutcome:
        assert run(EffectLedger(ctx, holder="south").on_delegate(attempt(), done)).status == "done"
        return DelegationOutcome(status="done")

    run(EffectLedger(ctx, holder="north").on_delegate(attempt(), stays))
    assert 3_000 <= place.time.now <= 3_100


def test_a_process_that_stood_still_for_its_lease_has_no_effect() -> None:
    """Stopped after its reservation: it looks at its lease before it goes on."""
    place = Place()
    layer = host(place, "north")
    run(layer.on_delegate(attempt(), done))
    layer._leases._ledger.lease("acme", "d", "north")
    layer._leases._tokens["d"] += 1
    write = layer._commits.write

    async def stopped(writes: Sequence[Write], *, alone: bool, then: Callable[[], None]) -> bool:
        written = await write(writes, alone=alone, then=then)
        place.time.now += 2 * LEASE_MS
        return written

    layer._commits.write = stopped  # type: ignore[method-assign]
    assert verdicts(place.cross(layer=layer)) == ["fenced"]
    assert place.count == 0


def test_a_process_that_was_stopped_briefly_is_fenced_when_its_own_host_was_started_again() -> None:
    """A restarted host waits for no lease: the old process must look before the wire however little time has passed."""
    place = Place()
    layer = host(place, "north")
    run(layer.on_delegate(attempt(), done))
    layer._leases._ledger.lease("acme", "d", "north")
    layer._leases._tokens["d"] += 1
    write = layer._commits.write

    async def overtaken(writes: Sequence[Write], *, alone: bool, then: Callable[[], None]) -> bool:
        written = await write(writes, alone=alone, then=then)
        assert layer._leases._ledger.lease("acme", "d", "north").token
        return written

    layer._commits.write = overtaken  # type: ignore[method-assign]
    assert verdicts(place.cross(layer=layer)) == ["fenced"]
    assert place.count == 0


def test_an_effect_may_begin_under_the_newest_token_while_half_of_its_lease_is_left() -> None:
    lease = Lease(token=2, holder="north", expires_ms=LEASE_MS, length_ms=LEASE_MS)
    assert [may_begin(lease, 2, at * LEASE_MS) for at in (0.4, 0.6)] == [True, False]
    assert not may_begin(lease, 1, 0)
    assert may_begin(Lease(token=1, holder=LOCAL), 1, 10 * LEASE_MS)


# --- group commit -------------------------------------------------------------------------------------------------


class Counting(SqliteBackend):
    """Counts transactions."""

    def __init__(self, ctx: ArmContext) -> None:
        super().__init__(ctx)
        self.sizes: list[int] = []

    def write(self, writes: Sequence[Write]) -> list[bool]:
        self.sizes.append(len(writes))
        return super().write(writes)


async def at_once(n: int, layer: EffectLedger, beyond: Callable[[EffectCall], Awaitable[Outcome]]) -> list[Outcome]:
    calls = [effect(event(f"A-{i}"), cause=f"t{i}") for i in range(n)]
    return await asyncio.gather(*(layer.on_effect(call, beyond) for call in calls), return_exceptions=True)  # type: ignore[return-value]


def test_effects_that_are_ready_together_share_their_commits() -> None:
    place = Place()
    backend = Counting(context(place.store))
    layer = EffectLedger(context(place.store), backend=backend)
    run(layer.on_delegate(attempt(), done))

    async def beyond(call: EffectCall) -> Outcome:
        mine = f"%{call.payload['event']['subject']}%"
        assert place.store.query("SELECT state FROM ledger WHERE business LIKE ?", (mine,)) == [("reserved",)]
        await asyncio.sleep(0.001)
        return Ok(receipt=place.outside.happen("acme", thing_of(call)))

    said = asyncio.run(at_once(8, layer, beyond))
    assert verdicts(*said) == ["executed"] * 8
    assert sum(backend.sizes) == 16
    assert len(backend.sizes) <= 5  # the first one was alone when it came


def test_a_death_at_a_shared_commit_reaches_all_who_wait_and_writes_nothing() -> None:
    place = Place()

    def die() -> None:
        raise Crash("SIGKILL")

    async def beyond(call: EffectCall) -> Outcome:
        raise AssertionError("an effect without a reservation")

    place.store.before_commit = die
    said = asyncio.run(at_once(3, place.layer, beyond))
    place.store.before_commit = lambda: None
    assert [type(o) for o in said] == [Crash] * 3
    assert place.store.query("SELECT count(*) FROM ledger") == [(0,)]


def test_a_caller_that_gave_up_leaves_no_reservation_and_loses_no_record() -> None:
    place = Place()

    async def beyond(call: EffectCall) -> Outcome:
        await asyncio.sleep(0)
        return Ok(receipt=place.outside.happen("acme", thing_of(call)))

    async def given_up_after(turns: int) -> None:
        calls = [effect(event(f"A-{turns}-{i}"), cause=f"t{turns}{i}") for i in range(2)]
        tasks = [asyncio.ensure_future(place.layer.on_effect(call, beyond)) for call in calls]
        for _ in range(turns):
            await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    for turns in range(9):
        asyncio.run(given_up_after(turns))
        entries = place.store.query("SELECT count(*) FROM ledger WHERE state='recorded'")
        doubted = place.store.query("SELECT count(*) FROM ledger WHERE state<>'recorded'")[0][0]
        assert place.count - entries[0][0] in (0, doubted)
        assert doubted <= turns, "a reservation was left although nothing was begun"


def test_a_ledger_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown kind of ledger 'mysql'"):
        open_backend(context(), "mysql://host/db")
    assert isinstance(open_backend(context()), SqliteBackend)
