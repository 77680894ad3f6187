"""What a run is made of, written down before its first trial: schedule, registration, code, packages, machine.

Nobody can judge numbers without knowing which code made them on what; no path and no name of the machine is kept.
"""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import msgspec

from harness.core.clock import wall_iso
from harness.core.types import Json
from harness.schedule import Schedule, resolved

GIT_TIMEOUT_S = 20


def manifest(
    schedule: Schedule, registration: dict[str, Json] | None, overrides: dict[str, Json], jobs: int
) -> dict[str, Json]:
    """The manifest of a run that starts now. registration: {id, sha256, document}, as it is before the first trial.
    overrides: what the command line changed in the schedule."""
    text, sha256 = resolved(schedule)
    sealed = None if registration is None else {**registration, "sealed_before_first_trial": True}
    return {
        "schedule": {
            "name": schedule.name,
            "version": schedule.version,
            "sha256": sha256,
            "resolved": msgspec.json.decode(text),
        },
        "overrides": overrides,
        "preregistration": sealed or {},
        "seed": schedule.seed,
        "world": schedule.world,
        "arms": [arm.name for arm in schedule.arms],
        "pairs": schedule.pairs,
        "started": wall_iso(),
        "ended": None,
        "starts": [start(jobs)],
        "reruns": [],
    }


def start(jobs: int) -> dict[str, Json]:
    """What may differ between the first start of a run and the next that continues it."""
    return {"at": wall_iso(), "jobs": jobs, "git": git(), "packages": packages(), "machine": machine()}


def git() -> dict[str, Json]:
    """Commit of the harness, and whether files differ from it; an empty mapping outside a repository."""
    folder = Path(__file__).parent
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(_git(folder, "status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return {}


def _git(folder: Path, *command: str) -> str:
    done = subprocess.run(
        ["git", *command], cwd=folder, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=True
    )
    return done.stdout.strip()


def packages() -> dict[str, str]:
    """Versions of all installed distributions, by name."""
    found = {item.metadata["Name"]: item.version for item in metadata.distributions() if item.metadata["Name"]}
    return dict(sorted(found.items()))


def machine() -> dict[str, Json]:
    return {
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count() or 1,
        "python": platform.python_version(),
    }
