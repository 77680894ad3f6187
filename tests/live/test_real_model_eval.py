"""A whole evaluation with a server that is none of ours: a model that talks nonsense is an outcome, not a failure."""

from __future__ import annotations

import json

import pytest

from harness.trace_store import TraceStore
from harness.world.live.cassette import Tape
from tests.live.modelbench import KEY, independent
from tests.live.modelruns import ROOT, SCHEDULE, agentmesh

pytestmark = pytest.mark.live

TURNS = 30
"""Of a trial, after which it is stopped; this model never gets anywhere."""


async def test_an_evaluation_with_an_independent_server_and_its_replay(tmp_path):
    schedule, tape, run = tmp_path / "model.yaml", tmp_path / "tape", tmp_path / "run"
    limits = SCHEDULE.replace("limits: {", f"limits: {{turns: {TURNS}, ").replace("[naive]", "[naive, mesh]")
    schedule.write_text(f"{limits}preregistration: {ROOT}/schedules/prereg/kill-criterion-001.yaml\n")
    async with independent() as server:
        whom = ("--provider-url", f"{server}/v1", "--model", "m-1", "--key-from", "MODEL_KEY", "--cassette", str(tape))
        code, out, err = await agentmesh("eval", str(schedule), *whom, "--out", str(run))
    assert code == 0, err
    assert out.splitlines()[-1] == str(run)
    assert "exploratory" in out
    with TraceStore.open(run) as store:
        statuses = {s.record.status for s in store.iter()}
        billed = [e.data["usage"] for s in store.iter() for e in s.truth if e.kind == "billed"]
    assert statuses <= {"ended", "stuck"}
    assert json.loads((run / "summary.json").read_text())["trials"]["invalid"] == 0
    assert len(Tape(tape)) >= len(billed) > TURNS
    assert all(usage["prompt_tokens"] > 0 for usage in billed)
    code, _, told = await agentmesh("cassette", "replay", str(schedule), str(tape), "--out", str(tmp_path / "again"))
    assert (code, "nothing went out" in told) == (0, True), told
    assert [p for p in tmp_path.rglob("*") if p.is_file() and KEY.encode() in p.read_bytes()] == []
    assert KEY not in out + err + told
