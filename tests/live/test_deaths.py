"""What dies by somebody else's hand in the live world costs no trial, and leaves no file behind."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.core.records import Event
from harness.live.executor import LiveExecutor
from harness.live.supervisor import _foreign_deaths
from harness.schedule import ArmPairs, Limits, Schedule, trials

SPEC = trials(
    Schedule(
        schema="agentmesh-schedule/1",
        name="deaths",
        version=1,
        seed=3,
        pairs=1,
        world="live",
        time_scale=0.05,
        workloads={"codegen": 1.0},
        arms=(ArmPairs(name="naive"),),
        faults_per_trial=0,
        limits=Limits(lag_ms=1_000_000.0),
    )
)[0]


def children(pid: int, words: str) -> list[int]:
    """Processes below `pid` whose command line holds these words."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [(int(a), int(b), args) for a, b, args in (line.split(None, 2) for line in listed.splitlines())]
    below, found = {pid}, []
    for _ in range(3):
        below |= {a for a, b, _ in rows if b in below}
    found = [a for a, _, args in rows if a in below and words in args]
    return found


@pytest.mark.parametrize("victim", ["harness.live.worker", "harness.world.live.zygote"])
def test_a_killed_server_gives_its_trials_back_and_leaves_no_folder(
    victim: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path = tmp_path_factory.mktemp("d")  # addresses of sockets are short
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    executor = LiveExecutor(jobs=1, workers=1)
    try:
        executor.submit(SPEC)
        executor._assign()
        while not (found := children(executor._workers[0].process.pid, victim)) or not any(tmp_path.glob("*/t1")):
            assert executor._workers[0].process.poll() is None
            os.sched_yield()
        os.kill(found[0], signal.SIGKILL)
        first = next(iter(executor.results()))
        assert (first.spec.id, first.record, first.lost) == (SPEC.id, None, True)
        executor.submit(SPEC)
        again = next(iter(executor.results()))
        assert again.record is not None, again.trouble
        assert again.record.status == "ended"
    finally:
        executor.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_for_temporary_files_that_is_none_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    executor = LiveExecutor(jobs=1)
    executor.submit(SPEC)
    with pytest.raises(ConfigError, match="name another folder in TMPDIR; continue with --resume"):
        list(executor.results())
    executor.close()


def test_where_there_is_no_room_no_trial_is_begun(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("e")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr("harness.live.executor.ROOM_BYTES_MIN", 1 << 60)
    executor = LiveExecutor(jobs=1)
    executor.submit(SPEC)
    with pytest.raises(ConfigError, match=r"the disk for temporary files is full .*TMPDIR"):
        list(executor.results())
    executor.close()
    monkeypatch.setattr("harness.live.executor.ROOM_BYTES_MIN", 0)
    long = folder / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    executor.submit(SPEC)
    with pytest.raises(ConfigError, match="the name is too long; allowed: at most 75 bytes"):
        list(executor.results())
    executor.close()
    assert list(long.iterdir()) == []


@pytest.mark.parametrize(("meant", "seen", "foreign"), [(0, 0, 0), (1, 1, 0), (1, 0, 0), (0, 1, 1), (1, 3, 2)])
def test_deaths_that_no_fault_meant_are_counted(meant: int, seen: int, foreign: int) -> None:
    said = [Event(n, 0.0, 0, "fault", {"state": "fired", "fate": "die"}) for n in range(meant)]
    said += [
        Event(9, 0.0, 0, "fault", {"state": "fired", "fate": "hang"}),
        Event(9, 0.0, 0, "fault", {"state": "armed"}),
    ]
    truth = [Event(n, 0.0, 0, "exit", {"signal": "SIGKILL"}) for n in range(seen)]
    assert _foreign_deaths(truth, said) == foreign
