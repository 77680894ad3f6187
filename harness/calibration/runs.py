"""The runs of a calibration: each schedule is planned, run, sealed and scored like any other, and then looked at.

Why no shorter way: what is to be put to the test is the way that results are really made.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from harness import analysis, evaluate, segment
from harness.calibration import kept
from harness.calibration.checks import CHECKS, NOISE, PLANTED, PLANTED_TRIALS, REPLICA
from harness.calibration.form import Calibration, Check, Found, Judged, NoiseFloor, Number, Planned, Without, write
from harness.calibration.measures import common, floor_of, told_apart
from harness.console import Step, silent
from harness.core.errors import HarnessBug
from harness.core.records import NotApplicable
from harness.evaluate import Overrides, Plan
from harness.report.evidence import by_arm
from harness.report.prereg import parse_prereg
from harness.report.rows import Row, ordered, read_rows
from harness.report.summary import build_summary
from harness.trace_store import TraceStore

ROOT = Path(__file__).resolve().parents[2]
SCHEDULES = ROOT / "schedules" / "calibration"
LIVE_TWICE = ROOT / "schedules" / "aa.yaml"
LIVE_PAIRS = 4
"""Pairs of equal arms that a live run is preceded by."""

SCRATCH = ".calibration"
"""Folder of its runs while a calibration goes on, below the run that it belongs to."""


def calibrate(folder: Path | None, jobs: int, step: Step) -> Calibration:
    """Make all checks, in the sim world, on the runs of their schedules.

    folder: each run gets a folder below it; one that this code began is continued, and not judged again where it was,
    and one that other code began is replaced. None: they are thrown away. step: told of trials done, of all. Raises
    ConfigError for a schedule that cannot be run, HarnessBug when trials gave no result.
    """
    return assess(judge(folder, jobs, step))


Shown = Callable[[str], AbstractContextManager[Step]]
"""Makes a step of what is counted, for as long as its block lasts: `harness.console.progress`."""


def of_run(plan: Plan, store: TraceStore, jobs: int, shown: Shown) -> Calibration | Without:
    """Make the calibration that the registration of a run demands, before its first trial: `calibration.json`; or say
    why none is made.

    A live run is also preceded by a few live pairs of equal arms. The digest of the file goes to the manifest, so that
    no other takes its place. One that was interrupted is continued. Errors as in `calibrate`.
    """
    if plan.registration is None or "calibration" not in plan.registration["document"]:
        return Without(because="none, the registration demands none")
    if store.manifest.get("calibration"):
        return Without(because="made before the first trial, when the run was started")
    if store.sealed_ids():
        said = "none, and the registration demands one: made after the first trial it would calibrate nothing"
        return Without(because=said, refused=True)
    path, scratch = store.folder / "calibration.json", store.folder / SCRATCH
    with shown("trials of the calibration") as step:
        found = calibrate(scratch, os.cpu_count() or 1, step)
    if plan.schedule.world == "live":
        with shown("live trials of equal arms") as step:
            check = live_twice(scratch / "live_aa", LIVE_PAIRS, jobs, step)
        found = replace(found, checks=(*found.checks, check))  # too few pairs to bear a verdict: nothing hangs on it
    draft = path.with_name(f"{path.name}.new")
    with segment.disk(store.folder):
        write(draft, found)
        draft.replace(path)
    store.update_manifest({"calibration": {"sha256": segment.file_sha256(path)}})
    shutil.rmtree(scratch, ignore_errors=True)
    return found


def judge(folder: Path | None, jobs: int, step: Step, *, checks: Sequence[Planned] = CHECKS) -> dict[str, Judged]:
    """The judged runs that these checks look at, by schedule. Arguments as in `calibrate`."""
    plans = {name: _plan(name) for name in dict.fromkeys(check.schedule for check in checks)}
    with _folder(folder) as base:
        return dict(_runs(plans, checks, base, jobs, step))


def assess(judged: Mapping[str, Judged], *, checks: Sequence[Planned] = CHECKS) -> Calibration:
    """What the checks come to on these runs: pure."""
    made = tuple(_check(planned, judged[planned.schedule]) for planned in checks)
    return Calibration(
        passed=all(check.passed for check in made),
        checks=made,
        noise_floor=_described(_floor(judged)),
        schedules={name: judged[name].sha256 for name in sorted(judged)},
    )


def live_twice(folder: Path, pairs: int, jobs: int, step: Step) -> Check:
    """The control arm twice among real processes, for so many pairs: too few to claim anything, enough to be seen next
    to the floor. Its numbers are not reproducible."""
    plan = evaluate.plan(LIVE_TWICE, Overrides(pairs=pairs, world="live", until="all_pairs"), judged=True)
    _run_and_score(plan, folder, jobs, step)
    question = "Are two runs of the control arm told apart, among real processes?"
    return _check(
        Planned(
            name="same_arm_twice_live",
            question=question,
            schedule="aa",
            measure=told_apart(REPLICA),
            expected="no difference",
        ),
        _look(plan, folder),
    )


def _plan(name: str) -> Plan:
    return evaluate.plan(SCHEDULES / f"{name}.yaml", Overrides(until="all_pairs"), judged=True)


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="agentmesh-calibration-") as scratch:
        yield Path(scratch)


def _runs(
    plans: Mapping[str, Plan], checks: Iterable[Planned], base: Path, jobs: int, step: Step
) -> Iterator[tuple[str, Judged]]:
    total, before = sum(len(plan.specs) for plan in plans.values()), 0
    judged = [name for name, plan in plans.items() if kept.is_judged(base / name, plan)]
    if judged:
        step(sum(len(plans[name].specs) for name in judged), total, kept.told(judged, plans, checks))
    for name, plan in plans.items():
        done = before

        def told(here: int, _: int, note: str, done: int = done) -> None:
            step(done + here, total, note)

        if name not in judged:
            _run_and_score(plan, base / name, jobs, told)
        yield name, _look(plan, base / name, PLANTED_TRIALS if name == PLANTED else 0)
        before += len(plan.specs)


def _run_and_score(plan: Plan, folder: Path, jobs: int, step: Step) -> None:
    """Run the trials of a plan that are missing, and score them all. A run that other code began is begun anew."""
    if kept.is_of_other_code(folder, plan):
        shutil.rmtree(folder)
    resume = (folder / "manifest.json").is_file()
    with evaluate.open_run(plan, jobs=jobs, out=folder, resume=resume) as store:
        outcome = evaluate.execute(plan, store, evaluate.make_executor(plan.schedule, jobs), step, jobs)
    if outcome.interrupted:
        raise KeyboardInterrupt
    if not outcome.complete:
        raise HarnessBug(f"trials of {plan.source.name} gave no result")
    analysis.score(folder, silent)
    kept.note(folder, plan)


def _look(plan: Plan, folder: Path, plants: int = 0) -> Judged:
    """The scored run of a plan, as the checks look at it."""
    with TraceStore.open(folder) as store:
        held, found = store.manifest, _planted(store, plants)
    prereg = parse_prereg(held["preregistration"]["document"])
    rows = ordered(read_rows(folder / "rows.jsonl"))
    return Judged(
        prereg=prereg,
        rows=_by_arm(rows),
        decision=build_summary(rows, held, prereg)["decision"],
        sha256=plan.sha256,
        planted=tuple(found),
        plants=plants,
    )


def _by_arm(rows: Iterable[Row]) -> dict[str, tuple[Row, ...]]:
    """Rows by arm in registered order; where no trial has faults, those without."""
    rows = list(rows)
    found = by_arm(rows) or by_arm(rows, twins=True)
    return {arm: tuple(places[index] for index in sorted(places)) for arm, places in found.items()}


def _planted(store: TraceStore, trials: int) -> list[str]:
    """What the oracle says wrongly about harm that is planted in the first trials of the first arm."""
    if not trials:
        return []
    from harness.score import oracle_of, selftest  # imports oracles, which nothing that runs may

    first = [record for record in store.records() if record.arm == store.manifest["arms"][0]][:trials]
    return [wrong for record in first for wrong in selftest(oracle_of(record.workload), store.read(record.id))]


def _check(planned: Planned, run: Judged) -> Check:
    """A trial that our own machinery spoiled spoils the check: an answer that is right for a wrong reason is none."""
    spoiled = sum(not row.valid for rows in run.rows.values() for row in rows)
    because = f"{spoiled} trials were spoiled by our own machinery"
    found = Found(got="spoiled", because=because) if spoiled else planned.measure(run)
    return Check(
        name=planned.name,
        question=planned.question,
        expected=planned.expected,
        got=found.got,
        passed=found.got == planned.expected,
        because=found.because,
        numbers=found.numbers,
    )


def _floor(judged: Mapping[str, Judged]) -> NoiseFloor | NotApplicable:
    if NOISE not in judged:
        return NotApplicable(f"the schedule {NOISE} was not run")
    return floor_of(*common(judged[NOISE], REPLICA), judged[NOISE].prereg)


def _described(floor: NoiseFloor | NotApplicable) -> dict[str, Number]:
    if isinstance(floor, NotApplicable):
        return {"not_applicable": floor.because}
    return dict(msgspec.to_builtins(floor))
