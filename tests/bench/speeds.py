"""What the harness does with it: simulated and live trials, the mesh's effects, checks, and model calls."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from msgspec import Struct
from msgspec.structs import replace

from arms.mesh.arm import layers as mesh_layers
from faults import FAULTS
from harness.core import rng
from harness.core.clock import Clock, monotonic_s
from harness.core.records import Event
from harness.core.roles import ArmContext
from harness.core.seams import Crossings, compose
from harness.core.types import Attempt, CheckSpec, DelegationOutcome, EffectCall, Ok, Outcome, Probe, Seam, Site
from harness.live.executor import LiveExecutor
from harness.orchestrator.store import SqliteStore
from harness.pool import run_trial_sim
from harness.schedule import Limits, PlannedFault, TrialSpec
from harness.world.live import model
from harness.world.live.checks import CheckRunner
from harness.world.live.completions import Completion
from harness.world.live.provider import ProviderServer
from harness.world.live.zygote import start_zygote
from tests.bench.limits import HOST, awaited, fresh
from workloads.codegen.facts import facts
from workloads.codegen.reference import effects
from workloads.codegen.task import CODEGEN

LIVE_ARMS = ("naive", "mesh")
TIME_SCALE = 0.05


def spec(arm: str, fault: str, seed: int, world: str) -> TrialSpec:
    """A trial with two faults of one class."""
    return TrialSpec(
        schedule="bench",
        index=seed,
        workload="codegen",
        arm=arm,
        world=world,  # type: ignore[arg-type]
        mode="tdd",
        variation=3,
        seed=seed,
        fault_class=fault,
        faults=(PlannedFault(fault=fault, variant=FAULTS[fault].variants[0]),) * 2,
        limits=Limits(),
        time_scale=TIME_SCALE if world == "live" else 1.0,
        settle_ms=600_000,
        idempotency_keys=False,
        pair=f"p{seed}",
        id=f"{arm}-{fault}-{seed}",
    )


# --- trials -------------------------------------------------------------------------------------------------------


class Trials(Struct, frozen=True):
    """Trials that were run: number, seconds (of a core in the sim world, of a clock in the live one), and how many
    timers or processes of checks they took."""

    n: int
    seconds: float
    units: int

    @property
    def per_minute(self) -> float:
        return 60 * self.n / self.seconds


def sim(arm: str, seeds: int) -> Trials:
    """Every class of faults, `seeds` times, in this process."""
    specs = [spec(arm, fault, seed, "sim") for fault in FAULTS for seed in range(seeds)]
    run_trial_sim(specs[0])  # imports do not count
    began = time.process_time()
    for one in specs:
        run_trial_sim(one)
    seconds = time.process_time() - began
    return Trials(len(specs), seconds, sum(_timers(one) for one in specs))


def _timers(one: TrialSpec) -> int:
    count = itertools.count()
    sleep = Clock.sleep_ms

    async def counted(self: Clock, nominal_ms: float) -> None:
        next(count)
        await sleep(self, nominal_ms)

    with mock.patch.object(Clock, "sleep_ms", counted):
        run_trial_sim(one)
    return next(count)


def live(seeds: int, cores: int) -> tuple[Trials, Counter[str]]:
    """Two arms over every class of faults, on all cores, after a trial on each worker that does not count. Also how
    the trials ended."""
    executor = LiveExecutor(jobs=2 * cores, workers=cores)
    ends: Counter[str] = Counter()
    checks = 0
    try:
        for n in range(2 * cores):
            executor.submit(replace(spec("naive", "nondeterminism", 100 + n, "live"), faults=(), fault_class="none"))
        list(executor.results())
        specs = [spec(arm, fault, s, "live") for s in range(seeds) for fault in FAULTS for arm in LIVE_ARMS]
        began = monotonic_s()
        for one in specs:
            executor.submit(one)
        for done in executor.results():
            ends[f"{done.record.status} {done.record.because}".strip() if done.record else done.trouble] += 1
            checks += _checks(done.trace)
        return Trials(len(specs), monotonic_s() - began, checks), ends
    finally:
        executor.close()


def _checks(trace: tuple[Event, ...]) -> int:
    """Processes of checks and hooks that a trial started."""
    calls = [e.data for e in trace if e.kind == "call"]
    return sum(c.get("tool") == "run_check" or c.get("boundary") == "hook" for c in calls)


# --- the mesh's effects -------------------------------------------------------------------------------------------


def context_of(store: SqliteStore, delegation: Any) -> ArmContext:
    """The context of an arm with one delegation, on this store, around boundaries that cannot tell."""

    async def probe(call: EffectCall) -> Probe:
        return Probe(count=None)

    clock = Clock()
    return ArmContext(
        now_ms=lambda: 0.0,
        sleep_ms=clock.sleep_ms,
        draw=lambda *name: rng.draw(1, *name),
        note=lambda kind, data: None,
        store=store,
        probe=probe,
        progress=lambda call_id: 0,
        contracts={delegation.id: delegation.contract},
        epoch=0,
    )


def calls_of(check: str) -> Iterator[EffectCall]:
    """The same event of the workload for ever new orders, each from a tool call of its own."""
    event = next(e for e in effects(facts(1)) if e.boundary == "transport")
    site = Site(delegation=event.delegation, phase=event.phase, seam=Seam.TOOL, name=event.boundary)
    for n in itertools.count():
        payload = {"event": {**event.payload["event"], "subject": f"A-{n}"}}
        where: dict[str, Any] = {
            "attempt": 1,
            "turn": 0,
            "index": 0,
            "ordinal": 0,
            "cause": f"{check}{n}",
            "origin": "flow",
        }
        asked: dict[str, Any] = {"boundary": event.boundary, "operation": event.operation, "target": event.target}
        yield EffectCall(site=site, call_id=f"e{n}", payload=payload, **where, **asked)


async def mesh_effects(folder: Path, n: int, *, again: bool) -> list[float]:
    """The full mesh in this process, on a durable file, around a boundary that answers at once: seconds per effect.

    again: the effects were all had before, and are suppressed.
    """
    store = SqliteStore(str(fresh(folder) / "mesh.db"))
    orders = next(d for d in CODEGEN.task(1, 3).delegations if d.id == "orders")
    seconds: list[float] = []

    async def answer(call: EffectCall) -> Outcome:
        return Ok(value={}, receipt=call.call_id)

    async def unused(call: Any) -> Any:
        raise AssertionError("not a call of this measurement")

    async def work(attempt: Attempt) -> DelegationOutcome:
        for check in ("first", "again") if again else ("first",):
            calls = calls_of(check)
            seconds[:] = await awaited(lambda calls=calls: crossings.effect(next(calls)), n)  # type: ignore[misc]
        return DelegationOutcome(status="done")

    base = Crossings(delegate=work, model=unused, tool=unused, effect=answer, commit=unused)
    crossings = compose(mesh_layers(context_of(store, orders)), base)
    try:
        await crossings.delegate(Attempt(delegation=orders))
    finally:
        store.close()
    return seconds


# --- processes and requests ---------------------------------------------------------------------------------------


async def check(folder: Path, n: int) -> list[float]:
    """A real pytest of one test, forked from the warm server: from the request to the result."""
    place = fresh(folder)
    (place / "test_one.py").write_text("def test_one():\n    assert True\n")
    zygote = await start_zygote(fresh(folder) / "z.sock")
    runner = CheckRunner(zygote.socket_path, "bench")
    wanted = CheckSpec(name="one", kind="pytest", target="test_one.py")

    async def run() -> None:
        result = await (await runner.start(wanted, place, {})).wait()
        assert result.passed, result.output_tail

    try:
        return await awaited(run, n)
    finally:
        await zygote.stop()


async def model_call(n: int) -> list[float]:
    """A streamed completion of 2 kB over HTTP, from the scripted provider to the agent's client."""
    text = "word " * 400

    def reply(namespace: str, request: Any, nth: int) -> Completion:
        return Completion(content=text)

    server = ProviderServer(lambda ns, kind, data: None, reply, lambda request: "site")
    port = await server.start(HOST)
    await server.open("ns")
    request = {"model": "scripted", "messages": [{"role": "user", "content": text}], "stream": True}

    async def ask() -> None:
        outcome = await model.complete(f"http://{HOST}:{port}/ns", request, 30.0)
        assert isinstance(outcome, Ok), outcome

    try:
        return await awaited(ask, n)
    finally:
        await server.stop()


def cores() -> int:
    return len(os.sched_getaffinity(0))
