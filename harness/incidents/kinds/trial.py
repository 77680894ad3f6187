"""Stories that are whole trials: a named workload and seed, exact faults, an arm for each side, and what is counted.

Why whole trials: some failures need an agent, its checks and the services at once, and none of them alone shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from harness import catalogue
from harness.core.errors import ConfigError
from harness.core.records import Event
from harness.core.roles import Task
from harness.incidents.play import Played, PlayedWorld, Side, read
from harness.live.executor import LiveExecutor
from harness.runner import parts
from harness.schedule import Limits, PlannedFault, TrialSpec
from harness.simulate import run_sim
from harness.trial import Parts
from workloads.common.keys import natural_keys

Name = Literal["components_woken", "bystander_edits", "turns", "effects", "check_green"]


class Measure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number of a trial, from its trace or truth.

    components_woken: components whose repair was begun. bystander_edits: files that repairs of others than `defective`
    changed. turns: of the delegation `delegation`, or of all repairs. effects: that really happened, of the natural key
    `key`. check_green: runs of `check` that passed.
    """

    of: Name
    key: str = ""
    check: str = ""
    delegation: str = ""
    defective: tuple[str, ...] = ()


class Bound(Measure, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number that shows the failure when it is above, or below, what is allowed."""

    above: int | None = None
    below: int | None = None

    def broken(self, number: int) -> bool:
        over = self.above is not None and number > self.above
        return over or (self.below is not None and number < self.below)


class Story(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """count: what is told; failed: what shows the failure, any of these; facts: further numbers, by name. verdict: the
    one that the arm is asked about. naive: name of the arm of that side."""

    workload: str
    seed: int
    count: Measure
    unit: str
    failed: tuple[Bound, ...]
    facts: dict[str, Measure] = {}
    verdict: str = ""
    variation: int = 3
    faults: tuple[PlannedFault, ...] = ()
    naive: str = "naive"
    limits: Limits = Limits(nominal_ms=3_600_000, tokens=1_000_000, turns=2_000, lag_ms=1_000_000)
    time_scale: float = 0.1


class Logs(Struct, frozen=True):
    """What a trial left, with the task that it was about."""

    task: Task
    trace: Sequence[Event]
    truth: Sequence[Event]

    @property
    def repairs(self) -> dict[str, str]:
        """The repaired component, by delegation."""
        return {d.id: component for component, d in self.task.system.repairs.items()}

    def turns(self) -> list[Mapping[str, Any]]:
        return [e.data for e in self.trace if e.kind == "turn"]


def play(story: Mapping[str, Any], side: Side, world: PlayedWorld, arm: str = "mesh") -> Played:
    """Run the trial of a story with the arm of one side. Raises ConfigError for a story that cannot be read and for a
    trial that did not come to an end that can be counted."""
    told: Story = read(story, Story)
    logs = _run(_spec(told, side, world, arm if side == "mesh" else told.naive))
    numbers = {name: number(measure, logs) for name, measure in told.facts.items()}
    found = [(bound, number(bound, logs)) for bound in told.failed]
    broken = [f"{bound.of} {n}" for bound, n in found if bound.broken(n)]
    count = number(told.count, logs)
    return Played(
        failed=bool(broken),
        count=count,
        unit=told.unit,
        verdict=told.verdict if told.verdict in _verdicts(logs.trace) else "",
        told=f"{count} {told.unit}" + (f"; {', '.join(broken)}" if broken else ""),
        facts=numbers,
    )


def _spec(story: Story, side: Side, world: PlayedWorld, arm: str) -> TrialSpec:
    fault = story.faults[0].fault if story.faults else "none"
    return TrialSpec(
        schedule="incident",
        index=0,
        workload=story.workload,
        arm=arm,
        world=world,
        mode="tdd",
        variation=story.variation,
        seed=story.seed,
        fault_class=fault,
        faults=story.faults,
        limits=story.limits,
        time_scale=story.time_scale if world == "live" else 1.0,
        settle_ms=0.0,
        idempotency_keys=False,
        pair=f"{story.workload}-{story.seed}",
        id=f"{story.workload}-{story.seed}-{side}",
    )


def _run(spec: TrialSpec) -> Logs:
    workload = catalogue.workload(spec.workload)
    task = workload.task(spec.seed, spec.variation, spec.mode)
    if spec.world == "sim":
        result = run_sim(spec, Parts(*parts(spec)))
        record, trace, truth = result.record, tuple(result.trace), tuple(result.truth)
    else:
        executor = LiveExecutor(jobs=1, workers=1)
        try:
            executor.submit(spec)
            (finished,) = executor.results()
        finally:
            executor.close()
        if finished.record is None:
            raise ConfigError(f"the trial was not run: {finished.trouble}", where=spec.id)
        record, trace, truth = finished.record, finished.trace, finished.truth
    if record.status == "invalid":
        raise ConfigError(f"the trial is invalid: {record.because}", where=spec.id)
    return Logs(task, trace, truth)


# --- what is counted ----------------------------------------------------------------------------------------------


def number(measure: Measure, logs: Logs) -> int:
    """The number that a measure stands for."""
    return _MEASURES[measure.of](measure, logs)


def _components_woken(measure: Measure, logs: Logs) -> int:
    return len({e.data["delegation"] for e in logs.trace if e.kind == "attempt"} & logs.repairs.keys())


def _bystander_edits(measure: Measure, logs: Logs) -> int:
    bystanders = {id for id, component in logs.repairs.items() if component not in measure.defective}
    return sum(len(turn["writes"]) for turn in logs.turns() if turn["delegation"] in bystanders)


def _turns(measure: Measure, logs: Logs) -> int:
    counted = {measure.delegation} if measure.delegation else set(logs.repairs)
    return sum(turn["delegation"] in counted for turn in logs.turns())


def _effects(measure: Measure, logs: Logs) -> int:
    return sum(natural_keys(e.data).count(measure.key) for e in logs.truth if e.kind == "effect")


def _check_green(measure: Measure, logs: Logs) -> int:
    return sum(check == measure.check and passed for turn in logs.turns() for check, passed in turn["checks"])


_MEASURES: dict[Name, Callable[[Measure, Logs], int]] = {
    "components_woken": _components_woken,
    "bystander_edits": _bystander_edits,
    "turns": _turns,
    "effects": _effects,
    "check_green": _check_green,
}


def _verdicts(trace: Sequence[Event]) -> set[str]:
    """All that an arm said of a call, of an attempt or, in a note, of a decision."""
    return {str(e.data["verdict"]) for e in trace if e.data.get("verdict")}
