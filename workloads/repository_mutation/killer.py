"""Runs a package's own suite once per variant of its files and says which tests fail: a script of its own.

Why a process of its own that forks: pytest is imported once, and each variant is imported afresh by a child that owes
nothing to the one before. In: {files, target, limit_s, fails_max, variants: [{path: text}]} as JSON. Out: one entry
per variant, the sorted ids of the tests that fail, or null where the suite did not end in time.
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
WAIT_FACTOR = 40
"""Real time that a suite may take, as a multiple of its processor time: a busy machine must not decide what fails."""

ORIGINAL_S, VARIANT_S = 1_700_000_000, 1_700_000_060
"""When a file was last changed, by what it holds. Bytecode is told from that of another text by this time and the size,
and an operator is often replaced by one of the same size."""

IDLE: tuple[str, ...] = (
    "cacheprovider",
    "debugging",
    "doctest",
    "faulthandler",
    "junitxml",
    "legacypath",
    "pastebin",
    "setuponly",
    "setupplan",
    "stepwise",
    "threadexception",
    "unraisableexception",
)


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


class Suite:
    """A package's own suite in a folder of its own. limit_s: processor time that it may take. fails_max: it is ended
    when so many tests have failed; 0 for never."""

    def __init__(self, root: Path, asked: dict[str, Any]) -> None:
        self.root, self.files, self.target = root, asked["files"], asked["target"]
        self.limit_s, self.fails_max = asked["limit_s"], asked["fails_max"]
        self._put(self.files, ORIGINAL_S)
        self._failing(keep_bytecode=True)

    def failing_of(self, variant: dict[str, str]) -> list[str] | None:
        """Ids of the tests that fail with these files in place of the original ones."""
        self._put(variant, VARIANT_S)
        found = self._failing()
        self._put({path: self.files[path] for path in variant}, ORIGINAL_S)
        return found

    def _put(self, files: dict[str, str], changed_s: int) -> None:
        for path, text in files.items():
            place = self.root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode())
            os.utime(place, (changed_s, changed_s))

    def _failing(self, keep_bytecode: bool = False) -> list[str] | None:
        """Fork, run, and read what the child says; None when it was ended by its limit, or by anything else."""
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            _run(self, theirs, keep_bytecode)
        os.close(theirs)
        with os.fdopen(ours, "rb") as answers:
            said = answers.read()
        _, status = os.waitpid(pid, 0)
        return json.loads(said) if said and status == 0 else None


def main(asked: dict[str, Any]) -> list[list[str] | None]:
    with tempfile.TemporaryDirectory() as scratch:
        suite = Suite(Path(scratch), asked)
        return [suite.failing_of(variant) for variant in asked["variants"]]


def _run(suite: Suite, answer_fd: int, keep_bytecode: bool) -> NoReturn:
    """The child. A timer of processor time ends it, whatever it is at, so that a busy machine decides nothing; one of
    real time ends it where it only waits."""
    status = 1
    root, target = suite.root, suite.target
    try:
        signal.setitimer(signal.ITIMER_PROF, suite.limit_s)
        signal.setitimer(signal.ITIMER_REAL, WAIT_FACTOR * suite.limit_s)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        silent = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(silent, fd)
        os.chdir(root)
        sys.path.insert(0, str(root))
        sys.dont_write_bytecode = not keep_bytecode
        found = Failed()
        options = [f"--rootdir={root}", f"--confcutdir={root}", "-c", os.devnull, "-qq", "--tb=no", "--capture=no"]
        options += [f"--maxfail={suite.fails_max}", *(part for name in IDLE for part in ("-p", f"no:{name}"))]
        code = pytest.main([*options, target], plugins=[found])
        ids = sorted(found.ids) or ([] if code == pytest.ExitCode.OK else [target])
        if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED):
            os.write(answer_fd, json.dumps(ids).encode())
            status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    json.dump(main(json.load(sys.stdin)), sys.stdout)
