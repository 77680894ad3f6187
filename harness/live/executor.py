"""Live trials on worker processes; see `harness.runner.Executor`."""

from __future__ import annotations

import os
import selectors
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import suppress

import msgspec
from msgspec import Struct

from harness.core.errors import ConfigError
from harness.live.worker import Reply, Setup, packed
from harness.runner import Finished
from harness.schedule import TrialSpec
from harness.world.live.realmodel import ModelSource

ROOM_BYTES_MIN = 64 << 20
"""What must be free for temporary files, of which a trial makes a few MiB."""

PATH_BYTES_MAX = 75
"""Of the folder of a worker: with the longest socket name in it, it must fit into 107 bytes."""

ELSEWHERE = "make room there, or name another folder in TMPDIR; continue with --resume"

LEAVE_S = 10.0
"""Real seconds that a worker has to take its services down before it is killed."""


class _Worker(Struct, kw_only=True):
    process: subprocess.Popen[bytes]
    specs: dict[str, TrialSpec]
    inbox: bytearray
    folder: str


class LiveExecutor:
    """`workers` processes with services of their own, `jobs` trials at a time in all. More jobs than cores may run,
    since trials mostly wait. model: who answers in place of the scripts, if anybody does."""

    def __init__(
        self,
        jobs: int,
        workers: int = 2,
        seed: int = 0,
        external_proxy: bool = False,
        model: ModelSource | None = None,
    ) -> None:
        self._model = model
        self._jobs, self._count = jobs, max(1, min(workers, jobs))
        proxy = "external" if external_proxy else "embedded"
        self._command = [sys.executable, "-m", "harness.live.worker", str(seed), proxy]
        self._waiting: deque[TrialSpec] = deque()
        self._workers: list[_Worker] = []
        self._folders: list[str] = []

    def submit(self, spec: TrialSpec) -> None:
        self._waiting.append(spec)

    def results(self) -> Iterator[Finished]:
        while True:
            self._assign()
            if not any(worker.specs for worker in self._workers):
                return
            with selectors.DefaultSelector() as selector:
                for worker in self._workers:
                    selector.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
                ready = [key.data for key, _ in selector.select()]
            for worker in ready:
                yield from self._receive(worker)

    def close(self) -> None:
        for worker in self._workers:
            if worker.process.stdin is not None:
                worker.process.stdin.close()
        for worker in self._workers:
            try:
                worker.process.wait(LEAVE_S)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            if worker.process.stdout is not None:
                worker.process.stdout.close()
        for folder in self._folders:  # where a worker was killed, nobody else does it
            shutil.rmtree(folder, ignore_errors=True)
        self._folders.clear()
        self._workers.clear()
        self._waiting.clear()

    def _assign(self) -> None:
        """Hand trials to the workers that have fewest, while there is room."""
        while self._waiting and sum(len(w.specs) for w in self._workers) < self._jobs:
            while len(self._workers) < self._count:
                self._workers.append(self._start())
            worker = min(self._workers, key=lambda w: len(w.specs))
            spec = self._waiting.popleft()
            worker.specs[spec.id] = spec
            try:
                worker.process.stdin.write(packed(spec))  # type: ignore[union-attr]
                worker.process.stdin.flush()  # type: ignore[union-attr]
            except OSError:
                return  # it died: reading from it will say so, and give its trials back

    def _start(self) -> _Worker:
        folder = _temporary_folder(self._folders)
        command = [*self._command, folder]
        hidden = "" if self._model is None else self._model.key_variable
        env = {name: value for name, value in os.environ.items() if name != hidden}
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, process_group=0, bufsize=0, env=env)
        with suppress(OSError):  # it died: reading from it will say so
            process.stdin.write(packed(Setup(model=self._model)))  # type: ignore[union-attr]
        return _Worker(process=process, specs={}, inbox=bytearray(), folder=folder)

    def _receive(self, worker: _Worker) -> Iterator[Finished]:
        data = worker.process.stdout.read(1 << 20)  # type: ignore[union-attr]
        if not data:
            yield from self._bury(worker)
            return
        worker.inbox += data
        while len(worker.inbox) >= 4:
            (length,) = struct.unpack_from(">I", worker.inbox)
            if len(worker.inbox) < 4 + length:
                return
            reply = msgspec.msgpack.decode(bytes(worker.inbox[4 : 4 + length]), type=Reply)
            del worker.inbox[: 4 + length]
            spec = worker.specs.pop(reply.id)
            if reply.record is None or reply.record.status == "invalid":
                _check_room(worker.folder)
            yield Finished(spec=spec, record=reply.record, trace=reply.trace, truth=reply.truth, trouble=reply.trouble)

    def _bury(self, worker: _Worker) -> Iterator[Finished]:
        """A worker that died: all its trials are lost, through no fault of theirs."""
        self._workers.remove(worker)
        code = worker.process.wait()
        for spec in worker.specs.values():
            yield Finished(spec=spec, trouble=f"its worker process died (exit status {code})", lost=True)


def _temporary_folder(made: list[str]) -> str:
    """For all files of a worker; made by the parent, which can remove it whatever becomes of the worker. It is added
    to `made` at once."""
    try:
        folder = tempfile.mkdtemp(prefix="agentmesh-")
        made.append(folder)
        _check_room(folder)
    except OSError as error:
        where = str(error.filename or "folder for temporary files")
        raise ConfigError(error.strerror or str(error), where=where, hint=ELSEWHERE) from error
    if len(folder.encode()) > PATH_BYTES_MAX:
        allowed = f"at most {PATH_BYTES_MAX} bytes, since addresses of sockets are short"
        raise ConfigError("the name is too long", where=folder, allowed=allowed, hint=ELSEWHERE)
    return folder


def _check_room(folder: str) -> None:
    """Trials that fail where the disk is full must not be sealed as invalid. Raises ConfigError."""
    state = os.statvfs(folder)
    free = state.f_bavail * state.f_frsize
    if free < ROOM_BYTES_MIN or (state.f_files and not state.f_favail):
        problem = f"the disk for temporary files is full ({free >> 20} MiB are free)"
        raise ConfigError(problem, where=folder, allowed=f"at least {ROOM_BYTES_MIN >> 20} MiB", hint=ELSEWHERE)
