"""Whole runs with an endpoint behind them, from the command line: recorded, searched for the key, replayed, capped."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from harness import catalogue, evaluate
from harness.trace_store import TraceStore
from harness.world.live.provider import Completion, ProviderServer, ToolCallSpec
from tests.live.modelbench import KEY, Truth

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parents[2]
SCHEDULE = """\
schema: agentmesh-schedule/1
name: model
version: 1
seed: 11
world: live
workloads: {codegen: 1}
pairs: 1
arms: [naive]
no_fault_twins: 0
faults: {mix: {nondeterminism: 1}}
limits: {nominal_ms: 3600000, lag_ms: 1000000}
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


async def agentmesh(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "harness.cli", *arguments),
        cwd=ROOT,
        env={**os.environ, "MODEL_KEY": KEY},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
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


async def test_a_recorded_run_is_replayed_alike_and_holds_no_key(tmp_path):
    schedule, tape = tmp_path / "model.yaml", tmp_path / "tape.jsonl.gz"
    schedule.write_text(SCHEDULE)
    options = ("--key-from", "MODEL_KEY", "--jobs", "2", "--out")
    agent = Agent(schedule)
    async with agent as url:
        asked = ("--provider-url", f"{url}?api-version=1&tag=not-for-others", "--model", "m-1", "--price", "2,10")
        record = ("cassette", "record", str(schedule), str(tape), *asked, *options, str(tmp_path / "first"))
        code, out, err = await agentmesh(*record)
        assert code == 0, err
    assert out.splitlines()[-1] == str(tmp_path / "first")
    assert "tokens in" in err
    replay = ("cassette", "replay", str(schedule), str(tape), "--jobs", "2", "--out")  # the endpoint is gone
    code, _, told = await agentmesh(*replay, str(tmp_path / "second"))
    assert (code, "nothing went out" in told) == (0, True), told
    steps = done(tmp_path / "first")
    assert done(tmp_path / "second") == steps
    assert any(step[1] == "done" for step in steps)
    for word in (KEY, "not-for-others", "api-version"):
        found = [str(p) for p in tmp_path.rglob("*") if p.is_file() and word.encode() in p.read_bytes()]
        assert found == []
        assert word not in out + err + told
    with TraceStore.open(tmp_path / "first") as store:
        assert KEY not in repr([(s.record, s.trace, s.truth) for s in store.iter()])
        manifest = store.manifest
    noted, billed = manifest["provider"], agent.told.of("billed")
    assert (noted["model"], noted["key_from"], noted["mode"]) == ("m-1", "MODEL_KEY", "record")
    assert url.startswith(f"http://{noted['host']}/")
    assert noted["spent"]["tokens"] == sum(b["prompt_tokens"] + b["completion_tokens"] for b in billed)
    assert noted["spent"]["requests"] == len(billed)
    assert manifest["overrides"] == {"answers": f"m-1 at {noted['host']}"}
    code, out, _ = await agentmesh("cassette", "inspect", str(tape))
    assert (code, f"m-1 at {noted['host']}" in out, f"{len(billed)} answers to" in out) == (0, True, True)
    code, _, err = await agentmesh(*replay, str(tmp_path / "third"), "--seed", "12")
    assert (code, "the cassette has no answer to this request" in err) == (1, True), err


async def test_a_run_whose_cap_is_reached_in_a_trial_says_so(tmp_path):
    schedule = tmp_path / "model.yaml"
    schedule.write_text(SCHEDULE)
    agent = Agent(schedule)
    async with agent as url:
        asked = ("--provider-url", url, "--model", "m-1", "--key-from", "MODEL_KEY", "--max-tokens", "6000")
        code, _, err = await agentmesh("run", str(schedule), *asked, "--jobs", "1", "--out", str(tmp_path / "run"))
    assert code == 0, err
    assert "the cap of 6000 tokens was reached" in err
    with TraceStore.open(tmp_path / "run") as store:
        ends = {(record.status, record.because) for record in store.records()}
        assert ends == {("stuck", "spend cap of the run")}
        spent = store.manifest["provider"]["spent"]
    assert spent["cap_reached"] == "6000 tokens"
    assert 0 < sum(b["prompt_tokens"] + b["completion_tokens"] for b in agent.told.of("billed")) == spent["tokens"]
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["provider"]["caps"]["tokens"] == 6000


@pytest.mark.parametrize(
    ("options", "because"),
    [
        (("--provider-url", "http://127.0.0.1:9/v1"), "a real model needs --provider-url and --model"),
        (("--provider-url", "http://me:hidden@127.0.0.1:9/v1", "--model", "m"), "contains credentials"),
        (("--provider-url", "http://127.0.0.1:9/v1", "--model", "m", "--world", "sim"), "live world only"),
        (("--provider-url", "http://127.0.0.1:9/v1", "--model", "m", "--max-cost", "1"), "--max-cost needs a price"),
    ],
)
async def test_bad_options_are_said_before_anything_is_run(tmp_path, options, because):
    (tmp_path / "model.yaml").write_text(SCHEDULE)
    out = ("--key-from", "MODEL_KEY", "--out", str(tmp_path / "run"))
    code, _, err = await agentmesh("run", str(tmp_path / "model.yaml"), *options, *out)
    assert (code, because in err, "hidden" in err, KEY in err) == (2, True, False, False), err
    assert not (tmp_path / "run").exists()
