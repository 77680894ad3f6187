"""Live trials on worker processes; see `harness.runner.Executor`."""

from __future__ import annotations

import selectors
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from harness.live.worker import Reply, packed
from harness.runner import Finished
from harness.schedule import TrialSpec

LEAVE_S = 10.0
"""Real seconds that a worker has to take its services down before it is killed."""


class _Worker(Struct, kw_only=True):
    process: subprocess.Popen[bytes]
    specs: dict[str, TrialSpec]
    inbox: bytearray


class LiveExecutor:
    """`workers` processes with services of their own, `jobs` trials at a time in all. More jobs than cores may run,
    since trials mostly wait."""

    def __init__(self, jobs: int, workers: int = 2, seed: int = 0, external_proxy: bool = False) -> None:
        self._jobs, self._count = jobs, max(1, min(workers, jobs))
        self._command = [sys.executable, "-m", "harness.live.worker", str(seed)]
        if external_proxy:
            self._command.append("--toxiproxy-server")
        self._waiting: deque[TrialSpec] = deque()
        self._workers: list[_Worker] = []

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
        process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0, bufsize=0
        )
        return _Worker(process=process, specs={}, inbox=bytearray())

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
            yield Finished(spec=spec, record=reply.record, trace=reply.trace, truth=reply.truth, trouble=reply.trouble)

    def _bury(self, worker: _Worker) -> Iterator[Finished]:
        """A worker that died: all its trials are lost, through no fault of theirs."""
        self._workers.remove(worker)
        code = worker.process.wait()
        for spec in worker.specs.values():
            yield Finished(spec=spec, trouble=f"its worker process died (exit status {code})", lost=True)
