"""A run with a real model that is killed, capped, continued: what was spent stays spent, nothing is kept twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from harness.trace_store import TraceStore
from harness.world.live.cassette import START, Tape
from harness.world.live.spending import Caps, Ledger
from tests.live.modelruns import SCHEDULE, Agent, agentmesh, begin

pytestmark = pytest.mark.live

ROOM = 3_000
"""Tokens that a continued run may spend before its cap: less than a trial takes."""


def spent(run: Path) -> int:
    ledger = Ledger(run / "spending.jsonl", Caps())
    try:
        return ledger.total().tokens
    finally:
        ledger.close()


async def test_killed_capped_and_continued_a_run_spends_and_records_once(tmp_path):
    schedule, tape, run = tmp_path / "model.yaml", tmp_path / "tape", tmp_path / "run"
    schedule.write_text(SCHEDULE.replace("[naive]", "[naive, mesh]"))
    agent = Agent(schedule)
    async with agent as url:
        whom = ("--provider-url", url, "--model", "m-1", "--key-from", "MODEL_KEY", "--cassette", str(tape))
        command = ("run", str(schedule), *whom, "--jobs", "1", "--out", str(run))
        killed = await begin(*command, "--max-tokens", "10000000")
        await middle_of_the_second_trial(killed, run, tape)
        killed.kill()
        await killed.communicate()
        before, kept = spent(run), {entry.trial for entry in Tape(tape).entries()}
        assert len(kept) == 2

        code, _, err = await agentmesh(*command, "--max-tokens", str(before + ROOM), "--resume")
        assert (code, f"stopped by the spend cap of {before + ROOM} tokens: 1 of 2 trials are sealed" in err) == (
            1,
            True,
        ), err
        assert before < spent(run) < before + 2 * ROOM  # by at most the answers that were under way
        assert json.loads((run / "manifest.json").read_text())["provider"]["spent"]["cap_reached"]
        with TraceStore.open(run) as store:
            assert [sealed.record.status for sealed in store.iter()] == ["ended"]

        code, _, err = await agentmesh(*command, "--resume")
        assert code == 0, err
    with TraceStore.open(run) as store:
        assert [sealed.record.status for sealed in store.iter()] == ["ended", "ended"]
        noted = store.manifest["provider"]["spent"]
        billed = [e.data for s in store.iter() for e in s.truth if e.kind == "billed"]
    entries = Tape(tape)
    assert tape.read_bytes().count(START) - 1 == len(entries) == len(billed)
    assert entries.damaged_bytes == 0
    sold = [b["prompt_tokens"] + b["completion_tokens"] for b in agent.told.of("billed")]
    assert noted["requests"] + noted["open"] == len(sold) > len(billed)  # what was cut off was paid for, too
    assert noted["open"] > 0 or noted["tokens"] == sum(sold)


async def middle_of_the_second_trial(process: asyncio.subprocess.Process, run: Path, tape: Path) -> None:
    """Returns when one trial is sealed, and answers to another are recorded."""
    sealed = run / "trials.jsonl"
    while not (
        sealed.exists() and sealed.read_bytes().count(b"\n") and len({e.trial for e in Tape(tape).entries()}) == 2
    ):
        assert process.returncode is None, "the run ended before it was killed"
        await asyncio.sleep(0.02)
