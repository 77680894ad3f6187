"""A whole run with a server that is none of ours and takes its time: it takes it in a replay too."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.trace_store import TraceStore
from harness.world.live.cassette import Tape
from tests.live.modelbench import independent
from tests.live.modelruns import SCHEDULE, agentmesh

pytestmark = pytest.mark.live

LATENCY_MS = 225
"""Real milliseconds; 15 s nominal at the pace of this run."""


def calls(run: Path) -> dict[str, tuple[str, int]]:
    """How each trial of a run ended, and how many answers it was billed for."""
    with TraceStore.open(run) as store:
        return {s.record.id: (s.record.status, sum(e.kind == "billed" for e in s.truth)) for s in store.iter()}


async def test_who_judges_by_time_decides_alike_when_a_slow_model_is_replayed(tmp_path):
    """The model reads the same again and again. At this pace the mesh takes that for waiting, and lets it; answers that
    came at once would be turned down, and fewer would be asked for."""
    schedule, tape, first, again = (tmp_path / name for name in ("model.yaml", "tape", "first", "again"))
    schedule.write_text(SCHEDULE.replace("[naive]", "[mesh]").replace("time_scale: 0.1", "time_scale: 0.015"))
    async with independent(latency_ms=LATENCY_MS) as server:
        whom = ("--provider-url", f"{server}/v1", "--model", "m-1", "--key-from", "MODEL_KEY")
        code, _, err = await agentmesh("cassette", "record", str(schedule), str(tape), *whom, "--out", str(first))
    assert code == 0, err
    code, _, err = await agentmesh("cassette", "replay", str(schedule), str(tape), "--out", str(again))
    recorded = len(Tape(tape))
    assert (code, f"0 of {recorded} recorded answers to these trials were never asked for" in err) == (0, True), err
    assert calls(again) == calls(first)
