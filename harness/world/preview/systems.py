"""A generated system that runs: in memory, or as one process per component on loopback ports.

Both give the same answers to the same requests; only the second shows what a real start brings to light, and it costs
about a tenth of a second per component.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from harness.core.clock import monotonic_s
from harness.world.preview import host

BOOT_MAX_S = 20.0
ANSWER_MAX_S = 10.0
END_MAX_S = 3.0


class Component(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One process of a system. module: path of a Python module that exposes `respond` (see `host`); static: a folder of
    files instead, with fallback for paths that are not there. env: its environment, nothing else is in it; a null
    stands for a variable that is not set. reaches: variables that are set to the address of another component, which is
    booted first; a component in memory has none."""

    module: str = ""
    static: str = ""
    fallback: str = ""
    env: dict[str, str | None] = {}
    reaches: dict[str, str] = {}

    def given(self) -> dict[str, str]:
        """The variables that are set to something."""
        return {name: value for name, value in self.env.items() if value}

    def spec(self) -> dict[str, str]:
        return {"module": self.module, "static": self.static, "fallback": self.fallback}


class Answer(Struct, frozen=True, kw_only=True):
    """What came back for a request. status None: nothing came. ended: the process is known to have ended by itself."""

    status: int | None
    headers: dict[str, str] = {}
    body: bytes = b""
    ended: bool = False
    why: str = ""

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").split(";")[0].strip().lower()


class RunningSystem(Protocol):
    def get(self, component: str, path: str, headers: Mapping[str, str]) -> Answer:
        """Answer of a component to GET. Never raises for what the component does."""
        ...


class InMemory:
    """The components are called, no process runs."""

    def __init__(self, components: Mapping[str, Component], files: Mapping[str, str]) -> None:
        self._responds: dict[str, host.Respond] = {}
        self._ended: dict[str, str] = {}
        for name, one in components.items():
            try:
                self._responds[name] = host.component(one.spec(), files, one.given())
            except (Exception, SystemExit) as error:  # a process would end here
                self._ended[name] = f"{type(error).__name__}: {error}"

    def get(self, component: str, path: str, headers: Mapping[str, str]) -> Answer:
        if component not in self._responds:
            return Answer(status=None, ended=True, why=self._ended[component])
        sent = {name.lower(): value for name, value in headers.items()}
        status, answered, body = self._responds[component]("GET", path, sent)
        return Answer(status=status, headers=answered, body=body)


class _Process:
    """One booted component. The pipe to its standard input is its life line: it ends when the pipe does."""

    def __init__(self, root: Path, log: Path, component: Component, addresses: Mapping[str, str]) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", host.__file__, str(root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=component.given() | dict(addresses),
                cwd=root,
            )
        self.pid = self._child.pid
        self.port: int | None = None
        try:
            assert self._child.stdin is not None
            self._child.stdin.write(json.dumps(component.spec() | {"parent": os.getpid()}).encode() + b"\n")
            self._child.stdin.flush()
        except OSError:
            pass  # it has ended already; `ended` will tell

    def wait_port(self, until_s: float) -> None:
        """Read the port that it says, if it says one before that moment of the monotonic clock."""
        assert self._child.stdout is not None
        said, pipe = b"", self._child.stdout.fileno()
        while not said.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], max(0.0, until_s - monotonic_s()))
            more = os.read(pipe, 4096) if ready else b""
            if not more:
                return
            said += more
        self.port = json.loads(said)["port"]

    def ended(self) -> bool:
        """Whether it has ended by itself; one that never said its port is given a moment to do so."""
        if self.port is None:
            try:
                self._child.wait(END_MAX_S)
            except subprocess.TimeoutExpired:
                return False
        return self._child.poll() is not None

    def last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def end(self) -> None:
        for pipe in (self._child.stdin, self._child.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:
                pass
        self._child.terminate()
        try:
            self._child.wait(END_MAX_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


class Booted:
    """Components as processes; made by `booted`."""

    def __init__(self, processes: Mapping[str, _Process]) -> None:
        self._processes = processes

    def address(self, component: str) -> str | None:
        """Where a component serves, None when it does not."""
        port = self._processes[component].port
        return None if port is None else f"http://127.0.0.1:{port}"

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def get(self, component: str, path: str, headers: Mapping[str, str]) -> Answer:
        process = self._processes[component]
        if process.port is None:
            return Answer(status=None, ended=process.ended(), why=process.last_words())
        connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=ANSWER_MAX_S)
        try:
            connection.request("GET", path, headers=dict(headers))
            response = connection.getresponse()
            answered = {name.lower(): value for name, value in response.getheaders()}
            return Answer(status=response.status, headers=answered, body=response.read())
        except (OSError, http.client.HTTPException) as error:
            return Answer(status=None, ended=process.ended(), why=type(error).__name__)
        finally:
            connection.close()


@contextmanager
def booted(components: Mapping[str, Component], files: Mapping[str, str]) -> Iterator[Booted]:
    """The system as real processes, one per component; all of them are ended on the way out, whatever happens.

    files: texts by path, written to a folder of their own that goes with the processes. Raises ValueError when
    components need each other's addresses in a circle, or that of one that is not there.
    """
    with tempfile.TemporaryDirectory(prefix="preview-") as folder:
        root = Path(folder) / "files"
        root.mkdir()
        write(root, files)
        processes: dict[str, _Process] = {}
        try:
            system, until_s = Booted(processes), monotonic_s() + BOOT_MAX_S
            for names in _boots(components):
                for name in names:
                    reached = {variable: system.address(other) for variable, other in components[name].reaches.items()}
                    known = {variable: address for variable, address in reached.items() if address}
                    log = Path(folder) / f"{len(processes)}.log"
                    processes[name] = _Process(root, log, components[name], known)
                for name in names:
                    processes[name].wait_port(until_s)
            yield system
        finally:
            for process in processes.values():
                process.end()


def _boots(components: Mapping[str, Component]) -> Iterator[list[str]]:
    """Names of the components that can be booted together, one group after the other."""
    waiting = dict(components)
    while waiting:
        ready = [name for name, one in waiting.items() if not set(one.reaches.values()) & waiting.keys()]
        unknown = sorted({other for one in waiting.values() for other in one.reaches.values()} - components.keys())
        if not ready or unknown:
            raise ValueError(f"nobody can be booted first of {', '.join(sorted(waiting))}: {unknown or 'a circle'}")
        yield ready
        waiting = {name: one for name, one in waiting.items() if name not in ready}


@contextmanager
def in_memory(components: Mapping[str, Component], files: Mapping[str, str]) -> Iterator[InMemory]:
    """The same system without a process."""
    yield InMemory(components, files)


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write texts below a folder."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
