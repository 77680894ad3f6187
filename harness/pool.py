"""Simulated trials on several processes, in a pool that survives the death of a worker and of its parent."""

from __future__ import annotations

import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess

import msgspec
from msgspec import Struct

from harness.core.clock import monotonic_s
from harness.core.records import Event, TrialRecord
from harness.runner import Finished, Result, parts
from harness.schedule import TrialSpec

REAL_S_MAX = 600.0
"""Real time for a simulated trial, which takes about a second: virtual time cannot pass while an arm is in a loop."""


def run_trial_sim(spec: TrialSpec) -> Result:
    """One simulated trial, in the process that calls this."""
    from harness import simulate, trial  # where trials run, and nowhere else

    return simulate.run_sim(spec, trial.Parts(*parts(spec)))


class _Reply(Struct, frozen=True, kw_only=True):
    """What a worker sends back for a trial."""

    record: TrialRecord | None = None
    trace: tuple[Event, ...] = ()
    truth: tuple[Event, ...] = ()
    trouble: str = ""


class _Worker(Struct):
    process: BaseProcess
    pipe: connection.Connection
    spec: TrialSpec | None = None
    since_s: float = 0.0
    overdue: bool = False


class PoolExecutor:
    """`jobs` processes that run one trial each at a time.

    Made of bare pipes, since the pools of the standard library hang when a worker, or their own parent, is killed: here
    a dead worker is an end of file that costs one trial, and a worker whose parent died reads one and leaves.
    """

    def __init__(
        self, jobs: int, run: Callable[[TrialSpec], Result] = run_trial_sim, real_s_max: float = REAL_S_MAX
    ) -> None:
        self._jobs = jobs
        self._real_s_max = real_s_max
        self._run = run
        self._context = get_context("spawn")  # nothing of the parent, its lock least of all, lives on in a worker
        self._waiting: deque[TrialSpec] = deque()
        self._workers: list[_Worker] = []

    def submit(self, spec: TrialSpec) -> None:
        self._waiting.append(spec)

    def results(self) -> Iterator[Finished]:
        while True:
            self._assign()
            busy = {worker.pipe: worker for worker in self._workers if worker.spec is not None}
            if not busy:
                return
            due_s = min(worker.since_s for worker in busy.values()) + self._real_s_max
            for pipe in connection.wait(list(busy), timeout=max(0.0, due_s - monotonic_s())):
                yield self._receive(busy[pipe])  # type: ignore[index]
                self._assign()
            self._end_overdue()

    def _end_overdue(self) -> None:
        """Kill the workers whose trial does not come to an end; each is an end of file in the next round."""
        for worker in self._workers:
            if worker.spec is not None and monotonic_s() >= worker.since_s + self._real_s_max:
                worker.overdue = True
                worker.process.kill()

    def close(self) -> None:
        for worker in self._workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers.clear()
        self._waiting.clear()

    def _assign(self) -> None:
        """Give every idle worker a trial; start one where there is a trial and room."""
        while self._waiting:
            worker = next((worker for worker in self._workers if worker.spec is None), None)
            if worker is None:
                if len(self._workers) >= self._jobs:
                    return
                worker = self._start()
            try:
                worker.pipe.send(self._waiting[0])
                worker.spec, worker.since_s = self._waiting.popleft(), monotonic_s()
            except OSError:  # it died while idle: no trial was harmed
                self._bury(worker)

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs, self._run), daemon=True, name="trial-worker")
        signal.pthread_sigmask(
            signal.SIG_BLOCK, {signal.SIGINT}
        )  # else Ctrl-C finds the worker before it can ignore it
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        theirs.close()  # so that the end of the worker is the end of the file
        worker = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def _receive(self, worker: _Worker) -> Finished:
        spec, worker.spec = worker.spec, None
        assert spec is not None
        try:
            reply = msgspec.msgpack.decode(worker.pipe.recv_bytes(), type=_Reply)
        except (EOFError, OSError):
            code = self._bury(worker)
            if worker.overdue:
                return Finished(spec=spec, trouble=f"it did not end within {self._real_s_max:g} s of real time")
            return Finished(spec=spec, trouble=f"its worker process died ({_cause(code)})", lost=True)
        return Finished(spec=spec, record=reply.record, trace=reply.trace, truth=reply.truth, trouble=reply.trouble)

    def _bury(self, worker: _Worker) -> int | None:
        self._workers.remove(worker)
        worker.pipe.close()
        worker.process.join(5)
        return worker.process.exitcode


def _cause(code: int | None) -> str:
    return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"


def _work(pipe: connection.Connection, run: Callable[[TrialSpec], Result]) -> None:
    """The life of a worker: a trial in, a reply out, until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    while True:
        try:
            spec = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            result = run(spec)
            reply = _Reply(record=result.record, trace=tuple(result.trace), truth=tuple(result.truth))
            raw = msgspec.msgpack.encode(reply)
        except BaseException as error:  # a bug of ours: the trial is invalid, never an arm's zero
            lines = traceback.format_exception(error)
            raw = msgspec.msgpack.encode(_Reply(trouble=f"{type(error).__name__}: {error}\n{''.join(lines[-3:])}"))
        try:
            pipe.send_bytes(raw)
        except OSError:
            return
