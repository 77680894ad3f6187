"""The outside in memory, on virtual time: the same protocol as the live world, thousands of trials a minute.

One `SimWorld` is one trial's outside and outlives the orchestrator's crashes; `SimProcess` is one life of it, and
`seen_by` what that life sees. A dead process takes no further effect: everything that changes the outside asks it
first.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from harness.core import payload, rng
from harness.core.clock import Clock
from harness.core.errors import Crash
from harness.core.roles import Alter, Cut, Fail, Hang, Manner, Task, Workload
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
from harness.world import checkpoints, files, receipts
from harness.world.effects import Effect, effect_of, run_hooks
from harness.world.protocol import CrossEffect, Harm, Truth
from harness.world.sim import remote
from harness.world.sim.tables import KeyedTables

MODEL_MS, TOOL_MS, EFFECT_MS, COMMIT_MS = 600.0, 5.0, 15.0, 10.0
CHECK_MS = {"pytest": 1500.0, "node": 1500.0, "install": 2500.0}
FOREVER_MS = 1e9
CLIENT_TIMEOUT_MS = 10_000.0
PACE_MS = 500.0


class SimProcess:
    """One life of the orchestrator process."""

    def __init__(self) -> None:
        self.died_of: str | None = None
        self.death = asyncio.get_running_loop().create_future()

    def kill(self, signal: str) -> None:
        """Dies here: raises Crash in whoever asked, and lets nobody else act."""
        if self.died_of is None:
            self.died_of = signal
            self.death.set_result(signal)
        raise Crash(signal)

    def check(self) -> None:
        if self.died_of is not None:
            raise Crash(self.died_of)


class _Held(Struct):
    """A durable effect at a boundary."""

    call: EffectCall
    view: Mapping[str, Json]
    receipt: str
    value: Json


class SimWorld:
    """See `harness.world.protocol.World`; it is reached as `seen_by` some process."""

    _process: SimProcess
    _truth: Truth
    _cross_effect: CrossEffect

    def __init__(self, task: Task, workload: Workload, arm: Any, clock: Clock) -> None:
        self._task, self._workload, self._clock = task, workload, clock
        self._contained, self._stream = arm.contained, arm.variation_stream
        self._accepted = files.MemoryFiles(dict(task.files))
        self._shared = files.MemoryFiles(dict(task.files))
        self._trees: dict[tuple[str, int], files.MemoryFiles] = {}
        self._staged: dict[str, dict[str, str | None]] = {}
        self._held: dict[str, list[_Held]] = {}
        self._tables = KeyedTables(task.tables)
        self._cuts: dict[str, tuple[Cut, float]] = {}
        self._billed: dict[str, int] = {}
        self._counted: Counter[str] = Counter()
        self._progress: dict[str, int] = {}
        self._runs: dict[tuple[str, str], int] = {}
        self._tools: int | None = None
        self._remotes = functools.cache(lambda: remote.Remotes(task.files))

    def seen_by(self, process: SimProcess, truth: Truth) -> SimWorld:
        """This outside as one life of an orchestrator reaches it, and what is told of that. All that it holds is
        shared, with earlier lives and with other hosts."""
        view = copy.copy(self)
        view._process, view._truth = process, truth
        return view

    def bind(self, cross_effect: CrossEffect) -> None:
        self._cross_effect = cross_effect

    async def _spend(self, ms: float) -> None:
        await self._clock.sleep_ms(ms)
        self._process.check()

    # --- files and commits ------------------------------------------------------------------------------------

    def _tree(self, delegation: str, attempt: int) -> files.MemoryFiles:
        return self._trees[(delegation, attempt)] if self._contained else self._shared

    async def begin(self, attempt: Attempt) -> None:
        key = (attempt.delegation.id, attempt.number)
        if self._contained and not (attempt.keep_workspace and key in self._trees):
            tree = files.MemoryFiles(dict(self._accepted.files))
            draft = self._trees.get((attempt.delegation.id, attempt.draft or 0))
            if draft is not None:
                files.overlay(tree, draft, attempt.delegation.contract.writable)
            self._trees[key] = tree

    def changes(self, attempt: Attempt) -> dict[str, str | None]:
        d = attempt.delegation
        return files.difference(self._tree(d.id, attempt.number), self._accepted, d.contract.writable)

    def accepted(self, attempt: Attempt) -> dict[str, str]:
        writable = attempt.delegation.contract.writable
        paths = [p for p in self._accepted.paths() if files.matches(p, writable)]
        return {p: files.digest(self._accepted.files[p]) for p in paths}

    async def commit(self, call: Commit, harm: Harm | None) -> Outcome:
        await self._spend(COMMIT_MS)
        d = call.site.delegation
        if call.step == "stage":
            tree = self._tree(d, call.attempt)
            self._staged[d] = {p: tree.get(p) for p in call.changes}
            return Ok(value={"staged": len(call.changes)})
        for path, text in self._staged.pop(d, {}).items():
            if text is None:
                self._accepted.remove(path)
            else:
                self._accepted.put(path, text)
        return Ok(value={"published": len(call.changes)})

    # --- tools ------------------------------------------------------------------------------------------------

    def progress(self, call_id: str) -> int:
        return self._progress.get(call_id, 0)

    async def tool(self, call: ToolCall, harm: Harm | None) -> Outcome:
        tree = self._tree(call.site.delegation, call.attempt)
        if call.tool == "run_check":
            return await self._check(call, harm, tree)
        await self._spend(TOOL_MS)
        d = self._task.delegation(call.site.delegation)
        outcome = files.use_file_tool(call, tree, d.contract.writable if self._contained else None)
        if call.tool in ("write", "edit") and isinstance(outcome, Ok) and "error" not in outcome.value:
            return await run_hooks(call, outcome, self._task.hooks, self._cross_effect, self._new_id)
        return outcome

    def _new_id(self) -> str:
        return f"fx{self._nth('execution')}"

    def _nth(self, what: str) -> int:
        """The number of this one among all of its kind in the trial, from 1."""
        self._counted[what] += 1
        return self._counted[what]

    async def _check(self, call: ToolCall, harm: Harm | None, tree: files.MemoryFiles) -> Outcome:
        spec = self._task.check(str(call.args["check"]))
        if spec is None:
            return Ok(value={"error": "no-such-check"})
        self._progress[call.call_id] = self.progress(call.call_id) + 1  # a layer may run one call again
        counted = call.site.delegation, spec.name
        self._runs[counted] = self._runs.get(counted, 0) + 1
        if isinstance(harm, Hang):
            await self._hang(call, spec, harm, before=True)
        if isinstance(harm, Alter) and harm.how == "raise":
            self._truth("suffered", {"check": spec.name, "what": "monitor-raised", "call_id": call.call_id})
            failing, _ = await self._run(call, spec, tree)
            self._came_to(call, spec, passed=not failing)
            return Err(code="monitor-error", definite=False)
        receipt = receipts.receipt(spec, receipts.of_texts(tree.files))
        failing, reached = await self._run(call, spec, tree)
        if isinstance(harm, Hang) and harm.after:
            await self._hang(call, spec, harm, before=False)
        self._came_to(call, spec, passed=not failing)
        if isinstance(harm, Alter):
            failing = () if failing else (spec.target,)
            self._truth("suffered", {"check": spec.name, "what": "flipped", "call_id": call.call_id})
        value: dict[str, Json] = {"passed": not failing, "failing": list(failing)}
        if reached:
            value["checkpoints"] = reached
        return Ok(value=value, receipt=receipt)

    def _came_to(self, call: ToolCall, spec: CheckSpec, *, passed: bool) -> None:
        """Tell the truth of a run that ended, whatever is made of its answer afterwards."""
        where = {"check": spec.name, "delegation": call.site.delegation, "call_id": call.call_id}
        self._truth("checked", {**where, "passed": passed})

    async def _hang(self, call: ToolCall, spec: CheckSpec, harm: Hang, *, before: bool) -> None:
        if harm.ms is not None and before:
            self._truth("suffered", {"check": spec.name, "what": "paced", "call_id": call.call_id})
            for _ in range(int(harm.ms / PACE_MS)):
                await self._spend(PACE_MS)
                self._progress[call.call_id] += 1
        elif harm.ms is None and before is not harm.after:
            self._truth("suffered", {"check": spec.name, "what": "stopped", "call_id": call.call_id})
            await self._spend(FOREVER_MS)

    async def _run(
        self, call: ToolCall, spec: CheckSpec, tree: files.MemoryFiles
    ) -> tuple[tuple[str, ...], list[checkpoints.Checkpoint]]:
        """Ids of the tests that failed, and the checkpoints that were reached. The steps of its scenario leave through
        the gateway, in order; none does where the file of the tests could not even be read."""
        await self._spend(CHECK_MS[spec.kind] / 2)
        manner = self._manner(call, spec, tree)
        await self._pause(call, manner.before_ms, manner.paced)
        failing = {*self._workload.unit_failures(spec, tree.files), *manner.failing}
        reached: list[Json] = []
        ordinal, clone = 0, remote.Clone(self._remotes)
        for test, step in self._steps(spec, tree):
            if failing & {test, spec.target}:
                continue
            self._progress[call.call_id] += 1
            if isinstance(step, dict) and step["do"] in remote.DO:
                step = self._in_clone(clone, step, tree)
            if isinstance(step, tuple):
                outcome = await self._cross_effect(effect_of(call, ordinal, spec.name, step, self._new_id()))
                self._process.check()
                ordinal += 1
                good = isinstance(outcome, Ok)
            elif step["do"] == "done":
                good = True
            elif step["do"] == "checkpoint":
                reached.append(step["entry"])
                good = True
            else:
                good = self._holds(step)
            if not good:
                failing.add(test)
        await self._pause(call, manner.after_ms, manner.paced)
        await self._spend(CHECK_MS[spec.kind] / 2)
        return tuple(sorted(failing)), checkpoints.bounded(reached)

    def _in_clone(self, clone: remote.Clone, step: Json, tree: files.MemoryFiles) -> Effect | dict[str, Json]:
        """What a step in a clone comes to: its effect, or that it is done, or that the remote could not be reached."""
        if self._clock.now_ms() < self._cuts.get("repository", (None, -1.0))[1]:
            return {"do": "blocked"}
        return clone.step(step, tree.files, int(self._clock.now_ms() / 1000)) or {"do": "done"}

    def _manner(self, call: ToolCall, spec: CheckSpec, tree: files.MemoryFiles) -> Manner:
        really = getattr(self._workload, "manner", None)
        return really(spec, tree.files, self._runs[call.site.delegation, spec.name]) if really else Manner()

    async def _pause(self, call: ToolCall, ms: float | None, paced: bool) -> None:
        """The time that a check takes by itself."""
        left_ms = FOREVER_MS if ms is None else ms
        while left_ms > 0:
            step_ms = min(left_ms, PACE_MS) if paced else left_ms
            await self._spend(step_ms)
            self._progress[call.call_id] += paced
            left_ms -= step_ms

    def _steps(self, spec: CheckSpec, tree: files.MemoryFiles) -> list[tuple[str, Effect | dict[str, Json]]]:
        """What a check does to the outside, as effects, and what it expects of it, as reads; each with the id of the
        test that it belongs to."""
        nth = self._nth("execution")
        if spec.kind == "install":
            return [(spec.target, _fetch(line)) for line in (tree.get(spec.target) or "").split()]
        try:
            steps = json.loads(tree.get(spec.scenario) or '{"steps": []}')["steps"] if spec.scenario else []
            steps = _plain_steps(self._workload, spec, tree.files, steps)
        except (ValueError, KeyError, TypeError):
            steps = [{"do": "unreadable"}]
        return [
            (step.get("test") or _failing_id(spec), _step(self._fill(step, nth, i))) for i, step in enumerate(steps)
        ]

    def _holds(self, step: dict[str, Json]) -> bool:
        """Whether a read step of a check finds what it expects. A read through a cut network does not."""
        if step["do"] in ("unreadable", "blocked"):
            return False
        boundary = "database" if step["do"] == "expect_rows" else "transport"
        if self._clock.now_ms() < self._cuts.get(boundary, (None, -1.0))[1]:
            return False
        held = self._held.get(boundary, [])
        if step["do"] == "expect_rows":
            return any(
                h.call.target == step["service"] and payload.at(h.view, f"row.{step['column']}") == step["value"]
                for h in held
            )
        wanted = {f"event.{key}": step[key] for key in ("type", "subject") if key in step}
        views = [h.view for h in held if h.call.target == step["stream"]]
        count = sum(all(payload.at(view, path) == value for path, value in wanted.items()) for view in views)
        return bool(count == step["exactly"] if "exactly" in step else count >= step.get("least", 0))

    def _fill(self, value: Json, *name: object) -> Json:
        """Values of this very execution in place of their names: really new each time, and equal under one seed."""
        if isinstance(value, dict):
            return {k: self._fill(v, *name, k) for k, v in value.items()}
        if isinstance(value, list):
            return [self._fill(v, *name, i) for i, v in enumerate(value)]
        if value == "$uuid":
            return rng.uuid(self._task.seed, "fresh", *name)
        if value == "$worker":
            return f"w-{rng.integer(self._task.seed, 300, 32_000, 'pid', *name)}"
        if value == "$trace":
            return f"00-{rng.token(self._task.seed, *name)}{rng.token(self._task.seed, 't', *name)}-0123456789abcdef-01"
        if value in ("$now", "$ms"):
            ms = int(self._clock.now_ms())
            return 1_760_000_000_000 + ms if value == "$ms" else f"2026-01-01T00:{ms // 60000 % 60:02}:{ms % 60000}Z"
        return value

    # --- the model and the boundaries -------------------------------------------------------------------------

    async def model(self, call: ModelCall, harm: Harm | None) -> Outcome:
        site = f"{call.site.delegation}/{call.site.phase}"
        return await self._through("provider", MODEL_MS, harm, lambda: self._complete(call.request, site))

    async def effect(self, call: EffectCall, harm: Harm | None) -> Outcome:
        return await self._through(call.boundary, EFFECT_MS, harm, lambda: self._apply(call))

    async def _through(self, boundary: str, ms: float, harm: Harm | None, act: Any) -> Outcome:
        """Send a request through the network of a boundary, which may be cut now or since an earlier call."""
        await self._spend(ms / 2)
        if isinstance(harm, Fail):
            self._truth("suffered", {"boundary": boundary, "what": harm.code})
            return Err(code=harm.code, definite=True)
        if isinstance(harm, Cut):
            self._cuts[boundary] = (harm, self._clock.now_ms() + harm.ms)
        cut, until_ms = self._cuts.get(boundary, (None, -1.0))
        if cut is None or (harm is not cut and self._clock.now_ms() >= until_ms):
            outcome = act()
            await self._spend(ms / 2)
            return outcome
        self._truth("suffered", {"boundary": boundary, "what": cut.how, "stream": cut.stream})
        if cut.how == "slow":
            outcome = act()
            await self._spend(cut.hold_ms)
            return outcome
        if cut.stream == "downstream":
            lost = act()
            receipt = lost.receipt if isinstance(lost, Ok) else None
            named = {"completion": receipt} if boundary == "provider" else {}
            self._truth("undelivered", {"boundary": boundary, "receipt": receipt, **named})
        held = {"timeout": cut.hold_ms, "blackhole": CLIENT_TIMEOUT_MS}.get(cut.how, 0.0)
        await self._spend(min(held, CLIENT_TIMEOUT_MS) + ms / 2)
        code = {"limit": "truncated", "timeout": "connection-reset", "blackhole": "timeout"}.get(
            cut.how, "connection-reset"
        )
        return Err(code=code, definite=False)

    def _complete(self, request: dict[str, Json], site: str) -> Ok:
        """Compose and bill one completion; tokens are spent even if nobody gets the answer."""
        nth = self._billed.get(site, 0)
        self._billed[site] = nth + 1
        number = self._nth("completion")
        id = f"cmpl-{number}"
        reply = self._workload.reply(self._task, request, nth, self._stream)
        calls = [
            {"id": f"call-{number}-{i}", "name": name, "arguments": arguments}
            for i, (name, arguments) in enumerate(reply.tool_calls)
        ]
        prompt = _tokens(json.dumps(request["messages"])) + self._tool_tokens(request.get("tools"))
        completion = _tokens(json.dumps([reply.content, calls]))
        metadata = request.get("metadata")
        spent = {"prompt_tokens": prompt, "completion_tokens": completion}
        data = {"completion": id, "site": site, "model": request["model"], **spent, "metadata": metadata, "nth": nth}
        self._truth("billed", {**data, "drifting": True} if reply.drifting else data)
        value = {"id": id, "content": reply.content, "tool_calls": calls, "usage": spent}
        return Ok(value=value, receipt=id)

    def _tool_tokens(self, tools: Json) -> int:
        """Tokens of the tool descriptions, which are the same in every request of an agent."""
        if tools and self._tools is None:
            self._tools = _tokens(json.dumps(tools))
        return self._tools or 0 if tools else 0

    def _apply(self, call: EffectCall) -> Outcome:
        """The effect happens, durably, and the truth says so; or the sink has it already, and nothing happens."""
        if call.boundary == "database" and (told := self._tables.without_row(call)) is not None:
            return told
        if call.boundary == "repository" and (refused := self._remotes().move(call)) is not None:
            return refused
        held = self._held.setdefault(call.boundary, [])
        view = payload.view(call)
        facts: dict[str, Json]
        value: Json = {}
        if call.boundary == "transport":
            receipt = f"{len(held) + 1}-0"
            facts = {"operation": "XADD", "stream": call.target, "event": call.payload["event"]}
        elif call.boundary == "database":
            receipt = f"{call.target}/{len(held) + 1}"
            facts = {"service": call.target, "table": view.get("table"), **call.payload, "row": view.get("row")}
            value = {"columns": [], "rows": [], "rowcount": 1, "lastrowid": len(held) + 1}
        elif call.boundary == "registry":
            receipt = f"{call.payload['file']}#{len(held) + 1}"
            facts = dict(call.payload)
            value = {"body_b64": "", "content_type": "application/zip"}
        elif call.boundary == "provider":
            done = self._complete(call.payload, "service")
            receipt, value = str(done.receipt), done.value
            facts = {"operation": "chat", "metadata": call.payload.get("metadata"), "model": call.target}
        elif call.boundary == "repository":
            moved = {name: call.payload[name] for name in ("ref", "old", "new")}
            receipt, value = f"{moved['ref']}@{moved['new']}", moved
            content = self._remotes().content(str(moved["new"]))
            facts = {"operation": call.operation, "remote": call.target, **call.payload, "who": remote.WHO, **content}
        else:
            receipt, facts = f"hook#{len(held) + 1}", {"hook": call.target, "path": call.payload["path"]}
            self._leave(call)
        held.append(_Held(call, view, receipt, value))
        self._truth("effect", {"boundary": call.boundary, **facts, "receipt": receipt})
        return Ok(value=value, receipt=receipt)

    def _leave(self, call: EffectCall) -> None:
        """What a hook leaves behind in the workspace."""
        leaves = getattr(self._workload, "leaves", None)
        if leaves is not None:
            tree = self._tree(call.site.delegation, call.attempt)
            for path, text in leaves(call.target, call.payload["path"], tree.files).items():
                tree.put(path, text)

    async def probe(self, call: EffectCall, declared: DeclaredEffect) -> Probe:
        """Through the boundary's read interface, over the same network; a hook has none."""
        await self._spend(EFFECT_MS)
        if call.boundary == "hook" or self._clock.now_ms() < self._cuts.get(call.boundary, (None, -1.0))[1]:
            return Probe(count=None)
        view = payload.view(call)
        if all(payload.at(view, path) is None for path in declared.key):
            return Probe(count=None)
        found = [
            h
            for h in self._held.get(call.boundary, [])
            if h.call.target == call.target and payload.same_key(h.view, view, declared.key)
        ]
        value = found[-1].value if found and call.boundary != "registry" else None
        return Probe(count=len(found), receipts=tuple(h.receipt for h in found), value=value)


def _tokens(text: str) -> int:
    return -(-len(text.encode()) // 4)


def _plain_steps(workload: Workload, spec: CheckSpec, texts: Mapping[str, str], steps: list[Json]) -> list[Json]:
    really = getattr(workload, "steps", None)
    return steps if really is None else really(spec, texts, steps)


def _failing_id(spec: CheckSpec) -> str:
    return {"pytest": f"{spec.target}::test_flow", "node": f"{spec.target}::blurb"}.get(spec.kind, spec.target)


def _fetch(line: str) -> Effect:
    package, _, version = line.partition("==")
    wheel = f"{package}-{version}-py3-none-any.whl"
    return "registry", "fetch", package, {"package": package, "version": version, "file": wheel}


def _step(step: Json) -> Effect | dict[str, Json]:
    """The effect of one scenario step, in the shape in which the live gateway reads it off the wire; or a read."""
    if step["do"] == "publish":
        return "transport", "XADD", step["stream"], {"event": step["event"]}
    if step["do"] == "insert":
        return "database", "execute", step["service"], {"sql": step["sql"], "params": step["params"]}
    if step["do"] == "install":
        return _fetch(step["requirement"])
    if step["do"] == "complete":
        return "provider", "chat", step["request"]["model"], step["request"]
    return step
