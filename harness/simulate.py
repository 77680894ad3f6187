"""A trial in the sim world: one thread, virtual time, and a process that only pretends to die.

The counterpart of `harness.live`: same orchestrator, arms, faults and injector, thousands of trials a minute, and the
same bytes for the same spec.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from harness.core.clock import Clock, VirtualLoop
from harness.core.errors import HarnessBug
from harness.core.records import Event
from harness.core.roles import Task
from harness.core.types import Json
from harness.inject import Injector
from harness.orchestrator.recover import Share, run_plan
from harness.orchestrator.store import SqliteStore
from harness.trial import (
    PAUSE_MS,
    RESTART_MS,
    Life,
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
    """Run the orchestrators of all hosts side by side; status, reason and the time of the end. One that does not end
    well ends all."""
    task = parts.workload.task(spec.seed, spec.variation, spec.mode)
    outside = _Outside(spec, parts, task, trace, truth)
    hosts = [asyncio.ensure_future(outside.lives(host, share)) for host, share in task.shares().items()]
    try:
        ends = await asyncio.gather(*hosts)
    finally:
        for host in hosts:
            host.cancel()
        await asyncio.gather(*hosts, return_exceptions=True)
        outside.close()
    return *next((end for end in ends if end[0] != "ended"), ends[0]), outside.clock.now_ms()


class _Outside:
    """What outlives the orchestrators of a trial, and starts them again."""

    def __init__(self, spec: Spec, parts: Parts, task: Task, trace: list[Event], truth: list[Event]) -> None:
        self._spec, self._parts, self._task = spec, parts, task
        self.clock, self._meter, self.store = Clock(), Meter(spec.limits), SqliteStore(":memory:")
        self._note = functools.partial(Log, self.clock, trace.append, numbers=itertools.count())
        self._tell = functools.partial(Log, self.clock, truth.append, numbers=itertools.count())
        self._lives = itertools.count()
        self._world = SimWorld(task, parts.workload, parts.arm, self.clock)
        self._faults, self._memory = plan_faults(parts, spec.variants, task), _Counters()
        open_truth(self._tell(0), self._faults, spec, task)

    def close(self) -> None:
        self._tell(next(self._lives) - 1)("stored", self.store.held())
        self.store.close()

    async def lives(self, host: str, share: frozenset[str]) -> tuple[str, str]:
        """Start the orchestrator of a host until it ends by itself; status and reason."""
        for before in range(self._spec.limits.restarts + 1):
            life, process = Life(number=next(self._lives), host=host, before=before), SimProcess()
            ended = await self._live(life, process, share)
            if ended is not None:
                break
            self._tell(life.number)("exit", {"epoch": life.number, "signal": process.died_of})
            await self.clock.sleep_ms(RESTART_MS)
        else:
            ended = "stuck", "restart limit"
        if ended[0] != "ended":
            self._meter.end(ended[1])
        return ended

    async def _live(self, life: Life, process: SimProcess, share: frozenset[str]) -> tuple[str, str] | None:
        """One life of the orchestrator: status and reason, or None when it died."""
        spec, clock, note, log = self._spec, self.clock, self._note(life.number), self._tell(life.number)

        def tell(kind: str, data: Mapping[str, Json]) -> None:
            log(kind, data)
            self._meter.hear(kind, data)

        note("epoch", life.told())
        world = self._world.seen_by(process, tell)
        until_ms = spec.limits.nominal_ms - spec.settle_ms
        injector = Injector(self._faults, world, tell, self._memory, clock, process.kill, life.before, until_ms)
        env = assemble(
            parts=self._parts,
            task=self._task,
            world=world,
            store=self.store.seen_by(_commit_hook(process, injector)),
            injector=injector,
            note=_while_alive(process, note),
            clock=clock,
            life=life,
        )
        left_ms = spec.limits.nominal_ms - clock.now_ms()
        plan = run_plan(
            env, self._task.delegations, Share(share, lambda: clock.sleep_ms(PAUSE_MS), self._task.side_by_side)
        )
        return await _until_end(plan, process, self._meter, left_ms, note)


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


async def _until_end(
    plan: Any, process: SimProcess, meter: Meter, limit_ms: float, note: Note
) -> tuple[str, str] | None:
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
