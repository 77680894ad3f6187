"""Three orchestrator processes on one plan and one store: they overlap, die one by one, and leave nothing."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from faults import FAULTS
from harness.core.records import Event, SealedTrial, hosts
from harness.core.types import CheckSpec
from harness.live.executor import LiveExecutor
from harness.live.supervisor import _tag
from harness.runner import Finished
from harness.schedule import TrialSpec
from harness.score import score
from harness.world.live.checks import CheckRunner
from harness.world.live.zygote import start_zygote
from tests.live.test_trials import spec
from workloads.oracles import ORACLES
from workloads.tenants.task import HOSTS

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-trials")]

BROKEN = "tests.sim.test_tenants:BROKEN_IN_SOUTH"
CELLS = [
    ("mesh", "none", ""),
    *((arm, fault, FAULTS[fault].variants[0]) for fault in FAULTS for arm in ("naive", "mesh")),
]
USED_UP = "used up"


def tenants(arm: str, fault: str, variant: str) -> TrialSpec:
    one = spec(arm, fault, variant, "live")
    return replace(one, workload="tenants", id=f"{arm}-{fault}")


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def pids(trace: tuple[Event, ...]) -> list[int]:
    return [e.data["pid"] for e in trace if e.kind == "epoch"]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Finished]]:
    """Every cell, and two trials that cannot end well, run once; nothing of them is left."""
    patch = pytest.MonkeyPatch()
    folder: Path = tmp_path_factory.mktemp("live")
    patch.setenv("TMPDIR", str(folder))
    executor = LiveExecutor(jobs=4, workers=1)
    for cell in CELLS:
        executor.submit(tenants(*cell))
    executor.submit(tenants(BROKEN, "none", ""))
    ended = tenants("mesh", "staging_crash", "effect_unrecorded")
    executor.submit(replace(ended, limits=replace(ended.limits, restarts=0), id=USED_UP))
    done: dict[str, Finished] = {}
    try:
        for finished in executor.results():
            assert finished.record is not None, finished.trouble
            done[finished.spec.id] = finished
            assert [pid for pid in pids(finished.trace) if not gone(pid)] == []
    finally:
        executor.close()
        patch.undo()
    yield done
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("cell", CELLS, ids="-".join)
def test_every_class_of_faults_is_valid_in_both_arms(live: dict[str, Finished], cell: tuple[str, str, str]) -> None:
    done = live[f"{cell[0]}-{cell[1]}"]
    assert done.record is not None
    assert (done.record.status, done.record.because) == ("ended", "")
    assert done.record.exposure["observed"] == done.record.exposure["fired"]
    assert "database is locked" not in str([e.data for e in done.trace])
    assert not [e for e in done.trace if e.kind == "arm_error"]
    if cell[1] == "none":
        scored = score(SealedTrial(record=done.record, trace=done.trace, truth=done.truth), ORACLES["tenants"])
        assert scored.success
        assert {f.status for f in scored.findings} == {"exactly_once"}


def test_the_processes_of_three_hosts_run_at_the_same_time(live: dict[str, Finished]) -> None:
    trace = live["mesh-none"].trace
    begun = [e for e in trace if e.kind == "epoch"]
    assert {e.data["host"] for e in begun} == {*HOSTS}
    assert len({*pids(trace)}) == len(begun) == 3
    spans = [[e.at_ms for e in trace if e.epoch == n] for n in range(3)]
    for one, other in itertools.combinations(spans, 2):
        assert max(one[0], other[0]) < min(one[-1], other[-1])
    north, south = ([e.at_ms for e in trace if e.kind == "call" and e.epoch == n] for n in range(2))
    assert north[0] < south[-1]
    assert south[0] < north[-1]


def test_calls_and_processes_are_numbered_over_all_hosts(live: dict[str, Finished]) -> None:
    for done in live.values():
        ids = [e.data["call_id"] for e in done.trace if e.kind == "call"]
        assert len(ids) == len({*ids})
        if done.record is not None and done.record.status == "ended":
            assert sorted(e.epoch for e in done.trace if e.kind == "epoch") == list(range(len(pids(done.trace))))


def test_what_a_process_told_has_its_number(live: dict[str, Finished]) -> None:
    host_of = {id: host for host, ids in HOSTS.items() for id in ids}
    for done in live.values():
        placed = hosts(done.trace)
        for event in done.truth:
            if event.kind == "exit":
                assert event.epoch == event.data["epoch"]
            if event.kind == "crossed" or (event.kind == "fault" and event.data["state"] == "fired"):
                assert placed[event.epoch] == host_of[event.data["delegation"]]
            if event.kind == "crossed":
                assert event.data["call_id"].startswith(f"c{event.epoch}.")


def test_the_others_go_on_while_a_dead_host_is_started_again(live: dict[str, Finished]) -> None:
    deaths = 0
    for done in live.values():
        placed = hosts(done.trace)
        for death in (e for e in done.truth if e.kind == "exit"):
            host = placed[death.data["epoch"]]
            begun = [e.at_ms for e in done.trace if e.kind == "epoch" and placed[e.epoch] == host]
            later = [ms for ms in begun if ms > death.at_ms]
            if later:
                meanwhile = {placed[e.epoch] for e in done.trace if death.at_ms < e.at_ms < later[0]}
                assert host not in meanwhile
                deaths += bool(meanwhile)
    assert deaths > 0


def test_a_defect_in_one_host_makes_the_trial_invalid_and_ends_the_others(live: dict[str, Finished]) -> None:
    record = live[f"{BROKEN}-none"].record
    assert record is not None
    assert record.status == "invalid"
    assert "it has no south" in record.because
    assert "left behind" not in record.because


def test_a_host_whose_restarts_are_used_up_ends_the_trial_at_once(live: dict[str, Finished]) -> None:
    done = live[USED_UP]
    assert done.record is not None
    assert (done.record.status, done.record.because) == ("stuck", "restart limit")
    assert len(pids(done.trace)) == 3
    (death,) = [e for e in done.truth if e.kind == "exit"]
    others = [e.at_ms for e in done.trace if e.kind == "call"]
    assert max(others) < death.at_ms + 10_000


def test_an_orchestrator_that_somebody_else_kills_makes_the_trial_invalid(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("k")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    executor = LiveExecutor(jobs=1, workers=1)
    try:
        executor.submit(tenants("naive", "none", ""))
        executor._assign()
        while len(begun := [line for path in folder.glob("*/t1/trace.jsonl") for line in _begun(path)]) < 3:
            assert executor._workers[0].process.poll() is None
            os.sched_yield()
        os.kill(begun[-1], signal.SIGKILL)
        (done,) = executor.results()
        assert done.record is not None, done.trouble
        assert done.record.status == "invalid"
        assert done.record.because == "an orchestrator process died of a signal that no fault sent"
        assert [pid for pid in pids(done.trace) if not gone(pid)] == []
    finally:
        executor.close()
    assert list(folder.iterdir()) == []


def test_the_checks_of_a_dead_host_are_ended_and_those_of_the_others_are_not(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("z")
    (folder / "t_sleep.py").write_text("import time\ndef test_sleep():\n    time.sleep(600)\n")
    check = CheckSpec(name="sleeps", kind="pytest", target="t_sleep.py")

    async def ended() -> tuple[list[str], list[str]]:
        zygote = await start_zygote(folder / "s")
        runners = {host: CheckRunner(zygote.socket_path, _tag("t1", host)) for host in HOSTS}
        try:
            running = [await runner.start(check, folder, {}) for runner in runners.values()]
            before = [one["tag"] for one in await runners["north"].listing()]
            assert await runners["north"].end_all() == 1
            after = [one["tag"] for one in await runners["north"].listing()]
            for runner in runners.values():
                await runner.end_all()
            assert {(await one.wait()).signal for one in running} == {signal.SIGKILL}
        finally:
            await zygote.stop()
        return before, after

    before, after = asyncio.run(ended())
    assert sorted(before) == ["t1/east", "t1/north", "t1/south"]
    assert sorted(after) == ["t1/east", "t1/south"]


def _begun(path: Path) -> list[int]:
    """Numbers of the processes that have said that they began."""
    lines = path.read_bytes().splitlines(keepends=True)
    events = [msgspec.json.decode(line, type=Event) for line in lines if line.endswith(b"\n")]
    return pids(tuple(events))
