"""Whole runs with an endpoint behind them, from the command line: recorded, searched for the key, replayed."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.trace_store import TraceStore
from harness.world.live.cassette import Recorder, Tape, member
from tests.live.modelbench import KEY
from tests.live.modelruns import SCHEDULE, Agent, agentmesh, done

pytestmark = pytest.mark.live

HIDDEN = (KEY, "not-for-others", "api-version")
"""What is found nowhere: the key, and what the address holds beside its host."""


def alone() -> tuple[str, ...]:
    """What a command is put behind to have no network but a loopback of its own, where the system permits that."""
    program = shutil.which("unshare")
    trial = [program or "", "-rn", "ip", "link", "set", "lo", "up"]
    if program is None or subprocess.run(trial, capture_output=True, check=False).returncode:
        return ()
    return (program, "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


def without_one(tape: Path, kept: Path) -> str:
    """A copy of a cassette that lacks the first request of its first trial; the place of that request."""
    held = Tape(tape)
    first, *others = held.entries()
    kept.write_bytes(member(held.header) + b"".join(member(one) for one in others))
    return first.site


def with_one_more(tape: Path, kept: Path) -> int:
    """A copy of a cassette that has an answer more for its first trial, which nobody will ask for; how many it has."""
    kept.write_bytes(tape.read_bytes())
    first = next(iter(Tape(tape).entries()))
    recorder = Recorder(kept)
    recorder.add(replace(first, key="0" * 64))
    recorder.close()
    return len(Tape(kept))


async def environments(running: asyncio.Task, mark: str) -> list[bytes]:
    """The environments of a run's processes as an onlooker sees them, over and over until the run has ended: those with
    `mark` in them. To be called when the run has begun: until a process has read the key, the key must be there."""
    seen: list[bytes] = []
    while not running.done():
        for process in Path("/proc").glob("[0-9]*"):
            try:
                told = (process / "environ").read_bytes()
            except OSError:
                continue  # it has ended, or is somebody else's
            if mark.encode() in told and int(process.name) != os.getpid():
                seen.append(told)
        await asyncio.sleep(0.2)
    return seen


async def test_a_recorded_run_is_replayed_alike_without_a_network_and_holds_no_key(tmp_path, monkeypatch):
    monkeypatch.setenv("MODEL_RUN", str(tmp_path))
    schedule, tape = tmp_path / "model.yaml", tmp_path / "tape.jsonl.gz"
    schedule.write_text(SCHEDULE)
    options = ("--key-from", "MODEL_KEY", "--jobs", "2", "--out")
    agent = Agent(schedule)
    async with agent as url:
        asked = ("--provider-url", f"{url}?api-version=1&tag=not-for-others", "--model", "m-1", "--price", "2,10")
        record = ("cassette", "record", str(schedule), str(tape), *asked, *options, str(tmp_path / "first"))
        running = asyncio.create_task(agentmesh(*record))
        while not tape.exists() and not running.done():
            await asyncio.sleep(0.05)
        seen = await environments(running, f"MODEL_RUN={tmp_path}")
        code, out, err = await running
        assert code == 0, err
    assert len(seen) > 2
    assert not any(KEY.encode() in told for told in seen)
    assert out.splitlines()[-1] == str(tmp_path / "first")
    assert "tokens in" in err
    site = without_one(tape, tmp_path / "lacking")
    more = with_one_more(tape, tmp_path / "surplus")

    async def replay(name: str, cassette: Path) -> tuple[int, str, str]:
        to = ("--jobs", "1", "--out", str(tmp_path / name))
        return await agentmesh("cassette", "replay", str(schedule), str(cassette), *to, behind=alone())

    second, third, lacking, surplus = await asyncio.gather(  # the endpoint is gone
        replay("second", tape),
        replay("third", tape),
        replay("fourth", tmp_path / "lacking"),
        replay("fifth", tmp_path / "surplus"),
    )
    for code, _, told in (second, third):
        assert (code, "nothing went out" in told) == (0, True), told
        assert f" 0 of {more - 1} recorded answers" in f" {told}".replace("\n", " ")
    steps = done(tmp_path / "first")
    assert repr(done(tmp_path / "second")) == repr(done(tmp_path / "third")) == repr(steps)
    assert any(step[1] == "done" for step in steps)
    assert (lacking[0], "the cassette has no answer to this request" in lacking[2], site in lacking[2]) == (
        1,
        True,
        True,
    )
    assert (surplus[0], f"1 of {more} recorded answers to these trials were never asked for" in surplus[2]) == (1, True)
    said = "".join((out, err, *second[1:], *third[1:], *lacking[1:], *surplus[1:]))
    for word in HIDDEN:
        found = [str(p) for p in tmp_path.rglob("*") if p.is_file() and word.encode() in p.read_bytes()]
        assert found == []
        assert word not in said
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
