"""The whole harness is killed in the middle of a run: what it started goes away, and a second start ends the run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import evaluate
from harness.evaluate import Overrides

ROOT = Path(__file__).resolve().parents[2]
MARK = "AGENTMESH_TEST_MARK"
PATIENCE_S, PAUSE_S = 120.0, 0.05

SCHEDULE = """\
schema: agentmesh-schedule/1
name: interrupted
version: 1
seed: 77
world: sim
workloads: {codegen: 1}
pairs: 8
arms: [naive, mesh, journaled]
no_fault_twins: 2
faults:
  mix:
    staging_crash: 0.12
    orchestrator_restart: 0.12
    hung_check: 0.15
    network_partition: 0.15
    provider_interruption: 0.24
    nondeterminism: 0.22
preregistration: schedules/prereg/kill-criterion-001.yaml
"""


class Harness:
    """`agentmesh eval` in processes that can be told from all others, with a folder of its own for temporary files."""

    def __init__(self, folder: Path, schedule: Path, *options: str) -> None:
        self.out, self.temporary = folder / "run", folder / "t"
        self.temporary.mkdir(parents=True)
        self.mark = uuid.uuid4().hex
        self._command = [sys.executable, "-m", "harness.cli", "eval", str(schedule), "--out", str(self.out), *options]
        self._environment = {**os.environ, MARK: self.mark, "TMPDIR": str(self.temporary)}

    def start(self, *more: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*self._command, *more], cwd=ROOT, env=self._environment, stdout=pipe, stderr=pipe, text=True
        )

    def end(self, *more: str) -> None:
        process = self.start(*more)
        said = process.communicate(timeout=10 * PATIENCE_S)
        assert process.returncode == 0, said
        assert said[0].splitlines()[-1] == str(self.out)

    def sealed(self) -> list[str]:
        """Ids of the sealed trials, in the order in which they were sealed."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self.out / "trials.jsonl").read_bytes().splitlines(keepends=True)
            return [json.loads(line)["id"] for line in lines if line.endswith(b"\n")]
        return []

    def processes(self) -> dict[int, str]:
        """All living processes that this harness started, however indirectly, with their command lines: known by the
        mark in their environment, or by working in its folder."""
        found = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                marked = f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes()
                inside = (entry / "cwd").readlink().is_relative_to(self.temporary.resolve())
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if (marked or inside) and state != "Z":
                    found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
        return found

    def kill(self, sealed_min: int) -> tuple[int, list[str]]:
        """SIGKILL to the one process that was started here, once so many trials are sealed: how many had been, and the
        command lines of the processes that it left behind."""
        process = self.start()
        until(lambda: len(self.sealed()) >= sealed_min or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        others = [command for pid, command in self.processes().items() if pid != process.pid]
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return len(self.sealed()), others


def until(condition: Callable[[], object]) -> None:
    """Wait for it. Raises AssertionError when it does not come."""
    tries = int(PATIENCE_S / PAUSE_S)
    for _ in range(tries):
        if condition():
            return
        time.sleep(PAUSE_S)
    raise AssertionError("it did not happen")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: addresses of sockets are limited."""
    with tempfile.TemporaryDirectory(prefix="am") as made:
        yield Path(made)


def test_a_killed_run_is_continued_to_the_very_results_of_one_that_was_not(folder: Path) -> None:
    schedule = folder / "interrupted.yaml"
    schedule.write_text(SCHEDULE)
    (folder / "schedules").symlink_to(ROOT / "schedules")
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    killed = Harness(folder / "a", schedule, "--jobs", "2")
    before, left = killed.kill(sealed_min=3)
    assert len(left) >= 2
    until(lambda: not killed.processes())
    killed.end("--resume")
    whole = Harness(folder / "b", schedule, "--jobs", "1")
    whole.end()
    assert 3 <= before < len(whole.sealed())
    assert Counter(killed.sealed()) == Counter(whole.sealed())
    assert max(Counter(killed.sealed()).values()) == 1
    for name in ("summary.json", "findings.jsonl", "metrics.csv", "report.md"):
        assert (killed.out / name).read_bytes() == (whole.out / name).read_bytes(), name
    starts = [len(json.loads((h.out / "manifest.json").read_text())["starts"]) for h in (killed, whole)]
    assert starts == [2, 1]


def test_a_run_that_is_killed_twice_loses_and_repeats_nothing(folder: Path) -> None:
    schedule = folder / "interrupted.yaml"
    schedule.write_text(SCHEDULE)
    (folder / "schedules").symlink_to(ROOT / "schedules")
    harness = Harness(folder, schedule, "--jobs", "2")
    first, _ = harness.kill(sealed_min=1)
    process = harness.start("--resume")
    until(lambda: len(harness.sealed()) > first or process.poll() is not None)
    process.kill()
    process.communicate()
    until(lambda: not harness.processes())
    harness.end("--resume")
    planned = [spec.id for spec in evaluate.plan(schedule).specs]
    assert sorted(harness.sealed()) == sorted(planned)


@pytest.mark.live
@pytest.mark.xdist_group("live-trials")
def test_a_killed_live_run_leaves_no_process_and_no_file_and_is_continued(folder: Path) -> None:
    schedule = ROOT / "schedules" / "smoke.yaml"
    harness = Harness(folder, schedule, "--pairs", "2", "--jobs", "3")
    _, left = harness.kill(sealed_min=1)
    for part in ("harness.live.worker", "zygote", "forkserver"):
        assert any(part in command for command in left), left
    until(lambda: not harness.processes())
    until(lambda: not list(harness.temporary.iterdir()))
    harness.end("--resume")
    assert not harness.processes()
    planned = [spec.id for spec in evaluate.plan(schedule, Overrides(pairs=2)).specs]
    assert sorted(harness.sealed()) == sorted(planned)
