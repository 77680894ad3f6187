"""Checks and hooks that are Python: they run in the forked process itself, whose modules are warm.

Why in process: a cold pytest costs 0.3 to 0.9 core-seconds, nearly all of it imports.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Sequence

import pytest

from harness.world.live.checkkit.verdict import BrokenRunner, Found

CONFIG_FILES = ("pytest.ini", "pyproject.toml")

IDLE_PLUGINS = (
    "cacheprovider",  # writes into the workspace
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
    "unraisableexception",  # several full garbage collections per session
)
"""Built-in plugins that a check has no use for; without them a session costs a third less."""


class Collector:
    """A pytest plugin that remembers what failed: ids of tests, and of files that could not be collected."""

    def __init__(self) -> None:
        self.failing: list[str] = []
        self.ran = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ran += report.when == "call"
        self._remember(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._remember(report)

    def _remember(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed and report.nodeid not in self.failing:
            self.failing.append(report.nodeid)


def run_pytest(target: str, args: Sequence[str]) -> Found:
    """Run pytest on a file of the current directory, sealed against configuration outside of it.

    The output has no durations and no header, so that equal runs print equal bytes. Nothing is captured: what a test
    prints is a sign of progress. Raises BrokenRunner when pytest itself breaks down.
    """
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    here = os.getcwd()
    config = next((name for name in CONFIG_FILES if os.path.isfile(name)), os.devnull)
    sealed = [f"--rootdir={here}", f"--confcutdir={here}", "-c", config]
    terse = ["-qq", "--tb=short", "--color=no", "--capture=no"]
    idle = [part for name in IDLE_PLUGINS for part in ("-p", f"no:{name}")]
    collector = Collector()
    status = pytest.main([*sealed, *terse, *idle, *args, target], plugins=[collector])
    if status == pytest.ExitCode.INTERNAL_ERROR:
        raise BrokenRunner("the session came to an unexpected end")
    failing = tuple(collector.failing)
    if status != pytest.ExitCode.OK and not failing:
        failing = (target,)
    return Found(status == pytest.ExitCode.OK, failing, collector.ran)


def run_script(target: str, args: Sequence[str]) -> Found:
    """Run a Python file as `__main__`; it passes unless it raises or exits with another status than 0."""
    sys.argv = [target, *args]
    try:
        runpy.run_path(target, run_name="__main__")
    except SystemExit as end:
        passed = end.code in (None, 0)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except Exception:
        passed = False
        traceback.print_exc()
    else:
        passed = True
    return Found(passed, () if passed else (target,))
