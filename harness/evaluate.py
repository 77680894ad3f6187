"""One evaluation, from a schedule file to a folder of results: plan, run, score, report.

The four steps are apart, and data moves one way: nothing that runs may know how it will be judged, and a sealed run can
be judged again later by a better oracle.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from harness import catalogue, schedule_file, segment
from harness.catalogue import Catalogue
from harness.console import Step
from harness.core import strict_yaml
from harness.core.clock import wall_iso
from harness.core.errors import ConfigError
from harness.core.types import Json
from harness.manifest import manifest, start
from harness.runner import Executor, Progress, RunOutcome, rehearse, run
from harness.schedule import Schedule, TrialSpec, World, override, resolved, trials
from harness.schedule_file import LIVE_TIME_SCALE, Names
from harness.trace_store import TraceStore

RESULTS = Path("results")
FULL = "every trial that was sealed is safe; make room, then `agentmesh score` and `agentmesh report` on this folder"
LIVE_JOBS_PER_CORE = 2


class Overrides(Struct, frozen=True, kw_only=True):
    """What the command line changes in a schedule; None leaves it as it is."""

    pairs: int | None = None
    seed: int | None = None
    arms: tuple[str, ...] | None = None
    world: str | None = None

    def given(self) -> dict[str, Json]:
        return {key: value for key, value in msgspec.to_builtins(self).items() if value is not None}


class Plan(Struct, frozen=True, kw_only=True):
    """What is to be run. registration: {id, sha256, control, document}, None when the schedule names none."""

    source: Path
    schedule: Schedule
    sha256: str
    specs: tuple[TrialSpec, ...]
    registration: dict[str, Json] | None
    overrides: dict[str, Json]


def names(entries: Catalogue) -> Names:
    """The names that a schedule may use."""
    variants = {name: tuple(fault.variants) for name, fault in entries.faults.items()}
    return Names(tuple(entries.arms), variants, tuple(entries.workloads))


def plan(source: Path, overrides: Overrides = Overrides(), *, judged: bool = False) -> Plan:  # noqa: B008 (frozen)
    """Read and check everything that a run depends on, before its first trial.

    judged: the run is to be analysed too, so that there must be a registration and its control arm. Raises ConfigError.
    """
    draft = schedule_file.read(source)
    with _located(source):
        entries = catalogue.load(draft.foreign())
    schedule = schedule_file.resolve(draft, names(entries))
    for name in overrides.arms or ():
        if name not in entries.arms:
            catalogue.arm(name)
    schedule = override(
        schedule,
        pairs=overrides.pairs,
        seed=overrides.seed,
        arms=overrides.arms,
        world=cast("World | None", overrides.world),
        live_time_scale=LIVE_TIME_SCALE,
    )
    registration = _registration(schedule, source)
    if judged and registration is None:
        hint = "name one, or use `agentmesh run`"
        raise ConfigError("the schedule names no preregistration to decide by", where=str(source), hint=hint)
    arms = [arm.name for arm in schedule.arms]
    if judged and registration and registration["control"] not in arms:
        problem = f"the registered control arm {registration['control']!r} is not among the arms"
        raise ConfigError(problem, where=str(source), allowed=f"arms with {registration['control']!r} among them")
    for name in arms:
        catalogue.check_boot(name)
    specs = trials(schedule)
    with _located(source):
        rehearse(specs)
    return Plan(
        source=source,
        schedule=schedule,
        sha256=resolved(schedule)[1],
        specs=specs,
        registration=registration,
        overrides=overrides.given(),
    )


@contextmanager
def _located(source: Path) -> Iterator[None]:
    """What is wrong with the parts that a schedule names is said with the schedule's name."""
    try:
        yield
    except ConfigError as error:
        if error.where:
            raise
        raise ConfigError(error.problem, where=str(source), allowed=error.allowed, hint=error.hint) from error


def _registration(schedule: Schedule, source: Path) -> dict[str, Json] | None:
    path = schedule_file.registration(schedule, source)
    if path is None:
        return None
    from harness.report.prereg import load_prereg  # statistics are not loaded by a run that has none to use

    held = load_prereg(path)
    document = strict_yaml.read(path).value  # as it was written: the digest is over that
    return {"id": held.id, "sha256": held.sha256, "control": held.arms.control, "document": document}


# --- run ----------------------------------------------------------------------------------------------------------


def open_run(plan: Plan, *, jobs: int, out: Path | None = None, resume: bool = False) -> TraceStore:
    """The folder of a run, open for writing: a new one, or with `resume` the one to continue.

    Raises ConfigError when `out` already holds a run or is in use, or when there is nothing to continue.
    """
    if not resume:
        folder = out or _new_folder(plan)
        return TraceStore.create(folder, manifest(plan.schedule, plan.registration, plan.overrides, jobs))
    folder = out or _unfinished(plan)
    store = TraceStore.open(folder, write=True, schedule_sha256=plan.sha256)
    held = store.manifest.get("preregistration", {}).get("sha256")
    if held != (plan.registration or {}).get("sha256"):
        store.close()
        problem = "the registration is not the one that this run was started with"
        raise ConfigError(problem, where=str(folder), hint="restore it, or start a new run without --resume")
    if not store.manifest.get("ended") or any(spec.id not in store.sealed_ids() for spec in plan.specs):
        store.update_manifest({"starts": [*store.manifest.get("starts", []), start(jobs)]})
    return store


def _new_folder(plan: Plan) -> Path:
    moment = wall_iso().replace("-", "").replace(":", "")
    base = RESULTS / plan.schedule.name / f"{moment}-{plan.sha256[:8]}"
    return next(f for n in range(1, 1000) if not (f := base.with_name(base.name + (f"-{n}" if n > 1 else ""))).exists())


def _unfinished(plan: Plan) -> Path:
    """The newest run of this very schedule that lacks trials or a summary."""
    root = RESULTS / plan.schedule.name
    runs = []
    for path in root.glob("*/manifest.json"):
        try:
            held = msgspec.json.decode(path.read_bytes())
            same = held["schedule"]["sha256"] == plan.sha256
            if same and not (held["ended"] and (path.parent / "summary.json").exists()):
                runs.append((held["started"], path.parent))
        except (OSError, msgspec.DecodeError, KeyError, TypeError):
            continue  # somebody else's folder
    if not runs:
        problem = f"no unfinished run of schedule {plan.schedule.name!r} as it is now (sha256 {plan.sha256[:8]})"
        raise ConfigError(problem, where=str(root), hint="start one without --resume, or name its folder with --out")
    return max(runs)[1]


def default_jobs(schedule: Schedule) -> int:
    """Trials at a time where nobody says: one per core, and more in the live world, where trials mostly wait."""
    cores = os.cpu_count() or 1
    return schedule.jobs or (cores if schedule.world == "sim" else LIVE_JOBS_PER_CORE * cores)


def make_executor(schedule: Schedule, jobs: int, toxiproxy_server: bool = False) -> Executor:
    """What executes the trials of a schedule's world, `jobs` at a time.

    toxiproxy_server: faults of the network go through the program of that name instead of the embedded proxy. Raises
    ConfigError when it is not on PATH.
    """
    if toxiproxy_server and shutil.which("toxiproxy-server") is None:
        hint = "install it, or leave the option out to use the embedded proxy"
        raise ConfigError("there is no toxiproxy-server on PATH", hint=hint)
    if schedule.world == "sim":
        from harness.pool import PoolExecutor

        return PoolExecutor(jobs)
    from harness.live.executor import LiveExecutor

    workers = os.cpu_count() or 1
    return LiveExecutor(jobs, workers=workers, seed=schedule.seed, external_proxy=toxiproxy_server)


def execute(plan: Plan, store: TraceStore, executor: Executor, step: Step) -> RunOutcome:
    """Run and seal what is missing, and note in the manifest how it ended."""

    def show(state: Progress) -> None:
        step(state.done, state.total, state.note)

    outcome = run(plan.specs, store, executor, show)
    again = [{"trial": trial, "because": because} for trial, because in outcome.reruns]
    changes: dict[str, Json] = {"reruns": [*store.manifest.get("reruns", []), *again]}
    if not outcome.complete:
        store.update_manifest(changes)
    elif outcome.sealed or not store.manifest.get("ended"):
        store.finish({**changes, "ended": wall_iso()})
    return outcome


# --- score and report ---------------------------------------------------------------------------------------------


def score(folder: Path, step: Step) -> int:
    """Judge all trials of a run by the oracle: `findings.jsonl`, and `rows.jsonl` for the report. Their number."""
    from harness import score as oracle_side  # imports oracles, which nothing that runs may
    from harness.report.rows import row_of

    with TraceStore.open(folder) as store:
        total = len(store.sealed_ids())
        _refuse_incomplete(store)
    done = 0
    draft = folder / "rows.jsonl.new"
    with segment.disk(folder, FULL):
        with closing(cast("Generator[Any]", oracle_side.score_run(folder))) as judged, draft.open("wb") as file:
            step(0, total, "")
            for scored in judged:
                file.write(msgspec.json.encode(row_of(scored)) + b"\n")
                done += 1
                step(done, total, "")
        draft.replace(folder / "rows.jsonl")
    return done


def _refuse_incomplete(store: TraceStore) -> None:
    """A run that ended and has lost trials since must not be judged by those that are left."""
    noted = store.manifest.get("files")
    index = segment.file_sha256(store.folder / "trials.jsonl")
    if noted is not None and (store.dropped or noted.get("trials.jsonl") != index):
        hint = f"`agentmesh verify {store.folder}` says what; --resume runs again the trials that are lost"
        raise ConfigError("trials were lost or changed after the run ended", where=str(store.folder), hint=hint)


def report(folder: Path) -> Mapping[str, Any]:
    """Make `metrics.csv`, `summary.json`, the pages and the plots from the rows of a scored run; gives the summary.

    The registration is the one in the manifest, as it was before the first trial. Raises ConfigError for a run that is
    not scored, has no registration, or lacks the registered control arm.
    """
    from harness.report.prereg import parse_prereg
    from harness.report.render import write_report, write_summary
    from harness.report.rows import Row, write_metrics_csv
    from harness.report.summary import build_summary, registered

    with TraceStore.open(folder) as store:
        held, sealed = store.manifest, store.sealed_ids()
    document = held.get("preregistration", {}).get("document")
    if document is None:
        raise ConfigError("the run has no registration to decide by", where=str(folder))
    path = folder / "rows.jsonl"
    if not path.is_file():
        raise ConfigError("the run is not scored", where=str(folder), hint=f"first: agentmesh score {folder}")
    registration = parse_prereg(document, where=f"{folder / 'manifest.json'}: preregistration")
    try:
        rows = [msgspec.json.decode(line, type=Row) for line in path.read_bytes().splitlines()]
        summary = build_summary(rows, held, registration)
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(f"the run cannot be summarised: {error}", where=str(folder)) from error
    if {row.trial for row in rows} != sealed.keys():
        problem = f"{len(rows)} trials are scored, {len(sealed)} are sealed, and they are not the same"
        raise ConfigError(problem, where=str(folder), hint=f"first: agentmesh score {folder}")
    rows = registered(rows, held, registration)
    with segment.disk(folder, FULL):
        write_metrics_csv(folder / "metrics.csv", rows)
        write_report(folder, summary, rows)
        write_summary(folder, summary)  # last: a folder with a summary is a finished one
    return summary


def gate(summary: Mapping[str, Any]) -> int:
    """Exit code of a decision: 0 GO, 10 GO_NARROW, 11 STOP, 12 INCONCLUSIVE, 13 INVALID."""
    codes = {"GO": 0, "GO_NARROW": 10, "STOP": 11, "INCONCLUSIVE": 12, "INVALID": 13}
    return codes[summary["decision"]["kill_criterion"]]
