"""The ledger that hosts share, as a state machine: they die anywhere, are stopped and wake, and their clocks disagree.

Two hosts work on the same delegations of two tenants, in one SQLite file and, where a server can be had, in PostgreSQL.
Whatever happens, every intended effect happens exactly once in the end, and a process that was replaced writes nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec import Struct

from arms.mesh import doubt, ledger
from arms.mesh.ledger import Backend, SqliteBackend, Write
from arms.mesh.ledger_postgres import PostgresBackend
from arms.mesh.m3_effects import EffectLedger
from harness.core.clock import VirtualLoop
from harness.core.errors import Crash
from harness.core.types import DelegationOutcome, EffectCall, Err, Ok, Outcome, Probe
from harness.orchestrator.store import SqliteStore
from tests.postgres import running
from tests.unit.armbench import Outside, attempt, context, effect, event

HOSTS = ("north", "south")
HELD = (("red", "build"), ("red", "ship"), ("blue", "build"))
"""Tenant and delegation. `red` has the same things to do in two of them."""
THINGS = ("A-1", "A-2")
DEATHS = ("unreserved", "reserved", "before", "after", "unrecorded", "recorded")
STOPS = ("stop unreserved", "stop reserved", "stop after", "stop recorded")
ERRORS = ("definite", "request lost", "answer lost")
SETTINGS = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

Where = tuple[str, str]


class Fault(Struct):
    """What befalls one effect of a process. gate: where it stands still until it is set."""

    what: str = ""
    gate: asyncio.Event | None = None
    writes: int = 0

    async def strike(self, moment: str) -> None:
        if moment and self.what == moment:
            self.what = ""
            raise Crash("SIGKILL")
        if self.what == f"stop {moment}" and self.gate is not None:
            self.what = ""
            await self.gate.wait()


class Process(Struct):
    """One orchestrator process of a host, and the fault that waits for it."""

    layer: EffectLedger
    store: SqliteStore
    fault: Fault


class HostsMachine(RuleBasedStateMachine):
    """See the module. dsn: of the server that keeps the ledger; None for an SQLite file."""

    dsn: ClassVar[str | None] = None

    @initialize(scripts=st.tuples(*[st.lists(st.sampled_from(THINGS), min_size=1, max_size=3) for _ in HELD]))
    def start(self, scripts: tuple[list[str], ...]) -> None:
        self.loop, self.folder = VirtualLoop(), tempfile.TemporaryDirectory()
        self.outside, self.numbers = Outside(), itertools.count()
        self.scripts = dict(zip(HELD, scripts, strict=True))
        self.skew_ms = dict.fromkeys(HOSTS, 0.0)
        self.stopped: list[tuple[asyncio.Event, asyncio.Task[Any]]] = []
        self.stores: list[SqliteStore] = []
        self.backends: list[PostgresBackend] = []
        if self.dsn is not None:
            PostgresBackend(self.dsn).close()
            self.sql("TRUNCATE agentmesh_ledger.ledger, agentmesh_ledger.leases")
        self.processes = {(host, tenant): self.begin(host) for host in HOSTS for tenant in ("red", "blue")}

    def begin(self, host: str) -> Process:
        """A new process of a host, with the host's own clock."""
        store = SqliteStore(str(Path(self.folder.name) / "shared.db"))
        store.query("PRAGMA synchronous=OFF")
        self.stores.append(store)

        async def probe(call: EffectCall) -> Probe:
            await asyncio.sleep(0.2)
            return self.outside.answer(call.origin, thing_of(call))

        clock = {"now_ms": lambda: self.loop.time() * 1000 + self.skew_ms[host], "sleep_ms": sleep_ms}
        ctx = context(store, probe=probe, **clock)
        backend: Backend = SqliteBackend(ctx)
        if self.dsn is not None:
            backend = PostgresBackend(self.dsn)
            self.backends.append(backend)
        return Process(EffectLedger(ctx, backend=backend, holder=host), store, Fault())

    def sql(self, text: Any) -> None:
        backend = PostgresBackend(self.dsn or "")
        backend._run(text)
        backend.close()

    # --- one check ------------------------------------------------------------------------------------------------

    async def check(self, host: str, where: Where, at: int, fault: Fault) -> bool:
        """Run all effects of a delegation on a host, with a fault at one of them; whether all were had."""
        tenant, name = where
        process, cause = self.processes[host, tenant], f"t{next(self.numbers)}"
        script, passed = self.scripts[where], False

        async def effects(attempt: object) -> DelegationOutcome:
            nonlocal passed
            for place, thing in enumerate(script):
                process.fault = fault if place == at % len(script) else Fault()
                if not isinstance(await self.cross(process, where, thing, cause), Ok):
                    return DelegationOutcome(status="failed")
            passed = True
            return DelegationOutcome(status="done")

        await process.layer.on_delegate(attempt(name, tenant), effects)
        return passed

    async def cross(self, process: Process, where: Where, thing: str, cause: str) -> Outcome:
        fault, n = process.fault, next(self.numbers)
        call = effect(event(thing, n=n), delegation=where[1], call_id=f"e{n}", cause=cause, origin=where[0])

        async def beyond(call: EffectCall) -> Outcome:
            await fault.strike("before")
            if fault.what in ("definite", "request lost"):
                certain, fault.what = fault.what == "definite", ""
                return Err(code="http-503" if certain else "timeout", definite=certain)
            await asyncio.sleep(0.5)
            receipt = self.outside.happen(where[0], ("transport", thing))
            await asyncio.sleep(0.5)
            await fault.strike("after")
            if fault.what == "answer lost":
                fault.what = ""
                return Err(code="timeout", definite=False)
            return Ok(value={"receipt": receipt}, receipt=receipt)

        plain = process.layer._commits.write

        async def write(writes: Sequence[Write], *, alone: bool, then: Callable[[], None]) -> bool:
            state = writes[0].entry.state
            await fault.strike({"reserved": "unreserved", "recorded": "unrecorded"}.get(state, ""))
            written = await plain(writes, alone=alone, then=then)
            await fault.strike(state)
            return written

        process.layer._commits.write = write  # type: ignore[method-assign]
        try:
            return await process.layer.on_effect(call, beyond)
        finally:
            process.layer._commits.write = plain  # type: ignore[method-assign]

    def run(self, *works: Coroutine[Any, Any, Any]) -> list[Any]:
        async def together() -> list[Any]:
            return list(await asyncio.gather(*works, return_exceptions=True))

        results = self.loop.run_until_complete(together())
        for result in results:
            assert not isinstance(result, BaseException) or isinstance(result, Crash), result
        return results

    def tried(self, host: str, where: Where, at: int, what: str) -> Coroutine[Any, Any, Any]:
        """A check that may die of its fault, after which its host starts another process."""

        async def trying() -> None:
            try:
                await self.check(host, where, at, Fault(what))
            except Crash:
                self.processes[host, where[0]] = self.begin(host)

        return trying()

    # --- what can happen ------------------------------------------------------------------------------------------

    @rule(where=st.sampled_from(HELD), thing=st.sampled_from(THINGS))
    def intend(self, where: Where, thing: str) -> None:
        if len(self.scripts[where]) < 4:
            self.scripts[where].append(thing)

    @rule(
        host=st.sampled_from(HOSTS),
        where=st.sampled_from(HELD),
        at=st.integers(0, 3),
        what=st.sampled_from(("", *DEATHS, *ERRORS)),
    )
    def run_a_check(self, host: str, where: Where, at: int, what: str) -> None:
        self.run(self.tried(host, where, at, what))

    @rule(
        wheres=st.tuples(st.sampled_from(HELD), st.sampled_from(HELD)),
        at=st.integers(0, 3),
        whats=st.tuples(*[st.sampled_from(("", *DEATHS, *ERRORS))] * 2),
    )
    def run_two_checks_at_once(self, wheres: tuple[Where, Where], at: int, whats: tuple[str, str]) -> None:
        """On two hosts: of one delegation, or of two that want the same thing."""
        self.run(*(self.tried(h, w, at, what) for h, w, what in zip(HOSTS, wheres, whats, strict=True)))

    @rule(
        host=st.sampled_from(HOSTS),
        where=st.sampled_from(HELD),
        at=st.integers(0, 3),
        what=st.sampled_from(STOPS),
    )
    def stop_a_process(self, host: str, where: Where, at: int, what: str) -> None:
        """It stands still for longer than its lease, and its host starts another one."""

        async def until_it_stops() -> None:
            gate = asyncio.Event()
            task = asyncio.ensure_future(self.check(host, where, at, Fault(what, gate)))
            await asyncio.wait([task], timeout=3_000.0)
            if not task.done():
                self.stopped.append((gate, task))
                self.processes[host, where[0]] = self.begin(host)

        self.run(until_it_stops())
        self.leases_run_out()

    @rule()
    def a_stopped_process_wakes(self) -> None:
        """Its lease ran out: it has no effect any more, whether somebody took its delegation or not."""
        if self.stopped:
            gate, task = self.stopped.pop(0)
            before = len(self.outside.held)
            gate.set()
            self.run(asyncio.wait_for(task, None))  # type: ignore[arg-type]
            assert task.exception() is None
            assert len(self.outside.held) == before, "a process that was replaced had an effect"

    @rule(host=st.sampled_from(HOSTS), ms=st.sampled_from((-1e7, -5e3, 0.0, 5e3, 1e7)))
    def a_clock_is_set(self, host: str, ms: float) -> None:
        self.skew_ms[host] = ms

    @rule()
    def leases_run_out(self) -> None:
        if self.dsn is None:
            self.stores[0].query("UPDATE leases SET expires_ms=-1e18")
        else:
            self.sql("UPDATE {leases} SET expires_at='-infinity'")

    # --- what must hold -------------------------------------------------------------------------------------------

    def intended(self, tenant: str, thing: str) -> int:
        return sum(script.count(thing) for (owner, _), script in self.scripts.items() if owner == tenant)

    def had(self, tenant: str, thing: str) -> int:
        return len(self.outside.receipts(tenant, ("transport", thing)))

    @invariant()
    def nothing_happens_more_often_than_intended(self) -> None:
        for tenant, thing in itertools.product(("red", "blue"), THINGS):
            assert self.had(tenant, thing) <= self.intended(tenant, thing), (tenant, thing)

    def teardown(self) -> None:
        """The clocks agree, every process is new, and every check is run once more: then nothing is lost."""
        if not hasattr(self, "processes"):
            return
        try:
            self.skew_ms = dict.fromkeys(HOSTS, 0.0)
            while self.stopped:
                self.leases_run_out()
                self.a_stopped_process_wakes()
            self.leases_run_out()
            self.processes = {key: self.begin(key[0]) for key in self.processes}
            passed = self.run(*(self.check(HOSTS[n % 2], where, 0, Fault()) for n, where in enumerate(HELD)))
            assert passed == [True] * len(HELD)
            for tenant, thing in itertools.product(("red", "blue"), THINGS):
                assert self.had(tenant, thing) == self.intended(tenant, thing), (tenant, thing)
        finally:
            for _, task in self.stopped:
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()
            for one in (*self.stores, *self.backends):
                one.close()
            self.folder.cleanup()


async def sleep_ms(ms: float) -> None:
    await asyncio.sleep(ms / 1000)


def thing_of(call: EffectCall) -> tuple[str, str]:
    return "transport", call.payload["event"]["subject"]


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with running() as found:
        yield found


def test_hosts_that_share_a_file_double_and_lose_nothing() -> None:
    run_state_machine_as_test(HostsMachine, settings=SETTINGS)


def test_hosts_that_share_a_server_double_and_lose_nothing(dsn: str) -> None:
    machine = type("OnServer", (HostsMachine,), {"dsn": dsn})
    run_state_machine_as_test(machine, settings=settings(SETTINGS, max_examples=12, stateful_step_count=15))


# it ends at the first example that notices, usually after some hundred; which ones come depends on what else is loaded
QUICK = settings(SETTINGS, max_examples=4000, phases=[Phase.generate], report_multiple_bugs=False)


@pytest.mark.parametrize(
    ("where", "name", "reverted"),
    [
        (ledger, "holds", lambda lease, token, now_ms: True),
        (doubt, "unmoved", lambda before, after: True),
        (SqliteBackend, "claim", lambda self, write, known: "written" if all(self.write([write])) else "fenced"),
    ],
    ids=["holds", "unmoved", "claim"],
)
def test_a_shared_ledger_without_one_of_its_guards_is_noticed(
    where: Any, name: str, reverted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, reverted)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(HostsMachine, settings=QUICK)
