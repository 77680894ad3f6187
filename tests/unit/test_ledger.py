"""The effect ledger as a state machine: processes die anywhere, come back, live on as zombies, and lose sight.

Two tenants share one durable store and have delegations of the same names; a delegation's check has a growing list of
effects, legitimate repeats among them, and is run again and again. Each run spells its effects anew.
"""

from __future__ import annotations

import itertools
import tempfile
import types
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec import Struct

from arms.mesh.m3_effects import EffectLedger
from harness.core.errors import Crash
from harness.core.roles import ArmContext
from harness.core.types import DelegationOutcome, EffectCall, Err, Ok, Outcome, Probe, Refused, Verdict
from harness.orchestrator.store import SqliteStore
from tests.unit import armbench
from tests.unit.armbench import EVENT, HOOK, Outside

HOLDERS = (("red", "build"), ("red", "ship"), ("blue", "build"))
"""Tenant and delegation."""

TENANTS = ("red", "blue")
NAMES = ("build", "ship")
THINGS = (("transport", "A-1"), ("transport", "A-2"), ("hook", "report.json"))  # boundary, business key
FAULTS = ("unreserved", "before", "after", "unrecorded", "definite", "request lost", "answer lost")
DEADLY = FAULTS[:4]

Thing = tuple[str, str]
SETTINGS = settings(
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


@types.coroutine
def standstill() -> Generator[None, None, None]:
    """The process is stopped here, until somebody wakes it."""
    yield


class Life(Struct):
    """One process of a tenant: its connection to the durable store, and its layer."""

    tenant: str
    store: SqliteStore
    layer: EffectLedger


def die() -> None:
    raise Crash("SIGKILL")


class LedgerMachine(RuleBasedStateMachine):
    """See the module. `doubt`: (tenant, delegation, thing, occurrence) that were begun and not answered for."""

    made: ClassVar[Callable[[ArmContext], EffectLedger]] = EffectLedger

    @initialize(scripts=st.tuples(*[st.lists(st.sampled_from(THINGS), min_size=1, max_size=4) for _ in HOLDERS]))
    def start(self, scripts: tuple[list[Thing], ...]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.outside = Outside()
        self.numbers = itertools.count()
        self.scripts = dict(zip(HOLDERS, scripts, strict=True))
        self.doubt: set[tuple[str, str, Thing, int]] = set()
        self.zombies: list[Life] = []
        self.frozen: list[tuple[Life, Coroutine[Any, Any, Outcome]]] = []
        self.lives = {tenant: self.begin(tenant) for tenant in TENANTS}

    def begin(self, tenant: str) -> Life:
        """A new process on the same durable state, which takes all delegations of its tenant over."""
        store = SqliteStore(str(Path(self.folder.name) / "state.db"))
        store.query("PRAGMA synchronous=OFF")  # processes die here, machines do not

        async def probe(call: EffectCall) -> Probe:
            return self.outside.answer(tenant, thing_of(call))

        context = armbench.context(store, probe=probe)
        life = Life(tenant, store, type(self).made(context))

        async def lived(attempt: object) -> DelegationOutcome:
            return DelegationOutcome(status="done")

        for name in NAMES:
            armbench.run(life.layer.on_delegate(armbench.attempt(name, tenant), lived))
        return life

    # --- one effect, one check ------------------------------------------------------------------------------------

    def crossing(self, life: Life, name: str, thing: Thing, cause: str, fault: str) -> Coroutine[Any, Any, Outcome]:
        """An effect on its way through the layer; the fault strikes at its first crossing of the boundary."""
        n = next(self.numbers)
        hook = thing[0] == "hook"
        payload = {"path": thing[1], "digest": f"{n}"} if hook else armbench.event(thing[1], n=n)
        call = armbench.effect(payload, HOOK if hook else EVENT, name, call_id=f"e{n}", cause=cause)
        left = [fault]

        async def beyond(call: EffectCall) -> Outcome:
            fault = left.pop() if left else ""
            if fault == "before":
                die()
            if fault in ("definite", "request lost"):
                return Err(code="http-503" if fault == "definite" else "timeout", definite=fault == "definite")
            receipt = self.outside.happen(life.tenant, thing)
            if fault == "frozen":
                await standstill()
            if fault == "after":
                die()
            if fault == "unrecorded":
                life.store.before_commit = die
            if fault == "answer lost":
                return Err(code="timeout", definite=False)
            return Ok(value={"receipt": receipt}, receipt=receipt)

        life.store.before_commit = die if fault == "unreserved" else lambda: None
        return life.layer.on_effect(call, beyond)

    def check(self, holder: tuple[str, str], at: int, fault: str, patient: bool) -> bool:
        """Run the check of a delegation with a fault at one of its effects; whether it passed. patient: its client
        tries once more when it gets an error."""
        (tenant, name), script = holder, self.scripts[holder]
        life, cause, at = self.lives[tenant], f"t{next(self.numbers)}", at % len(script)
        for place, thing in enumerate(script):
            key = (tenant, name, thing, script[:place].count(thing))
            struck = fault if place == at else ""
            outcome = self.effect(life, key, cause, struck)
            if isinstance(outcome, Err) and patient:
                outcome = self.effect(life, key, cause, "")
            if not isinstance(outcome, Ok):
                return False
        return True

    def effect(self, life: Life, key: tuple[str, str, Thing, int], cause: str, fault: str) -> Outcome | None:
        """One effect of a check; None when the process died of it, and was followed by another."""
        tenant, name, thing, _ = key
        before, doubted = len(self.outside.held), key in self.doubt
        try:
            outcome: Outcome = armbench.run(self.crossing(life, name, thing, cause, fault))
        except Crash:
            self.doubt |= {key} if fault != "unreserved" else set()
            life.store.close()
            self.lives[tenant] = self.begin(tenant)
            return None
        finally:
            life.store.before_commit = lambda: None
        self.judge(outcome, doubted, len(self.outside.held) - before, thing, fault)
        self.settle(key, outcome)
        return outcome

    def settle(self, key: tuple[str, str, Thing, int], outcome: Outcome) -> None:
        if isinstance(outcome, Ok) or (isinstance(outcome, Err) and outcome.definite):
            self.doubt.discard(key)
        else:
            self.doubt.add(key)

    def judge(self, outcome: Outcome, doubted: bool, more: int, thing: Thing, fault: str) -> None:
        """What a single answer must agree with, whatever came before."""
        sees, unheard = self.outside.sees(thing[0]), fault == "answer lost"
        if isinstance(outcome, Ok):
            assert outcome.receipt in {h.receipt for h in self.outside.held if h.what == thing}
            assert sees or not doubted, "a doubt was settled by a guess"
            assert more in {Verdict.EXECUTED: (1,), Verdict.RECONCILED: (0, unheard)}.get(outcome.verdict, (0,))
        elif isinstance(outcome, Refused):
            assert outcome.verdict is Verdict.AWAITING_WAIVER
            assert not sees
            assert doubted or fault in ("answer lost", "request lost")
            assert more <= unheard
        else:
            assert (fault, more) == ("definite", 0)

    # --- what can happen ------------------------------------------------------------------------------------------

    @rule(holder=st.sampled_from(HOLDERS), thing=st.sampled_from(THINGS))
    def intend(self, holder: tuple[str, str], thing: Thing) -> None:
        """One effect more is wanted; one that is in the list already is a legitimate repeat."""
        if len(self.scripts[holder]) < 5:
            self.scripts[holder].append(thing)

    @rule(
        holder=st.sampled_from(HOLDERS),
        at=st.integers(0, 4),
        fault=st.sampled_from(FAULTS),
        patient=st.booleans(),
    )
    def run_a_check_into_a_fault(self, holder: tuple[str, str], at: int, fault: str, patient: bool) -> None:
        self.passed(holder, self.check(holder, at, fault, patient))

    @rule(holder=st.sampled_from(HOLDERS))
    def run_a_check(self, holder: tuple[str, str]) -> None:
        self.passed(holder, self.check(holder, 0, "", False))

    def passed(self, holder: tuple[str, str], passed: bool) -> None:
        for thing in self.scripts[holder] if passed else ():
            held = len(self.outside.receipts(holder[0], thing))
            assert held >= self.scripts[holder].count(thing), "a passed check lacks an effect"

    @rule(tenant=st.sampled_from(TENANTS))
    def replace_a_process_that_lives_on(self, tenant: str) -> None:
        self.zombies.append(self.lives[tenant])
        self.lives[tenant] = self.begin(tenant)

    @rule(holder=st.sampled_from(HOLDERS), at=st.integers(0, 4))
    def stop_a_process_within_an_effect(self, holder: tuple[str, str], at: int) -> None:
        """It had its effect and does not know yet; another process takes over."""
        (tenant, name), script = holder, self.scripts[holder]
        life, cause = self.lives[tenant], f"t{next(self.numbers)}"
        for place, thing in enumerate(script[: at + 1]):
            key = (tenant, name, thing, script[:place].count(thing))
            if place < at:
                if not isinstance(self.effect(life, key, cause, ""), Ok):
                    return
                continue
            work = self.crossing(life, name, thing, cause, "frozen")
            try:
                work.send(None)
            except StopIteration as answered:  # it did not get as far as the boundary
                return self.settle(key, answered.value)
            self.doubt.add(key)
            self.frozen.append((life, work))
            self.lives[tenant] = self.begin(tenant)

    @rule()
    def a_stopped_process_wakes(self) -> None:
        if self.frozen:
            life, work = self.frozen.pop(0)
            before = len(self.outside.held)
            with pytest.raises(StopIteration) as ended:
                work.send(None)
            assert ended.value.value.verdict is Verdict.FENCED
            assert len(self.outside.held) == before
            self.zombies.append(life)

    @rule(name=st.sampled_from(NAMES), thing=st.sampled_from(THINGS))
    def a_zombie_goes_on(self, name: str, thing: Thing) -> None:
        """It may be told of what is recorded; anything else is fenced, or waits for a person, and nothing happens."""
        for life in self.zombies:
            before = len(self.outside.held)
            outcome = armbench.run(self.crossing(life, name, thing, f"t{next(self.numbers)}", ""))
            allowed = (Verdict.FENCED, Verdict.SUPPRESSED, Verdict.AWAITING_WAIVER)
            assert outcome.verdict in (allowed if not self.outside.sees(thing[0]) else allowed[:2])
            assert len(self.outside.held) == before

    @rule(sees=st.booleans())
    def transport_loses_or_regains_sight(self, sees: bool) -> None:
        self.outside.blind = set() if sees else {"transport"}

    # --- what must hold -------------------------------------------------------------------------------------------

    def intended(self, tenant: str, thing: Thing) -> int:
        return sum(script.count(thing) for (owner, _), script in self.scripts.items() if owner == tenant)

    @invariant()
    def nothing_happens_more_often_than_intended(self) -> None:
        for tenant, thing in itertools.product(TENANTS, THINGS):
            assert len(self.outside.receipts(tenant, thing)) <= self.intended(tenant, thing), (tenant, thing)

    def teardown(self) -> None:
        """Everything sees again, every process is new, and every check is run once more: then nothing is lost, but
        where a person must be asked."""
        if not hasattr(self, "lives"):
            return
        self.outside.blind = set()
        try:
            self.lives = {tenant: self.begin(tenant) for tenant in TENANTS}
            asked = [not self.check(holder, 0, "", False) for holder in HOLDERS]
            self.nothing_happens_more_often_than_intended()
            for tenant, thing in itertools.product(TENANTS, THINGS):
                lost = self.intended(tenant, thing) - len(self.outside.receipts(tenant, thing))
                assert lost == 0 or any(asked), (tenant, thing)
            assert not any(asked) or any(thing[0] == "hook" for _, _, thing, _ in self.doubt)
        finally:
            for life in (*self.lives.values(), *self.zombies, *(life for life, _ in self.frozen)):
                life.store.close()
            for _, work in self.frozen:
                work.close()
            self.folder.cleanup()


def thing_of(call: EffectCall) -> Thing:
    return call.boundary, call.payload["path"] if call.boundary == "hook" else call.payload["event"]["subject"]


def test_no_effect_is_doubled_or_lost_whatever_dies_wherever() -> None:
    run_state_machine_as_test(LedgerMachine, settings=SETTINGS)
