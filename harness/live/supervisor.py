"""Drives live trials: starts orchestrator processes, sees them die, buries what they left, and starts them again.

The supervisor is the side that suffers a crash, so an exit by signal in its truth is the evidence of one. After each
trial it looks for whatever is left; a residue makes the trial invalid and is named.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import multiprocessing
import shutil
import signal
import socket
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import msgspec

from harness import trial
from harness.core.clock import Clock, monotonic_s
from harness.core.records import Event
from harness.core.roles import Task
from harness.core.types import Json
from harness.live import child
from harness.live.services import HOST, PROXIED, Services, Tenant
from harness.orchestrator.store import SqliteStore, held_in
from harness.runner import parts
from harness.schedule import TrialSpec
from harness.world import files
from harness.world.live.checks import CheckRunner
from harness.world.live.control import Request, serve
from harness.world.live.realmodel import ModelSource, RealModel
from harness.world.live.upstream import Upstreams
from harness.world.live.zygote import Zygote, start_zygote

ORPHAN_MS = 500.0
"""Nominal time that a check outlives its killed orchestrator, the same for every arm."""

GRACE_MS = 20_000.0
"""How long after a trial's own limit its process is killed from outside."""


class Supervisor:
    """One per worker process. Trials run side by side, each in a namespace and a folder of its own. source: who
    answers in place of the scripts, if anybody does."""

    def __init__(
        self, seed: int, folder: Path, external_proxy: bool = False, source: ModelSource | None = None
    ) -> None:
        self._seed, self._folder, self._external = seed, folder, external_proxy
        self._model = None if source is None else RealModel(source)
        self._logs: dict[str, trial.Log] = {}
        self._meters: dict[str, trial.Meter] = {}
        self._broken: dict[str, str] = {}
        self._children = asyncio.Lock()
        self._number = 0

    async def start(self) -> None:
        self._services = Services(self._heard, self._folder / "databases", self._seed, self._external, self._model)
        (self._folder / "databases").mkdir()
        await self._services.start()
        self._zygote: Zygote = await start_zygote(self._folder / "checks.sock")
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["harness.live.child"])

    async def broken(self) -> None:
        """Returns when the check server has died: no trial can be run here any more."""
        await self._zygote.process.wait()

    async def stop(self) -> None:
        await self._zygote.stop()
        await self._services.stop()
        if self._model is not None:
            self._model.close()

    def _heard(self, ns: str, kind: str, data: Mapping[str, Json]) -> None:
        """What a service or proxy says happened; after its trial is over nobody asks any more."""
        if ns in self._logs:
            self._logs[ns](kind, data)
            self._meters[ns].hear(kind, data)
            if kind == "broken":
                self._broken[ns] = f"a service of ours broke: {data}"
            elif kind == "missing":
                self._broken[ns] = str(data["error"])

    async def run(self, spec: TrialSpec) -> trial.TrialResult:
        self._number += 1
        ns, began_s = f"t{self._number}", monotonic_s()
        root = self._folder / ns
        clock = Clock(spec.time_scale, asyncio.get_running_loop().time())
        truth: list[Event] = []
        tell = self._logs[ns] = trial.Log(clock, truth.append)
        self._meters[ns] = trial.Meter(spec.limits)
        made = trial.Parts(*parts(spec))
        task = made.workload.task(spec.seed, spec.variation, spec.mode)
        trial.open_truth(tell, trial.plan_faults(made, spec.variants, task), spec, task)
        stream = made.arm.variation_stream
        tenant = Tenant(ns=ns, trial=spec.id, task=task, workload=made.workload, stream=stream, clock=clock)
        upstreams = await self._services.open(tenant)
        self._lay_out(root, task.files)
        server = await serve(str(root / "control.sock"), functools.partial(self._act, ns))
        orders = child.Orders(
            spec=spec,
            life=trial.Life(),
            root=str(root),
            ns=ns,
            tag=ns,
            origin_s=clock.origin_s,
            control=str(root / "control.sock"),
            zygote=self._zygote.socket_path,
            upstreams=upstreams,
            client_evidence=self._services.external_proxy,
        )
        try:
            status, because = await self._orchestrators(orders, task, tell, clock)
            ended_ms = clock.now_ms()
            with contextlib.suppress(sqlite3.Error):  # no process got as far as making it, or the disk was full
                tell("stored", held_in(str(root / "state.db")))
        finally:
            server.close()
            residues = await self._clear(ns, task.shares(), root, upstreams)
        trace, said, lag_ms = _collect(root)
        shutil.rmtree(root, ignore_errors=True)
        if root.exists():
            residues.append("temporary folder")
        if residues:
            status, because = "invalid", "left behind: " + ", ".join(residues)
        elif ns in self._broken:
            status, because = "invalid", self._broken.pop(ns)
        elif lag_ms > spec.limits.lag_ms:
            status, because = "invalid", f"scheduler lag of {lag_ms:.0f} ms nominal, {spec.limits.lag_ms:.0f} allowed"
        elif _foreign_deaths(truth, said):
            status, because = "invalid", "an orchestrator process died of a signal that no fault sent"
        merged = _renumbered(sorted([*truth, *said], key=lambda e: e.at_ms))
        real_s = round(monotonic_s() - began_s, 3)
        return trial.finish(spec, trace, merged, status, because, ended_ms, real_s=real_s, lag_ms=lag_ms)

    def _lay_out(self, root: Path, texts: Mapping[str, str]) -> None:
        """The repository as every attempt finds it, with the hashes of the wheels that this index has."""
        for name in ("accepted", "shared"):
            place = files.DiskFiles(root / name)
            for path, text in texts.items():
                place.put(path, self._services.as_found(path, text))

    async def _act(self, ns: str, request: Request) -> None:
        """What an orchestrator's injector asked for."""
        if request.op == "cut" and request.cut is not None:
            await self._services.cut(ns, request.boundary, request.name, request.cut)
        elif request.op == "heal":
            await self._services.heal(ns, request.boundary, request.name, request.after_ms)
        elif request.op == "fail":
            self._services.fail(ns, request.status, request.site)
        else:
            raise ValueError(f"unknown request {request.op!r}")

    async def _orchestrators(self, orders: child.Orders, task: Task, tell: trial.Log, clock: Clock) -> tuple[str, str]:
        """Run the orchestrators of all hosts side by side; status and reason. One that does not end well ends all."""
        SqliteStore(f"{orders.root}/state.db").close()  # made once, before several processes would make it
        numbers = itertools.count()

        async def one(host: str) -> tuple[str, str]:
            placed = msgspec.structs.replace(orders, life=trial.Life(host=host), tag=_tag(orders.ns, host))
            status, because = "invalid", "another orchestrator of the trial broke"
            try:
                status, because = await self._lives(placed, numbers, tell, clock)
            finally:
                if status != "ended":
                    self._meters[orders.ns].end(because)
            return status, because

        hosts = [asyncio.ensure_future(one(host)) for host in task.shares()]
        try:
            await asyncio.wait(hosts)
        finally:
            for host in hosts:
                host.cancel()
        ends = [host.result() for host in hosts]
        return next((end for end in ends if end[0] == "invalid"), next((e for e in ends if e[0] != "ended"), ends[0]))

    async def _lives(
        self, orders: child.Orders, numbers: Iterator[int], tell: trial.Log, clock: Clock
    ) -> tuple[str, str]:
        """Start an orchestrator until it ends by itself; status and reason."""
        spec, checks = orders.spec, CheckRunner(self._zygote.socket_path, orders.tag)
        for before in range(spec.limits.restarts + 1):
            number = tell.epoch = next(numbers)
            life = msgspec.structs.replace(orders.life, number=number, before=before)
            raw = msgspec.msgpack.encode(msgspec.structs.replace(orders, life=life))
            process = self._context.Process(target=child.main, args=(raw,))
            async with self._children:
                await asyncio.to_thread(process.start)
            left_ms = spec.limits.nominal_ms + GRACE_MS - clock.now_ms()
            meter = self._meters[orders.ns]
            code = await self._exit_code(process, clock.real_s(left_ms), meter.over)
            if code == 0:
                return "ended", ""
            if code is None or code == child.STUCK:
                return "stuck", meter.over.result() if meter.over.done() else "time limit"
            if code > 0:
                note = Path(orders.root) / "bug.txt"
                said = note.read_text() if note.exists() else ""  # empty where the disk was full
                return "invalid", f"harness: {said or f'exit status {code}'}"
            tell.of(number)("exit", {"epoch": number, "signal": signal.Signals(-code).name, "pid": process.pid})
            await clock.sleep_ms(ORPHAN_MS)
            await checks.end_all()
            await clock.sleep_ms(max(0.0, trial.RESTART_MS - ORPHAN_MS))
        return "stuck", "restart limit"

    async def _exit_code(self, process: BaseProcess, limit_s: float, over: asyncio.Future[str]) -> int | None:
        """The exit status of a process as multiprocessing counts it (negative: a signal); None when it was killed from
        here. One at a time, and never beside a start: both read the statuses of all children, and a status that another
        thread has read is lost."""
        by_itself = await _until_exit(process, limit_s, over)
        async with self._children:
            await asyncio.to_thread(process.join)
        return process.exitcode if by_itself else None

    async def _clear(self, ns: str, hosts: Iterable[str], root: Path, upstreams: Upstreams) -> list[str]:
        """End all that the trial started; names of what is left nevertheless."""
        checks = [CheckRunner(self._zygote.socket_path, _tag(ns, host)) for host in hosts]
        for one in checks:
            await one.end_all()
        residues = await self._services.close(ns)
        del self._logs[ns], self._meters[ns]
        residues += [f"check process {c['pid']}" for c in await checks[0].listing() if c["tag"].partition("/")[0] == ns]
        ports = [upstreams.transport[1], *(int(upstreams.base(b).split(":")[2].split("/")[0]) for b in PROXIED[1:])]
        residues += [f"port of {name}" for name, port in zip(PROXIED, ports, strict=True) if _listens(port)]
        (root / "control.sock").unlink(missing_ok=True)
        return residues


async def _until_exit(process: BaseProcess, limit_s: float, over: asyncio.Future[str]) -> bool:
    """Wait for the end of a process; when its time or another of its limits is over first, kill it. Whether it ended
    by itself."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    watched: set[asyncio.Future[Any]] = {ended, over}
    loop.add_reader(process.sentinel, _resolve, ended)
    try:
        await asyncio.wait(watched, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(process.sentinel)
    if not ended.done():
        process.kill()
    return ended.done()


def _resolve(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def _foreign_deaths(truth: Sequence[Event], said: Sequence[Event]) -> int:
    """Deaths that the supervisor saw, less those that the injector meant: somebody else kills (a person, or the kernel
    when memory is short), and what that does to a trial is no arm's doing."""
    meant = sum(e.kind == "fault" and e.data.get("state") == "fired" and e.data.get("fate") == "die" for e in said)
    return max(0, sum(e.kind == "exit" for e in truth) - meant)


def _collect(root: Path) -> tuple[list[Event], list[Event], float]:
    """Trace and truth of all lives from their files, and the worst lag. A line cut off by SIGKILL was never said."""

    def read(name: str) -> list[Event]:
        path, decoder = root / name, msgspec.json.Decoder(Event)
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [decoder.decode(line) for line in lines if line.endswith(b"\n")]

    lags_ms = [float(path.read_text() or 0) for path in root.glob("*.lag")]
    trace = sorted(read("trace.jsonl"), key=lambda e: e.at_ms)  # of several processes, a line may have come late
    return _renumbered(trace), read("truth.jsonl"), max(lags_ms, default=0.0)


def _renumbered(events: Sequence[Event]) -> list[Event]:
    return [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(events)]


def _tag(ns: str, host: str) -> str:
    """Names the checks of one orchestrator of a trial."""
    return f"{ns}/{host}" if host else ns


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
