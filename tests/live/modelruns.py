"""Whole runs with an endpoint behind them: an endpoint whose model works, the command line, and what a run came to."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path

from harness import catalogue, evaluate
from harness.trace_store import TraceStore
from harness.world.live.completions import Completion, ToolCallSpec
from harness.world.live.provider import ProviderServer
from tests.live.modelbench import KEY, Truth

ROOT = Path(__file__).resolve().parents[2]
SCHEDULE = """\
schema: agentmesh-schedule/1
name: model
version: 1
seed: 11
world: live
time_scale: 0.1
workloads: {idempotent: 1}
pairs: 1
arms: [naive]
no_fault_twins: 0
faults: {mix: {nondeterminism: 1}}
limits: {nominal_ms: 36000000, lag_ms: 10000000}
"""


class Agent:
    """An endpoint whose model works: it finds out from the conversation alone what it is asked to do, as it gets none
    of the harness's own fields, and it repeats the key whenever it may speak."""

    def __init__(self, schedule: Path) -> None:
        (self.spec,) = {spec.seed: spec for spec in evaluate.plan(schedule).specs}.values()
        self.workload = catalogue.workload(self.spec.workload)
        self.task = self.workload.task(self.spec.seed, self.spec.variation, self.spec.mode)
        self.told = Truth()
        self._billed: Counter[str] = Counter()
        self._server = ProviderServer(self.told, self._reply, lambda request: "all")

    async def __aenter__(self) -> str:
        port = await self._server.start()
        await self._server.open("up")
        return f"http://127.0.0.1:{port}/up/v1"

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()

    def _reply(self, ns: str, request: dict, nth: int) -> Completion:
        asked = next(m["content"] for m in request["messages"] if m["role"] == "user")
        found = [d for d in self.task.delegations if asked.startswith(d.goal)]
        if not found:
            return Completion(f"Something in one sentence, with {KEY}.")
        delegation, phase = found[0].id, asked.partition(" Phase: ")[2].partition(".")[0]
        site = f"{delegation}/{phase}"
        placed = {**request, "metadata": {"delegation": delegation, "phase": phase}}
        reply = self.workload.reply(self.task, placed, self._billed[site], 0)
        self._billed[site] += 1
        calls = tuple(ToolCallSpec(name, arguments) for name, arguments in reply.tool_calls)
        return Completion(f"{reply.content} {KEY}", calls, "tool_calls" if calls else "stop")


async def begin(*arguments: str, behind: tuple[str, ...] = ()) -> asyncio.subprocess.Process:
    """A command line under way, with the key in its environment. behind: a program that starts it."""
    return await asyncio.create_subprocess_exec(
        *(*behind, sys.executable, "-m", "harness.cli", *arguments),
        cwd=ROOT,
        env={**os.environ, "MODEL_KEY": KEY},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def agentmesh(*arguments: str, behind: tuple[str, ...] = ()) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command line."""
    process = await begin(*arguments, behind=behind)
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


def done(folder: Path) -> list[tuple]:
    """What was asked, said and done in a run, without times and ids of calls."""
    steps: list[tuple] = []
    with TraceStore.open(folder) as store:
        for sealed in store.iter():
            told = {e.data["completion"]: e.data for e in sealed.truth if e.kind == "billed"}
            for event in sealed.trace:
                if event.kind == "turn":
                    one, bill = event.data, told[event.data["completion"]]
                    place = (one["delegation"], one["phase"], one["turn"], one["completion"])
                    steps.append((*place, bill["usage"], one["writes"], one["checks"]))
                elif event.kind == "delegation_end":
                    steps.append((event.data["delegation"], event.data["status"]))
            steps.append((sealed.record.id, sealed.record.status))
    return sorted(steps, key=repr)
