"""A run far beyond what a test may take: `python -m tests.nightly`, of 100,000 simulated trials.

Each step is a process of its own, whose largest memory the kernel tells; the run fails when a step takes more than
2 GiB, or a trial more than 16 KiB on the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from msgspec import Struct

from harness.core.clock import monotonic_s

ROOT = Path(__file__).resolve().parents[2]
MEMORY_MAX_MIB = 2048.0
TRIAL_MAX_KIB = 16.0
ARMS = ("naive", "mesh")


class Step(Struct, frozen=True):
    """What a command took. memory_mib: of its largest process."""

    name: str
    seconds: float
    memory_mib: float


def measure(name: str, command: list[str]) -> Step:
    """Run one command to its end. Raises SystemExit where it fails."""
    began_s = monotonic_s()
    process = subprocess.Popen([sys.executable, "-m", "harness.cli", *command], cwd=ROOT)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{name} failed with exit status {process.returncode}")
    # of the process itself or the largest of those that it waited for, in KiB on Linux
    return Step(name, monotonic_s() - began_s, used.ru_maxrss / 1024)


def kib_per_trial(folder: Path, trials: int) -> float:
    size = sum(path.stat().st_size for stream in ("trace", "truth") for path in (folder / stream).glob("*.seg"))
    return size / trials / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--schedule", default="schedules/sim.yaml")
    parser.add_argument("--out", type=Path, help="folder of the run; a temporary one that is removed when left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agentmesh-nightly-") as temporary:
        folder = options.out or Path(temporary) / "run"
        size = ["--pairs", str(options.trials // len(ARMS)), "--arms", ",".join(ARMS), "--world", "sim"]
        steps = [
            measure("run", ["run", options.schedule, *size, "--out", str(folder)]),
            measure("score", ["score", str(folder)]),
            measure("report", ["report", str(folder)]),
        ]
        trials = sum(1 for _ in (folder / "trials.jsonl").open("rb"))
        each_kib = kib_per_trial(folder, trials)
        pairs = json.loads((folder / "summary.json").read_bytes())["pairs"]
    for step in steps:
        print(f"{step.name}: {step.seconds:.0f} s, {step.memory_mib:.0f} MiB at the most")
    print(f"{trials} trials, {pairs} pairs in the report, {each_kib:.1f} KiB of traces a trial")
    over = [step.name for step in steps if step.memory_mib > MEMORY_MAX_MIB]
    if over or each_kib > TRIAL_MAX_KIB:
        raise SystemExit(f"over the limit: {', '.join([*over, *(['traces'] if each_kib > TRIAL_MAX_KIB else [])])}")


if __name__ == "__main__":
    main()
