"""The runner: every trial is sealed exactly once, whatever fails, dies or is interrupted on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from harness import catalogue
from harness.core.errors import ConfigError, HarnessBug
from harness.core.records import Event, TrialRecord
from harness.core.roles import Strike
from harness.core.types import Seam
from harness.pool import PoolExecutor
from harness.runner import Finished, Planner, Progress, invalid, rehearse, run
from harness.schedule import ArmPairs, PlannedFault, Schedule, TrialSpec, Weighted, trials
from harness.trace_store import TraceStore

SCHEDULE = Schedule(
    schema="agentmesh-schedule/1",
    name="small",
    version=1,
    seed=3,
    pairs=4,
    world="sim",
    workloads={"codegen": 1.0},
    arms=(ArmPairs(name="naive"), ArmPairs(name="mesh")),
    mix={"hung_check": Weighted(weight=1.0, variants=("hung", "slow"))},
)
SPECS = trials(SCHEDULE)


def ended(spec: TrialSpec) -> TrialRecord:
    return replace(invalid(spec, ""), status="ended")


def result(spec: TrialSpec) -> SimpleNamespace:
    """What a trial function gives back."""
    events = [Event(0, 0.0, 0, "call", {"arm": spec.arm, "pid": os.getpid()})]
    return SimpleNamespace(record=ended(spec), trace=events, truth=[])


class Scripted:
    """An executor in this process: `answer` says how the n-th execution of a trial ends."""

    def __init__(self, answer: Callable[[TrialSpec, int], Finished], last_first: bool = False) -> None:
        self.answer, self.last_first = answer, last_first
        self.queue: deque[TrialSpec] = deque()
        self.executed: Counter[str] = Counter()
        self.closed = 0

    def submit(self, spec: TrialSpec) -> None:
        self.queue.append(spec)

    def results(self) -> Iterator[Finished]:
        while self.queue:
            spec = self.queue.pop() if self.last_first else self.queue.popleft()
            self.executed[spec.id] += 1
            yield self.answer(spec, self.executed[spec.id])

    def close(self) -> None:
        self.closed += 1


def fine(spec: TrialSpec, nth: int) -> Finished:
    return Finished(spec=spec, record=ended(spec), trace=(Event(0, 0.0, 0, "call", {"nth": nth}),))


def spoiled(spec: TrialSpec, nth: int) -> Finished:
    return Finished(spec=spec, record=invalid(spec, f"late, time {nth}"))


def lost(spec: TrialSpec, nth: int) -> Finished:
    return Finished(spec=spec, trouble="its worker process died (signal SIGKILL)", lost=True)


def new(folder: Path) -> TraceStore:
    return TraceStore.create(folder, {"schedule": {"name": "small", "sha256": "aa"}})


def test_every_trial_is_sealed_and_counted(tmp_path: Path) -> None:
    seen: list[Progress] = []
    with new(tmp_path) as store:
        executor = Scripted(fine, last_first=True)
        outcome = run(SPECS, store, executor, seen.append)
        assert store.sealed_ids() == {spec.id: "ended" for spec in SPECS}
    assert outcome.complete
    assert (outcome.total, outcome.earlier, outcome.sealed, outcome.reruns) == (8, 0, {"ended": 8}, ())
    assert [(state.done, state.total) for state in seen] == [(n, 8) for n in range(9)]
    assert executor.closed == 1


def test_a_sealed_trial_is_never_run_again(tmp_path: Path) -> None:
    with new(tmp_path) as store:
        run(SPECS[:5], store, Scripted(fine))
    with TraceStore.open(tmp_path, write=True) as store:
        again = Scripted(fine)
        outcome = run(SPECS, store, again)
        assert set(again.executed) == {spec.id for spec in SPECS[5:]}
        assert (outcome.earlier, outcome.sealed) == (5, {"ended": 3})
        idle = Scripted(fine)
        assert run(SPECS, store, idle).complete
        assert not idle.executed


def test_an_invalid_trial_is_run_once_more_with_the_same_seed(tmp_path: Path) -> None:
    bad = SPECS[2]
    notes: list[str] = []

    def answer(spec: TrialSpec, nth: int) -> Finished:
        assert spec in SPECS, "not one field changes"
        return spoiled(spec, nth) if spec is bad and nth == 1 else fine(spec, nth)

    with new(tmp_path) as store:
        outcome = run(SPECS, store, Scripted(answer), lambda state: notes.append(state.note))
        trial = store.read(bad.id)
    assert (trial.record.status, trial.record.tries, trial.trace[0].data) == ("ended", 2, {"nth": 2})
    assert outcome.reruns == ((bad.id, "late, time 1"),)
    assert [note for note in notes if note] == [f"trial {bad.id} ({bad.arm}, pair 1) is run again: late, time 1"]


def test_a_trial_that_is_invalid_twice_is_sealed_as_such(tmp_path: Path) -> None:
    bad = SPECS[2]
    executor = Scripted(lambda spec, nth: spoiled(spec, nth) if spec is bad else fine(spec, nth))
    with new(tmp_path) as store:
        outcome = run(SPECS, store, executor)
        record = store.read(bad.id).record
    assert (record.status, record.tries, record.because) == ("invalid", 2, "late, time 2")
    assert executor.executed[bad.id] == 2
    assert outcome.sealed == {"ended": 7, "invalid": 1}
    assert outcome.complete


def test_trouble_without_a_record_makes_the_trial_invalid(tmp_path: Path) -> None:
    bad = SPECS[0]
    with new(tmp_path) as store:
        run(
            SPECS,
            store,
            Scripted(
                lambda spec, nth: Finished(spec=spec, trouble="HarnessBug: x") if spec is bad else fine(spec, nth)
            ),
        )
        record = store.read(bad.id).record
    assert record == replace(invalid(bad, "HarnessBug: x"), tries=2)
    assert (record.pair, record.variant, record.faults_scheduled) == (bad.pair, "+".join(bad.variants), 2)


@pytest.mark.parametrize(("deaths", "status"), [(1, "ended"), (2, "ended"), (3, "invalid"), (9, "invalid")])
def test_the_trials_of_a_dead_worker_are_run_again(tmp_path: Path, deaths: int, status: str) -> None:
    bad = SPECS[1]
    executor = Scripted(lambda spec, nth: lost(spec, nth) if spec is bad and nth <= deaths else fine(spec, nth))
    with new(tmp_path) as store:
        outcome = run(SPECS, store, executor)
        record = store.read(bad.id).record
    assert (record.status, record.tries) == (status, min(deaths + 1, 3))
    assert len(outcome.reruns) == min(deaths, 2)
    assert outcome.complete


def test_stuck_trials_are_outcomes_and_not_run_again(tmp_path: Path) -> None:
    executor = Scripted(lambda spec, _: Finished(spec=spec, record=replace(ended(spec), status="stuck")))
    with new(tmp_path) as store:
        assert run(SPECS, store, executor).sealed == {"stuck": 8}
    assert set(executor.executed.values()) == {1}


def test_an_interruption_keeps_what_is_sealed(tmp_path: Path) -> None:
    def answer(spec: TrialSpec, nth: int) -> Finished:
        if spec is SPECS[3]:
            raise KeyboardInterrupt
        return fine(spec, nth)

    executor = Scripted(answer)
    with new(tmp_path) as store:
        outcome = run(SPECS, store, executor)
    assert outcome.interrupted
    assert not outcome.complete
    assert outcome.sealed == {"ended": 3}
    assert executor.closed == 1


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_chain_of_failures_and_resumes_ends_with_the_same_trials(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("chain")
    new(folder).close()
    sealed_twice: Counter[str] = Counter()
    for _ in range(30):
        with TraceStore.open(folder, write=True) as store:
            held = set(store.sealed_ids())

            def answer(spec: TrialSpec, nth: int, held: set[str] = held) -> Finished:
                assert spec.id not in held
                what = data.draw(st.sampled_from(["fine"] * 8 + ["spoiled", "lost", "stop"]))
                if what == "stop":
                    raise KeyboardInterrupt
                return {"fine": fine, "spoiled": spoiled, "lost": lost}[what](spec, nth)

            outcome = run(SPECS, store, Scripted(answer, last_first=data.draw(st.booleans())))
            sealed_twice.update(store.sealed_ids().keys() - held)
        if outcome.complete:
            break
    assert outcome.complete
    assert sealed_twice == Counter(spec.id for spec in SPECS)


def test_an_answer_that_was_not_asked_for_is_a_bug(tmp_path: Path) -> None:
    stranger = replace(SPECS[0], id="stranger")
    with new(tmp_path) as store:
        for answer in (
            lambda spec, nth: fine(stranger, nth),
            lambda spec, nth: Finished(spec=spec, record=ended(stranger)),
        ):
            executor = Scripted(answer)
            with pytest.raises(HarnessBug, match="not asked for"):
                run(SPECS, store, executor)
            assert executor.closed == 1


def test_a_refusing_disk_ends_the_run_and_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise ConfigError("the disk is full")

    executor = Scripted(fine)
    with new(tmp_path) as store:
        monkeypatch.setattr(store, "seal", full)
        with pytest.raises(ConfigError, match="disk is full"):
            run(SPECS, store, executor)
    assert executor.closed == 1


# --- faults of a trial --------------------------------------------------------------------------------------------


class Planned(Struct, frozen=True):
    variant: str
    index: int
    strike: Strike


class OneClass:
    @classmethod
    def plan(cls, variant: str, index: int, sites: object, pick: object) -> Planned:
        return Planned(f"{cls.__name__}:{variant}", index, Strike(seam=Seam.TOOL, name="run_check"))


class OtherClass(OneClass):
    pass


def test_each_fault_is_planned_by_its_class_and_pinned_by_the_schedule() -> None:
    faults = (
        PlannedFault(fault="one", variant="a"),
        PlannedFault(fault="other", variant="b", pin={"visit": 3, "phase": "implementation"}),
    )
    planner = Planner(faults, [OneClass, OtherClass])  # type: ignore[list-item]
    first, second = (planner.plan(fault.variant, n, (), lambda *_: 0) for n, fault in enumerate(faults))
    assert first == Planned("OneClass:a", 0, Strike(seam=Seam.TOOL, name="run_check"))
    pinned = Strike(seam=Seam.TOOL, name="run_check", visit=3, phase="implementation")
    assert second == Planned("OtherClass:b", 1, pinned)


# --- the pool of processes ----------------------------------------------------------------------------------------

MARKS = "RUNNER_TEST_MARKS"


def die_once(spec: TrialSpec) -> SimpleNamespace:
    """Kills its own process the first time that it meets the third trial; a file remembers."""
    mark = Path(os.environ[MARKS]) / spec.id
    if spec.id == SPECS[2].id and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return result(spec)


def loop_for_ever(spec: TrialSpec) -> SimpleNamespace:
    while spec.id == SPECS[2].id:
        pass
    return result(spec)


def die_always(spec: TrialSpec) -> SimpleNamespace:
    if spec.id == SPECS[2].id:
        os._exit(7)
    return result(spec)


def break_down(spec: TrialSpec) -> SimpleNamespace:
    if spec.id == SPECS[2].id:
        raise HarnessBug("an invariant does not hold")
    if spec.id == SPECS[3].id:
        sys.exit(3)
    return result(spec)


def sleep_long(spec: TrialSpec) -> SimpleNamespace:
    (Path(os.environ[MARKS]) / str(os.getpid())).touch()
    time.sleep(600)
    return result(spec)


def test_a_pool_runs_trials_in_other_processes(tmp_path: Path) -> None:
    with new(tmp_path) as store:
        outcome = run(SPECS, store, PoolExecutor(2, result))
        processes = {trial.trace[0].data["pid"] for trial in store.iter()}
    assert outcome.sealed == {"ended": 8}
    assert len(processes) == 2
    assert os.getpid() not in processes


def test_a_killed_worker_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "marks").mkdir()
    monkeypatch.setenv(MARKS, str(tmp_path / "marks"))
    with new(tmp_path / "run") as store:
        outcome = run(SPECS, store, PoolExecutor(2, die_once))
        assert store.read(SPECS[2].id).record.tries == 2
    assert outcome.sealed == {"ended": 8}
    assert outcome.reruns == ((SPECS[2].id, "its worker process died (signal SIGKILL)"),)


def test_a_trial_that_always_kills_its_worker_is_invalid(tmp_path: Path) -> None:
    with new(tmp_path) as store:
        outcome = run(SPECS, store, PoolExecutor(1, die_always))
        record = store.read(SPECS[2].id).record
    assert (record.status, record.tries, record.because) == ("invalid", 3, "its worker process died (exit code 7)")
    assert outcome.sealed == {"ended": 7, "invalid": 1}


def test_a_trial_that_does_not_end_is_ended_and_invalid(tmp_path: Path) -> None:
    with new(tmp_path) as store:
        outcome = run(SPECS, store, PoolExecutor(2, loop_for_ever, real_s_max=12.0))
        record = store.read(SPECS[2].id).record
    assert (record.status, record.tries) == ("invalid", 2)
    assert record.because == "it did not end within 12 s of real time"
    assert outcome.sealed == {"ended": 7, "invalid": 1}


def test_a_rehearsal_refuses_what_no_trial_could_do() -> None:
    rehearse(SPECS)
    placed = PlannedFault(fault="hung_check", variant="slow", pin={"delegation": "nowhere"})
    with pytest.raises(ConfigError, match=r"pinned to delegation 'nowhere'; allowed: .*orders"):
        rehearse([replace(SPECS[0], faults=(placed,))])
    with pytest.raises(ConfigError, match=r"pinned to phase 'never'; allowed: .*implementation"):
        rehearse([replace(SPECS[0], faults=(replace(placed, pin={"phase": "never"}),))])
    rehearse([replace(SPECS[0], faults=(replace(placed, pin={"delegation": "orders", "phase": "*"}),))])
    with pytest.raises(ConfigError, match=r"fault 'hung_check' \(no_such\) on workload 'codegen' fails: KeyError"):
        rehearse([replace(SPECS[0], faults=(replace(placed, variant="no_such", pin={}),))])


def test_a_workload_gets_ready_once_and_before_anything_is_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, asked = catalogue.workload("codegen"), []
    task = workload.task
    monkeypatch.setattr(workload, "prepare", lambda: asked.append("prepare"), raising=False)
    monkeypatch.setattr(workload, "task", lambda *args: asked.append("task") or task(*args))
    rehearse(SPECS)
    assert len(SPECS) > 1
    assert asked[0] == "prepare"
    assert Counter(asked)["prepare"] == 1
    assert "task" in asked


def test_what_a_workload_cannot_get_ready_is_said_before_the_first_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ConfigError("no index", hint="get one")

    monkeypatch.setattr(catalogue.workload("codegen"), "prepare", refuse, raising=False)
    with pytest.raises(ConfigError, match="no index"):
        rehearse(SPECS)


def test_a_bug_in_a_trial_spoils_that_trial_alone(tmp_path: Path) -> None:
    with new(tmp_path) as store:
        outcome = run(SPECS, store, PoolExecutor(2, break_down))
        because = [store.read(spec.id).record.because for spec in SPECS[2:4]]
    assert outcome.sealed == {"ended": 6, "invalid": 2}
    assert because[0].startswith("HarnessBug: an invariant does not hold")
    assert "break_down" in because[0], "the traceback is told"
    assert because[1].startswith("SystemExit: 3")


PARENT = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import test_runner
if __name__ == "__main__":
    store = test_runner.new(Path(sys.argv[2]))
    pool = test_runner.PoolExecutor(2, test_runner.wait_short)
    for spec in test_runner.SPECS:
        pool.submit(spec)
    list(pool.results())
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ctrl_c_and_closing_end_busy_workers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARKS, str(tmp_path))
    pool = PoolExecutor(2, sleep_long)
    for spec in SPECS:
        pool.submit(spec)
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    deadline = time.monotonic() + 60
    try:
        signal.setitimer(signal.ITIMER_REAL, 3)
        with pytest.raises(KeyboardInterrupt):
            list(pool.results())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        pool.close()
        pool.close()
    assert time.monotonic() < deadline
    assert not any(alive(int(path.name)) for path in tmp_path.iterdir())


def wait_short(spec: TrialSpec) -> SimpleNamespace:
    (Path(os.environ[MARKS]) / str(os.getpid())).touch()
    time.sleep(1)
    return result(spec)


def test_ctrl_c_does_not_reach_a_worker_that_is_still_starting() -> None:
    executor = PoolExecutor(1, result)
    try:
        executor.submit(SPECS[0])
        executor._assign()
        (worker,) = executor._workers
        os.kill(worker.process.pid, signal.SIGINT)  # type: ignore[arg-type]
        (finished,) = executor.results()
    finally:
        executor.close()
    assert not finished.lost
    assert finished.record is not None


def test_workers_leave_when_their_parent_is_killed(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    (tmp_path / "marks").mkdir()
    command = [sys.executable, str(tmp_path / "parent.py"), str(Path(__file__).parent), str(tmp_path / "run")]
    environment = {**os.environ, MARKS: str(tmp_path / "marks"), "PYTHONPATH": str(Path(__file__).parents[2])}
    parent = subprocess.Popen(command, env=environment)
    try:
        deadline = time.monotonic() + 60
        while len(list((tmp_path / "marks").iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    TraceStore.open(tmp_path / "run", write=True).close()  # at once: no worker keeps the lock of a dead parent
    workers = [int(path.name) for path in (tmp_path / "marks").iterdir()]
    assert len(workers) == 2
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, workers))
