"""The trials of the study: one schedule, at every level and for every workload, judged as they come and not kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import cast

from msgspec.structs import replace

from harness import catalogue, schedule_file
from harness.console import Step
from harness.core.errors import HarnessBug
from harness.core.records import SealedTrial
from harness.core.roles import FaultClass
from harness.pool import PoolExecutor
from harness.runner import has_place, prepare, rehearse
from harness.schedule import Schedule, TrialSpec, trials
from harness.schedule_file import Names
from harness.score import oracle_of, score
from harness.sensitivity.cells import Cell, pooled

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "schedules" / "sensitivity.yaml"

Key = tuple[str, int, str]


def planned(
    workloads: Sequence[str], levels: Sequence[int], pairs: int | None = None, base: Path = BASE
) -> list[TrialSpec]:
    """The trials, workload by workload and level by level. Raises ConfigError for a name that is not known."""
    draft = schedule_file.read(base)
    entries = catalogue.load(draft.foreign())
    schedule = schedule_file.resolve(draft, Names.of(entries))
    specs: list[TrialSpec] = []
    for workload in workloads:
        possible = _possible(schedule, workload, entries.faults)
        for level in levels:
            specs += trials(_at(possible, workload, level, pairs or schedule.pairs))
    rehearse(specs)
    return specs


def _possible(schedule: Schedule, workload: str, faults: Mapping[str, type[FaultClass]]) -> Schedule:
    """The schedule without the variants of faults that have nothing to strike in this workload, as a cut towards a
    boundary that it does not use. Each class keeps its share."""
    subject = catalogue.workload(workload)
    prepare(subject)
    sites = subject.task(schedule.seed, schedule.variation, schedule.mode).sites
    mix = {}
    for name, entry in schedule.mix.items():
        possible = tuple(variant for variant in entry.variants if has_place(faults[name], variant, sites))
        mix[name] = replace(entry, variants=possible or entry.variants)
    return cast("Schedule", replace(schedule, mix=mix))


def _at(schedule: Schedule, workload: str, level: int, pairs: int) -> Schedule:
    found = replace(schedule, workloads={workload: 1.0}, variation=level, pairs=pairs, no_fault_twins=0)
    return cast("Schedule", found)


def cells(specs: Sequence[TrialSpec], jobs: int, step: Step) -> list[Cell]:
    """Run and judge them on `jobs` processes; the cells by workload, level and arm.

    Raises HarnessBug for a trial without a result.
    """
    found: dict[Key, Cell] = {
        _key(spec): Cell(workload=spec.workload, level=spec.variation, arm=spec.arm) for spec in specs
    }
    for done, (spec, trial) in enumerate(_sealed(specs, jobs), start=1):
        found[_key(spec)] = pooled(found[_key(spec)], score(trial, oracle_of(spec.workload)))
        step(done, len(specs), "")
    return [found[key] for key in sorted(found)]


def _key(spec: TrialSpec) -> Key:
    return spec.workload, spec.variation, spec.arm


def _sealed(specs: Sequence[TrialSpec], jobs: int) -> Iterator[tuple[TrialSpec, SealedTrial]]:
    executor = PoolExecutor(jobs)
    with closing(executor):
        for spec in specs:
            executor.submit(spec)
        for finished in executor.results():
            if finished.record is None:
                raise HarnessBug(f"a trial of {finished.spec.arm} gave no result: {finished.trouble}")
            yield finished.spec, SealedTrial(record=finished.record, trace=finished.trace, truth=finished.truth)


def rows(found: Sequence[Cell]) -> Iterator[Mapping[str, object]]:
    """The cells as lines of a table, with their rates; "" where there was no occasion."""
    for cell in found:
        counts = {name: getattr(cell, name) for name in Cell.__struct_fields__}
        rates = ("duplicate_rate", "miss_rate", "collision_rate", "suppressed_rate")
        yield counts | {name: "" if (v := getattr(cell, name)) is None else round(v, 6) for name in rates}
