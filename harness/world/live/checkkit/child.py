"""The life of one check or hook process, from the fork to its exit.

Why a file of its own: the four knobs that an injected fault needs (verdict turned, monitor broken, hung, slow) must be
real properties of the real process, equal for every kind of check, and apart from the server that forks it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from harness.world import checkpoints
from harness.world.live.checkkit import external, inline, verdict

RUNNERS = {
    "pytest": inline.run_pytest,
    "script": inline.run_script,
    "node": external.run_node,
    "install": external.run_install,
}

PACE_SLICE_S = 0.05
"""A paced process shows progress at least this often."""

FILE_BYTES_MAX = 1 << 28
"""No file of a check, its output included, may grow beyond this: output is kept in memory."""

INTERNAL_ERROR = 3
"""Exit status of a runner that broke down itself; the number that pytest uses."""


def live(request: Mapping[str, Any], output_fd: int, result_fd: int) -> NoReturn:
    """Be the process that `request` asks for; never returns.

    request: kind, target, cwd, env, args, coin ("", flip, raise), hold ("", before, after), pace_ms (real). Output goes
    to `output_fd`, and `{"came_to", "passed", "failing", "checkpoints"}` as JSON to `result_fd`: `came_to` is what was
    found before the coin fell, and stands alone when the coin breaks the runner; nothing is written when the runner
    breaks down by itself. Checkpoints are what its processes appended, as JSON lines, to the file that CHECKPOINTS
    names; a `doubt` stands beside what was found when the check wrote one to the file that DOUBTS names: its own
    instruments failed, or contradicted each other.
    """
    status = INTERNAL_ERROR
    try:
        _settle_in(request, output_fd)
        _pace(request["pace_ms"] / 1000)
        if request["hold"] == "before":
            os.kill(os.getpid(), signal.SIGSTOP)
        place = Path(os.environ["CHECKPOINTS"])  # before anything that is tested can name another file
        doubts = Path(os.environ["DOUBTS"])
        really, found = _run(request, output_fd)
        report: dict[str, Any] = {"came_to": really}
        if doubts.exists():
            report["doubt"] = doubts.read_text(encoding="utf-8", errors="replace")
        if request["coin"] == "raise":
            os.write(result_fd, json.dumps(report).encode())
            raise verdict.BrokenRunner("the session came to an unexpected end")
        report |= {"passed": found.passed, "failing": found.failing, "checkpoints": _reached(place)}
        os.write(result_fd, json.dumps(report).encode())
        status = found.status
        if request["hold"] == "after":
            os.kill(os.getpid(), signal.SIGSTOP)
    except BaseException:
        verdict.print_internal_error()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _reached(place: Path) -> list[checkpoints.Checkpoint]:
    if not place.exists():
        return []
    with place.open(encoding="utf-8", errors="replace") as lines:
        return checkpoints.from_lines(lines)


def _settle_in(request: Mapping[str, Any], output_fd: int) -> None:
    """Take over the place, environment, streams and import path of the check."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    tempfile.tempdir = None  # look up TMPDIR anew
    sys.path[:] = [request["cwd"], *sys.path]
    _point_streams_at(output_fd)


def _point_streams_at(fd: int) -> None:
    os.dup2(fd, 1)
    os.dup2(fd, 2)


def _pace(seconds: float) -> None:
    """Take that much longer, with a sign of life per slice."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, PACE_SLICE_S))
        os.write(1, b".")
    if seconds > 0:
        os.write(1, b"\n")


def _run(request: Mapping[str, Any], output_fd: int) -> tuple[bool, verdict.Found]:
    """Run for real, and turn the verdict where the coin says so: whether it really passed, and what is reported.

    The output of a turned check is held back until its verdict is known, since it has to agree with what is reported.
    """
    run = RUNNERS[request["kind"]]
    if request["coin"] != "flip":
        found = run(request["target"], request["args"])
        return found.passed, found
    held = os.memfd_create("held-back")
    _point_streams_at(held)
    found = run(request["target"], request["args"])
    sys.stdout.flush()
    sys.stderr.flush()
    _point_streams_at(output_fd)
    turned, text = verdict.turned(request["kind"], request["target"], found, os.pread(held, os.fstat(held).st_size, 0))
    os.write(1, text)
    return found.passed, turned
