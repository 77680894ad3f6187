"""The orchestrator of a live trial: one operating-system process per life, killed and started again from outside.

Everything that must be known after its death is in files before it dies: durable state, trace, and inject's memory.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from harness import trial
from harness.core.clock import Clock, monotonic_s
from harness.core.errors import HarnessBug
from harness.core.records import Event
from harness.core.stopwatch import Stopwatch
from harness.core.types import Json
from harness.inject import Injector
from harness.orchestrator.recover import Share, run_plan
from harness.orchestrator.store import SqliteStore
from harness.runner import parts
from harness.schedule import TrialSpec
from harness.world.live.checks import CheckRunner
from harness.world.live.control import Control
from harness.world.live.upstream import Upstreams
from harness.world.live.world import LiveWorld, Places

STUCK, BUG = 75, 70
"""Exit statuses for a trial that ran into its time limit, and for a defect of ours (sysexits' EX_SOFTWARE)."""

LAG_SAMPLE_S = 0.05
PR_SET_PDEATHSIG = 1


class Orders(Struct, frozen=True, kw_only=True):
    """What a supervisor tells an orchestrator process. origin_s: monotonic time of the trial's 0 ms. tag: of its
    checks, so that they can be ended when it dies."""

    spec: TrialSpec
    life: trial.Life
    root: str
    ns: str
    tag: str
    origin_s: float
    control: str
    zygote: str
    upstreams: Upstreams
    client_evidence: bool = False


def main(raw: bytes) -> None:
    """Live once. The exit status says how it ended: 0, STUCK, BUG, or the signal that killed it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # dies with the fork server, and so with the worker
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.freeze()
    orders = msgspec.msgpack.decode(raw, type=Orders)
    try:
        status = asyncio.run(_live(orders))
    except HarnessBug as bug:
        (Path(orders.root) / "bug.txt").write_text(str(bug))
        status = BUG
    except BaseException as error:  # anything else that gets here is a defect of ours as well
        (Path(orders.root) / "bug.txt").write_text(repr(error))
        status = BUG
    sys.stdout.flush()
    os._exit(status)


def kill_myself(name: str) -> None:
    """Die of this signal, here."""
    os.kill(os.getpid(), getattr(signal, name))
    while True:
        signal.pause()


class Lines:
    """An append-only file of events; one write per line, so that SIGKILL loses at most what was not yet said."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._encoder = msgspec.json.Encoder()

    def __call__(self, event: Event) -> None:
        os.write(self._fd, self._encoder.encode(event) + b"\n")


class FileMemory:
    """Inject's visits and firings, one short line each: counted over the processes of all hosts, and those before."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)

    def visit(self, fault: int) -> int:
        return self._count(b"v%d" % fault, self._append(b"v%d" % fault))

    def fired(self, fault: int) -> int:
        return self._count(b"f%d" % fault, os.fstat(self._fd).st_size)

    def fire(self, fault: int) -> None:
        self._append(b"f%d" % fault)

    def _append(self, line: bytes) -> int:
        """Write it; where it ends, whatever other processes wrote meanwhile."""
        os.write(self._fd, line + b"\n")
        return os.lseek(self._fd, 0, os.SEEK_CUR)

    def _count(self, line: bytes, until: int) -> int:
        return os.pread(self._fd, until, 0).split().count(line)


async def _live(orders: Orders) -> int:
    spec, root = orders.spec, Path(orders.root)
    clock = Clock(spec.time_scale, orders.origin_s)
    note = trial.Log(clock, Lines(root / "trace.jsonl"))
    tell = trial.Log(clock, Lines(root / "truth.jsonl"))
    made = trial.Parts(*parts(spec))
    task = made.workload.task(spec.seed, spec.variation, spec.mode)
    store, life = SqliteStore(str(root / "state.db")), orders.life
    note.epoch = tell.epoch = life.number
    note("epoch", {**life.told(), "pid": os.getpid()})
    world = LiveWorld(
        task=task,
        contained=made.arm.contained,
        places=Places(root),
        upstreams=orders.upstreams,
        ns=orders.ns,
        control=await Control.connect(orders.control),
        runner=CheckRunner(orders.zygote, orders.tag),
        truth=tell,
        clock=clock,
        client_evidence=orders.client_evidence,
    )
    faults = trial.plan_faults(made, spec.variants, task)
    until_ms = spec.limits.nominal_ms - spec.settle_ms
    memory = FileMemory(root / "visits")
    injector = Injector(faults, world, tell, memory, clock, kill_myself, life.before, until_ms)
    store.before_commit = injector.before_commit
    latch: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    env = trial.assemble(
        parts=made,
        task=task,
        world=world,
        store=store,
        injector=injector,
        note=note,
        clock=clock,
        life=life,
        watch=Stopwatch(monotonic_s),
    )
    asyncio.get_running_loop().set_exception_handler(lambda _, context: _latch(latch, context))
    await world.open(env.new_id)
    lag = asyncio.create_task(_measure_lag(root / f"{life.host}.lag", clock))
    share = Share(task.shares()[life.host], lambda: clock.sleep_ms(trial.PAUSE_MS), task.side_by_side)
    main = asyncio.create_task(run_plan(env, task.delegations, share))
    try:
        watched: set[asyncio.Future[Any]] = {main, latch, lag}
        limit_s = clock.real_s(spec.limits.nominal_ms - clock.now_ms())
        await asyncio.wait(watched, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        for watch in (latch, lag):  # neither ends by itself, unless something of ours is broken
            if watch.done():
                watch.result()
        if not main.done():
            note("limit", {})
            return STUCK
        main.result()
        return 0
    finally:
        lag.cancel()
        main.cancel()
        await asyncio.gather(main, lag, return_exceptions=True)
        await world.close()


def _latch(latch: asyncio.Future[None], context: Mapping[str, Json]) -> None:
    """A bug of ours in a task that nobody awaits must still end the trial as invalid."""
    error = context.get("exception")
    if isinstance(error, HarnessBug) and not latch.done():
        latch.set_exception(error)


async def _measure_lag(path: Path, clock: Clock) -> None:
    """The worst lateness of a timer on this host, in nominal milliseconds, kept in a file of one number. It is written
    beside and renamed: a process that is killed here must not leave half a number, which its next life would read."""
    worst = float(path.read_text()) if path.exists() else 0.0
    beside = path.with_suffix(".new")
    while True:
        due_s = clock.loop_s() + LAG_SAMPLE_S
        await asyncio.sleep(LAG_SAMPLE_S)
        late_ms = (clock.loop_s() - due_s) / clock.scale * 1000
        if late_ms > worst:
            worst = late_ms
            beside.write_text(f"{worst:.1f}")
            beside.replace(path)
