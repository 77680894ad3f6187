"""A trial in the sim world: one thread, virtual time, and a process that only pretends to die.

The counterpart of `harness.live`: same orchestrator, arms, faults and injector, thousands of trials a minute, and the
same bytes for the same spec.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from harness.core.clock import Clock, VirtualLoop
from harness.core.errors import HarnessBug
from harness.core.records import RECORDER, Event
from harness.core.types import Json
from harness.inject import Injector
from harness.orchestrator.recover import run_plan
from harness.orchestrator.store import Journal, SqliteStore
from harness.trial import (
    RESTART_MS,
    Log,
    Meter,
    Note,
    Parts,
    Spec,
    TrialResult,
    assemble,
    finish,
    open_truth,
    plan_faults,
)
from harness.world.sim.world import SimProcess, SimWorld


class _Counters:
    """Inject's memory where the process only pretends to die."""

    def __init__(self) -> None:
        self._visits: dict[int, int] = {}
        self._fired: dict[int, int] = {}

    def visit(self, fault: int) -> int:
        self._visits[fault] = self._visits.get(fault, 0) + 1
        return self._visits[fault]

    def fired(self, fault: int) -> int:
        return self._fired.get(fault, 0)

    def fire(self, fault: int) -> None:
        self._fired[fault] = self.fired(fault) + 1


def run_sim(spec: Spec, parts: Parts) -> TrialResult:
    """Run one trial on virtual time, to its end, in this thread."""
    trace: list[Event] = []
    truth: list[Event] = []
    loop = VirtualLoop()
    try:
        status, because, ended_ms = loop.run_until_complete(_drive(spec, parts, trace, truth))
    except HarnessBug as bug:
        status, because, ended_ms = "invalid", f"harness: {bug}", trace[-1].at_ms if trace else 0.0
    finally:
        loop.close()
    return finish(spec, trace, truth, status, because, ended_ms)


async def _drive(spec: Spec, parts: Parts, trace: list[Event], truth: list[Event]) -> tuple[str, str, float]:
    clock = Clock()
    meter = Meter(spec.limits)
    log, note = Log(clock, truth.append), Log(clock, trace.append)

    def tell(kind: str, data: Mapping[str, Json]) -> None:
        log(kind, data)
        meter.hear(kind, data)

    task = parts.workload.task(spec.seed, spec.variation, spec.mode)
    faults = plan_faults(parts, spec.variants, task)
    open_truth(tell, faults, spec, task)
    world = SimWorld(task, parts.workload, parts.arm, tell, clock)
    store, memory = SqliteStore(":memory:"), _Counters()
    try:
        for _ in range(spec.limits.restarts + 1):
            process = SimProcess()
            world.attach(process)
            store.before_commit = process.check
            epoch = log.epoch = note.epoch = Journal(store).next_epoch()
            note("epoch", {"epoch": epoch, "recorder": RECORDER})
            until_ms = spec.limits.nominal_ms - spec.settle_ms
            injector = Injector(faults, world, tell, memory, clock, process.kill, epoch, until_ms)
            store.before_commit = _commit_hook(process, injector)
            env = assemble(
                parts=parts,
                task=task,
                world=world,
                store=store,
                injector=injector,
                note=_while_alive(process, note),
                clock=clock,
                epoch=epoch,
            )
            left_ms = spec.limits.nominal_ms - clock.now_ms()
            ended = await _live(run_plan(env, task.delegations), process, meter, left_ms, note)
            if ended is not None:
                tell("stored", store.held())
                return *ended, clock.now_ms()
            tell("exit", {"epoch": epoch, "signal": process.died_of})
            await clock.sleep_ms(RESTART_MS)
        tell("stored", store.held())
        return "stuck", "restart limit", clock.now_ms()
    finally:
        store.close()


def _commit_hook(process: SimProcess, injector: Injector) -> Callable[[], None]:
    """What stands between the durable store and a commit: a dead process commits nothing, a fault may strike."""

    def before() -> None:
        process.check()
        injector.before_commit()

    return before


def _while_alive(process: SimProcess, note: Note) -> Note:
    def noting(kind: str, data: Mapping[str, Json]) -> None:
        process.check()
        note(kind, data)

    return noting


async def _live(plan: Any, process: SimProcess, meter: Meter, limit_ms: float, note: Note) -> tuple[str, str] | None:
    """One life of the orchestrator: status and reason, or None when it died."""
    main = asyncio.ensure_future(plan)
    try:
        watched = {main, process.death, meter.over}
        await asyncio.wait(watched, timeout=limit_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        if process.died_of is not None:
            return None
        if main.done():
            main.result()
            return "ended", ""
        note("limit", {})
        return "stuck", meter.over.result() if meter.over.done() else "time limit"
    finally:
        main.cancel()
        await asyncio.gather(main, return_exceptions=True)
