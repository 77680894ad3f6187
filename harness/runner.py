"""Runs the trials that are not sealed yet, and seals them: the parent of all workers and the store's one writer.

How a trial is executed is handed in, so that simulated and live trials are run, tried again, sealed and resumed by the
same rules.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from harness import catalogue
from harness.core.errors import ConfigError, HarnessBug
from harness.core.records import Event, TrialRecord
from harness.core.roles import Arm, Fault, FaultClass, SiteOffer, Task, Workload
from harness.schedule import PlannedFault, TrialSpec, canonical
from harness.trace_store import TraceStore

INVALID_TRIES_MAX = 2
"""A trial that our own machinery spoiled is run once more with the same seed; then it is sealed as invalid."""

LOSSES_MAX = 3
"""So many worker processes may die under a trial before it is held to be the reason."""


class Result(Protocol):
    """What a trial leaves behind."""

    @property
    def record(self) -> TrialRecord: ...
    @property
    def trace(self) -> Sequence[Event]: ...
    @property
    def truth(self) -> Sequence[Event]: ...


class Finished(Struct, frozen=True, kw_only=True):
    """One execution of a trial. record None: there is no result, and `trouble` says why; lost: because the process
    that ran it died."""

    spec: TrialSpec
    record: TrialRecord | None = None
    trace: tuple[Event, ...] = ()
    truth: tuple[Event, ...] = ()
    trouble: str = ""
    lost: bool = False


class Executor(Protocol):
    """Executes trials, some at a time. One submitted trial gives one `Finished`, in any order."""

    def submit(self, spec: TrialSpec) -> None:
        """Take a trial into the queue; does not wait. May be called while `results` is being read."""
        ...

    def results(self) -> Iterator[Finished]:
        """What was submitted, as it ends; stops when nothing is queued or running."""
        ...

    def close(self) -> None:
        """End all processes, whatever they are at. May be called twice."""
        ...


class Progress(Struct, frozen=True, kw_only=True):
    """done: trials sealed of `total`, those of earlier runs included. note: something worth a line of its own."""

    done: int
    total: int
    record: TrialRecord | None = None
    note: str = ""


class RunOutcome(Struct, frozen=True, kw_only=True):
    """What a run came to. earlier: trials that were sealed before it; reruns: trials that were run again, and why;
    enough: it ended before all of `total` were run, because it may."""

    total: int
    earlier: int
    sealed: dict[str, int]  # newly sealed trials by status
    reruns: tuple[tuple[str, str], ...]
    interrupted: bool
    enough: bool = False

    @property
    def complete(self) -> bool:
        """Whether all that was wanted is sealed."""
        return not self.interrupted and (self.enough or self.earlier + sum(self.sealed.values()) == self.total)


def run(
    specs: Sequence[TrialSpec],
    store: TraceStore,
    executor: Executor,
    progress: Callable[[Progress], None] = lambda _: None,
    enough: Callable[[], bool] = lambda: False,
    ahead: int = 1_000,
) -> RunOutcome:
    """Execute and seal the trials of `specs` that `store` does not hold, in their order; closes the executor.

    enough: asked before each further trial is begun; what has begun by then is still sealed. ahead: so many trials are
    handed to the executor before one of them has ended. Ctrl-C ends it early, with all that was sealed. Raises
    ConfigError when the disk refuses, HarnessBug when an executor answers with something that was not asked.
    """
    state = _Run(specs, store, executor, progress)
    interrupted = stopped = False
    waiting = deque(spec for spec in specs if spec.id in state.open)
    try:
        state.tell()
        while waiting and not (stopped := enough()):
            for _ in range(min(ahead, len(waiting))):
                executor.submit(waiting.popleft())
            for finished in executor.results():
                state.settle(finished)
                stopped = stopped or enough()
                if waiting and not stopped:
                    executor.submit(waiting.popleft())
    except KeyboardInterrupt:
        interrupted = True
    finally:
        executor.close()
    return RunOutcome(
        total=len(specs),
        earlier=state.earlier,
        sealed=dict(state.sealed),
        reruns=tuple(state.reruns),
        interrupted=interrupted,
        enough=stopped and bool(waiting),
    )


class _Run:
    """Where a run stands. open: the trials that are still to be sealed."""

    def __init__(
        self,
        specs: Sequence[TrialSpec],
        store: TraceStore,
        executor: Executor,
        progress: Callable[[Progress], None],
    ) -> None:
        held = store.sealed_ids()
        self.open = {spec.id for spec in specs if spec.id not in held}
        self.total, self.earlier = len(specs), len(specs) - len(self.open)
        self.sealed: Counter[str] = Counter()
        self.reruns: list[tuple[str, str]] = []
        self._store, self._executor, self._progress = store, executor, progress
        self._tries: Counter[str] = Counter()
        self._losses: Counter[str] = Counter()

    def settle(self, finished: Finished) -> None:
        """Seal the trial, or have it run again."""
        spec = finished.spec
        if spec.id not in self.open or (finished.record and finished.record.id != spec.id):
            raise HarnessBug(f"an executor answered for trial {spec.id}, which it was not asked for")
        (self._losses if finished.lost else self._tries)[spec.id] += 1
        tries, losses = self._tries[spec.id], self._losses[spec.id]
        because = _spoiled(finished)
        name = f"trial {spec.id} ({spec.arm}, pair {spec.index})"
        if because and tries < INVALID_TRIES_MAX and losses < LOSSES_MAX:
            self.reruns.append((spec.id, because))
            self._executor.submit(spec)
            self.tell(note=f"{name} is run again: {because}")
            return
        record = replace(finished.record or invalid(spec, because), tries=tries + losses)
        self._store.seal(record, finished.trace, finished.truth)
        self.open.discard(spec.id)
        self.sealed[record.status] += 1
        self.tell(record, f"{name} is invalid: {because}" if because else "")

    def tell(self, record: TrialRecord | None = None, note: str = "") -> None:
        done = self.earlier + self.sealed.total()
        self._progress(Progress(done=done, total=self.total, record=record, note=note))


def _spoiled(finished: Finished) -> str:
    """Why the trial does not count, or an empty string."""
    if finished.record is None:
        return finished.trouble or "no result"
    return (finished.record.because or "no reason given") if finished.record.status == "invalid" else ""


def parts(spec: TrialSpec) -> tuple[Workload, Arm, type[FaultClass] | None]:
    """The values that the names of a spec stand for, in either world."""
    classes = [catalogue.fault(one.fault) for one in spec.faults]
    planner = cast("type[FaultClass]", Planner(spec.faults, classes)) if classes else None
    return catalogue.workload(spec.workload), catalogue.arm(spec.arm), planner


class Planner:
    """The fault classes of one trial behind the one `plan` that a trial calls: by number of the fault, with the parts
    of its strike that the schedule fixes."""

    def __init__(self, faults: Sequence[PlannedFault], classes: Sequence[type[FaultClass]]) -> None:
        self._faults, self._classes = faults, classes

    def plan(self, variant: str, index: int, sites: tuple[SiteOffer, ...], pick: Callable[[str, int], int]) -> Fault:
        fault: Any = self._classes[index].plan(variant, index, sites, pick)
        pin = self._faults[index].pin
        return replace(fault, strike=replace(fault.strike, **pin)) if pin else fault


def rehearse(specs: Sequence[TrialSpec]) -> None:
    """Make a task and plan every kind of fault once, as the trials will, without running any; before that, let each
    workload get ready what its trials need.

    Raises ConfigError for a workload or fault whose own code fails, and for a fault pinned to a place that the workload
    does not have: all trials would be invalid, or no fault would ever strike.
    """
    from harness import trial  # where trials run, and nowhere else

    seen: set[tuple[str, str]] = set()
    for spec in specs:
        if (spec.workload, "") not in seen:
            prepare(parts(spec)[0])
        kinds = {(spec.workload, canonical(fault)) for fault in spec.faults} | {(spec.workload, "")}
        if kinds <= seen:
            continue
        seen |= kinds
        at_work = f"workload {spec.workload!r}"
        try:
            made = trial.Parts(*parts(spec))
            task = made.workload.task(spec.seed, spec.variation, spec.mode)
            task.shares()
            at_work = f"fault {spec.fault_class!r} ({', '.join(spec.variants)}) on workload {spec.workload!r}"
            trial.plan_faults(made, spec.variants, task)
        except Exception as error:
            raise ConfigError(f"{at_work} fails: {type(error).__name__}: {error}") from error
        for fault in spec.faults:
            _check_pin(fault, task)


def prepare(workload: Workload) -> None:
    """What a workload must have done once before its first task, e.g. to fetch what is not in the repository. Raises
    ConfigError, whatever its own code does."""
    ready = getattr(workload, "prepare", None)
    if ready is None:
        return
    try:
        ready()
    except (ConfigError, KeyboardInterrupt):
        raise
    except BaseException as error:
        problem = f"workload {workload.name!r} cannot get ready: {type(error).__name__}: {error}"
        raise ConfigError(problem) from error


def has_place(kind: type[FaultClass], variant: str, sites: tuple[SiteOffer, ...]) -> bool:
    """Whether a variant of a class of faults has something to strike among these sites."""
    try:
        kind.plan(variant, 0, sites, lambda name, count: 0)
    except LookupError:
        return False
    return True


def _check_pin(fault: PlannedFault, task: Task) -> None:
    places = {
        "delegation": [*(one.id for one in task.delegations), *(site.delegation for site in task.sites)],
        "phase": [*(p for one in task.delegations for p in one.phases), *(site.phase for site in task.sites)],
    }
    for key, known in places.items():
        pinned = fault.pin.get(key, "*")
        if pinned != "*" and pinned not in known:
            allowed = ", ".join(dict.fromkeys(known))
            raise ConfigError(f"fault {fault.fault!r} is pinned to {key} {pinned!r}", allowed=allowed)


def invalid(spec: TrialSpec, because: str) -> TrialRecord:
    """The record of a trial that gave no result of its own."""
    return TrialRecord(
        id=spec.id,
        pair=spec.pair,
        index=spec.index,
        workload=spec.workload,
        arm=spec.arm,
        world=spec.world,
        seed=spec.seed,
        variation=spec.variation,
        fault_class=spec.fault_class,
        variant="+".join(spec.variants),
        faults_scheduled=len(spec.faults),
        status="invalid",
        because=because,
    )
