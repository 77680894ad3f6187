"""Runs a package's own suite once per variant of its files and says which tests fail: a script of its own.

Why a process of its own that forks: pytest is imported once, and each variant is imported afresh by a child that owes
nothing to the one before. In: {files, target, limit_s, variants: [{path: text}]} as JSON. Out: one entry per variant,
the sorted ids of the tests that fail, or null where the suite did not end in time.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import pytest

MEMORY_BYTES_MAX = 2 << 30
WAIT_FACTOR = 6
"""Real time that a suite may take, as a multiple of its processor time."""

IDLE: tuple[str, ...] = (
    "cacheprovider",
    "debugging",
    "doctest",
    "faulthandler",
    "junitxml",
    "legacypath",
    "pastebin",
    "stepwise",
)
IDLE = (*IDLE, "setuponly", "setupplan", "threadexception", "unraisableexception")


class Failed:
    """A pytest plugin that remembers what failed, as checks report it."""

    def __init__(self) -> None:
        self.ids: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.ids.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.ids.add(report.nodeid)


def main(asked: dict[str, Any]) -> list[list[str] | None]:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        put(root, asked["files"])
        results = []
        for variant in asked["variants"]:
            put(root, variant)
            results.append(failing(root, asked["target"], asked["limit_s"]))
            put(root, {path: asked["files"][path] for path in variant})
        return results


def put(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.encode())


def failing(root: Path, target: str, limit_s: int) -> list[str] | None:
    """Fork, run, and read what the child says; None when it was ended by its limit, or by anything else."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        _run(root, target, limit_s, theirs)
    os.close(theirs)
    with os.fdopen(ours, "rb") as answers:
        said = answers.read()
    _, status = os.waitpid(pid, 0)
    return json.loads(said) if said and status == 0 else None


def _run(root: Path, target: str, limit_s: int, answer_fd: int) -> NoReturn:
    """The child. A timer of processor time ends it, whatever it is at, so that a busy machine decides nothing; one of
    real time ends it where it only waits."""
    status = 1
    try:
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        signal.alarm(WAIT_FACTOR * limit_s)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        silent = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(silent, fd)
        os.chdir(root)
        sys.path.insert(0, str(root))
        sys.dont_write_bytecode = True
        found = Failed()
        options = [f"--rootdir={root}", f"--confcutdir={root}", "-c", os.devnull, "-qq", "--tb=no", "--capture=no"]
        options += [part for name in IDLE for part in ("-p", f"no:{name}")]
        code = pytest.main([*options, target], plugins=[found])
        ids = sorted(found.ids) or ([] if code == pytest.ExitCode.OK else [target])
        if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED):
            os.write(answer_fd, json.dumps(ids).encode())
            status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    json.dump(main(json.load(sys.stdin)), sys.stdout)
