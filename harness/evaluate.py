"""One evaluation, from a schedule file to a folder of results: plan, run, score, report.

The four steps are apart, and data moves one way: nothing that runs may know how it will be judged, and a sealed run can
be judged again later by a better oracle.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harness import catalogue, schedule_file, segment
from harness.catalogue import Catalogue
from harness.console import Step
from harness.core import strict_yaml
from harness.core.clock import wall_iso
from harness.core.errors import ConfigError, did_you_mean
from harness.core.types import Json
from harness.manifest import manifest, start
from harness.runner import Executor, Progress, RunOutcome, rehearse, run
from harness.schedule import Schedule, TrialSpec, World, override, resolved, trials
from harness.schedule_file import LIVE_TIME_SCALE, Names
from harness.trace_store import TraceStore

RESULTS = Path("results")
FULL = "every trial that was sealed is safe; make room, then `agentmesh score` and `agentmesh report` on this folder"
LIVE_JOBS_PER_CORE = 2
TELL_EVERY_PAIRS = 20
LIVE_AA_PAIRS = 4
UNCALIBRATED = "the registered calibration was not made before the first trial"


class Overrides(Struct, frozen=True, kw_only=True):
    """What the command line changes in a schedule; None leaves it as it is."""

    pairs: int | None = None
    seed: int | None = None
    arms: tuple[str, ...] | None = None
    world: str | None = None
    until: str | None = None

    def given(self) -> dict[str, Json]:
        return {key: value for key, value in msgspec.to_builtins(self).items() if value is not None}


class Plan(Struct, frozen=True, kw_only=True):
    """What is to be run. registration: {id, sha256, control, document, status, digests}, None when the schedule names
    none. until: by which rule the run may end before all of its pairs, see `harness.report.stopping`."""

    source: Path
    schedule: Schedule
    sha256: str
    specs: tuple[TrialSpec, ...]
    registration: dict[str, Json] | None
    overrides: dict[str, Json]
    until: str = "all_pairs"


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
    written = schedule_file.resolve(draft, names(entries))
    for name in overrides.arms or ():
        if name not in entries.arms:
            catalogue.arm(name)
    schedule = override(
        written,
        pairs=overrides.pairs,
        seed=overrides.seed,
        arms=overrides.arms,
        world=cast("World | None", overrides.world),
        live_time_scale=LIVE_TIME_SCALE,
    )
    registration = _registration(written, source, overrides)
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
        until=_until(overrides, registration, source),
    )


def _until(overrides: Overrides, registration: dict[str, Json] | None, source: Path) -> str:
    """The rule that was asked for, else the registered one. Without a registration there is nothing to look at."""
    rule = overrides.until
    if registration is None:
        if rule not in (None, "all_pairs"):
            raise ConfigError(f"--until {rule} needs a preregistration to look by", where=str(source))
        return "all_pairs"
    from harness.report.stopping import UNTIL

    if rule is not None and rule not in UNTIL:
        raise ConfigError(f"--until is {rule!r}", allowed=", ".join(UNTIL), hint=did_you_mean(rule, UNTIL))
    return rule or str(registration["document"].get("stopping", {}).get("until", "all_pairs"))


@contextmanager
def _located(source: Path) -> Iterator[None]:
    """What is wrong with the parts that a schedule names is said with the schedule's name."""
    try:
        yield
    except ConfigError as error:
        if error.where:
            raise
        raise ConfigError(error.problem, where=str(source), allowed=error.allowed, hint=error.hint) from error


def _registration(schedule: Schedule, source: Path, overrides: Overrides) -> dict[str, Json] | None:
    """The registration that the schedule names, as it was written, and whether this run is the registered one.
    schedule: before any override."""
    path = schedule_file.registration(schedule, source)
    if path is None:
        return None
    from harness.report.prereg import load_prereg  # statistics are not loaded by a run that has none to use
    from harness.status import status

    held = load_prereg(path)
    found, now = status(held, path, schedule, overrides.given())
    return {
        "id": held.id,
        "sha256": held.sha256,
        "control": held.arms.control,
        "document": strict_yaml.read(path).value,
        "status": msgspec.to_builtins(found),
        "digests": now.digests,
    }


# --- run ----------------------------------------------------------------------------------------------------------


def open_run(plan: Plan, *, jobs: int, out: Path | None = None, resume: bool = False) -> TraceStore:
    """The folder of a run, open for writing: a new one, or with `resume` the one to continue.

    Raises ConfigError when `out` already holds a run or is in use, or when there is nothing to continue.
    """
    if not resume:
        folder = out or _new_folder(plan)
        begun = manifest(plan.schedule, plan.registration, plan.overrides, jobs)
        return TraceStore.create(folder, {**begun, "stopping": {"until": plan.until, "stopped_at": None}})
    folder = out or _unfinished(plan)
    store = TraceStore.open(folder, write=True, schedule_sha256=plan.sha256)
    held = store.manifest.get("preregistration", {}).get("sha256")
    if held != (plan.registration or {}).get("sha256"):
        store.close()
        problem = "the registration is not the one that this run was started with"
        raise ConfigError(problem, where=str(folder), hint="restore it, or start a new run without --resume")
    until = store.manifest.get("stopping", {}).get("until", "all_pairs")
    if until != plan.until:
        store.close()
        problem = f"the run was started with the rule {until!r}, this is {plan.until!r}"
        raise ConfigError(problem, where=str(folder), hint=f"add --until {until}, or start a new run without --resume")
    _note_status(plan, store)
    if not store.manifest.get("ended") or not _all_sealed(plan, store):
        store.update_manifest({"starts": [*store.manifest.get("starts", []), start(jobs)]})
    return store


def _note_status(plan: Plan, store: TraceStore) -> None:
    """A run that confirmed when it was started does so no longer when it is continued by other code."""
    if plan.registration is None:
        return
    from harness.status import Status, continued, read_status

    held = read_status(store.manifest)
    now = continued(held, msgspec.convert(plan.registration["status"], Status))
    if now != held:
        noted = {**store.manifest["preregistration"], "status": msgspec.to_builtins(now)}
        store.update_manifest({"preregistration": noted})


def _all_sealed(plan: Plan, store: TraceStore) -> bool:
    """Whether the store holds every trial that the run is to have, as far as it went."""
    pairs = stopped_at(store.manifest)
    return all(spec.id in store.sealed_ids() for spec in plan.specs if spec.index < pairs)


def stopped_at(held: Mapping[str, Any]) -> int:
    """The number of pairs after which a run was allowed to end, by its manifest: no derived file looks beyond."""
    pairs = held.get("stopping", {}).get("stopped_at")
    return int(held.get("pairs", 0) if pairs is None else pairs)


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


def calibrate(plan: Plan, store: TraceStore, jobs: int, step: Step) -> None:
    """Put the harness to the test before the first trial of a run whose registration demands it: `calibration.json`.
    A live run is also preceded by a few live pairs of equal arms. Nothing is done where that file is there already, or
    where trials are: what is made afterwards calibrates nothing."""
    path = store.folder / "calibration.json"
    wanted = plan.registration is not None and "calibration" in plan.registration["document"]
    if not wanted or path.is_file() or store.sealed_ids():
        return
    from harness import calibration  # itself made of evaluations

    found = calibration.run(None, os.cpu_count() or 1, step)
    if plan.schedule.world == "live":
        found = calibration.with_live(found, LIVE_AA_PAIRS, jobs, step)
    with segment.disk(store.folder):
        calibration.write(path.with_name("calibration.json.new"), found)
        path.with_name("calibration.json.new").replace(path)


def execute(plan: Plan, store: TraceStore, executor: Executor, step: Step, jobs: int = 1) -> RunOutcome:
    """Run and seal what is missing, as far as the run's rule demands, and note in the manifest how it ended."""

    def show(state: Progress) -> None:
        step(state.done, state.total, state.note)

    stopping: dict[str, Json] = {"until": plan.until, "stopped_at": None}
    if store.manifest.get("ended") or plan.until == "all_pairs":  # ended: only what was lost since is run again
        stopping = store.manifest.get("stopping", stopping)
        pairs = stopped_at(store.manifest)
        outcome = run([spec for spec in plan.specs if spec.index < pairs], store, executor, show)
    else:
        with _judge(plan, store) as judge:
            enough = _telling(judge, lambda note: step(len(store.sealed_ids()), len(plan.specs), note))
            outcome = run(plan.specs, store, executor, show, enough, ahead=2 * jobs)
            if outcome.complete:
                last = judge.conclude()
                stopping["stopped_at"] = (last and last.stop_at) or plan.schedule.pairs
    again = [{"trial": trial, "because": because} for trial, because in outcome.reruns]
    changes: dict[str, Json] = {"reruns": [*store.manifest.get("reruns", []), *again]}
    if not outcome.complete:
        store.update_manifest(changes)
    elif outcome.sealed or not store.manifest.get("ended"):
        store.finish({**changes, "stopping": stopping, "ended": wall_iso()})
    return outcome


def _judge(plan: Plan, store: TraceStore) -> Any:
    from harness.report.stopping import Until
    from harness.watching import Judge  # loads statistics, which a run of a fixed size does not need

    return closing(Judge(store.folder, cast("Until", plan.until)))


def _telling(judge: Any, tell: Callable[[str], None]) -> Callable[[], bool]:
    """Asks the judge, and now and then tells how the evidence stands."""
    told = 0

    def enough() -> bool:
        nonlocal told
        done: bool = judge.enough()
        seen = judge.seen
        if seen is not None and seen.pairs > told and (done or seen.pairs >= told + TELL_EVERY_PAIRS):
            told = seen.pairs
            tell(seen.sentence() + (f"; the run may end after pair {seen.stop_at}" if done else ""))
        return done

    return enough


# --- score and report ---------------------------------------------------------------------------------------------


def score(folder: Path, step: Step) -> int:
    """Judge all trials of a run by the oracle: `findings.jsonl`, and `rows.jsonl` for the report. Their number."""
    from harness import score as oracle_side  # imports oracles, which nothing that runs may
    from harness.report.rows import row_of

    with TraceStore.open(folder) as store:
        total = len(counted(store))
        _refuse_incomplete(store)
    registered = store.manifest.get("preregistration", {}).get("document") or {}
    budget = registered.get("design", {}).get("token_budget_per_trial")
    done = 0
    draft = folder / "rows.jsonl.new"
    with segment.disk(folder, FULL):
        with (
            closing(cast("Generator[Any]", oracle_side.score_run(folder, stopped_at(store.manifest)))) as judged,
            draft.open("wb") as file,
        ):
            step(0, total, "")
            for scored in judged:
                file.write(msgspec.json.encode(row_of(replace(scored, budget_tokens=budget))) + b"\n")
                done += 1
                step(done, total, "")
        draft.replace(folder / "rows.jsonl")
    return done


def counted(store: TraceStore) -> set[str]:
    """The trials that derived files rest on: those of the pairs up to where the run was allowed to end, whatever other
    workers had begun by then."""
    pairs = stopped_at(store.manifest)
    return {record.id for record in store.records() if record.index < pairs}


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
    from harness import timeline
    from harness.report.prereg import parse_prereg
    from harness.report.render import compared, write_report, write_summary
    from harness.report.rows import read_rows, write_metrics_csv
    from harness.report.summary import build_summary, registered
    from harness.report.timeline import choose

    with TraceStore.open(folder) as store:
        held, sealed = store.manifest, counted(store)
    document = held.get("preregistration", {}).get("document")
    if document is None:
        raise ConfigError("the run has no registration to decide by", where=str(folder))
    path = folder / "rows.jsonl"
    if not path.is_file():
        raise ConfigError("the run is not scored", where=str(folder), hint=f"first: agentmesh score {folder}")
    registration = parse_prereg(document, where=f"{folder / 'manifest.json'}: preregistration")
    try:
        rows = read_rows(path)
        summary = build_summary(rows, held, registration, _beside(folder, registration, held))
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(f"the run cannot be summarised: {error}", where=str(folder)) from error
    if {row.trial for row in rows} != sealed:
        problem = f"{len(rows)} trials are scored, {len(sealed)} are sealed, and they are not the same"
        raise ConfigError(problem, where=str(folder), hint=f"first: agentmesh score {folder}")
    rows, arms = registered(rows, held, registration), compared(summary)
    with segment.disk(folder, FULL):
        write_metrics_csv(folder / "metrics.csv", rows)
        write_report(folder, summary, rows, held, timeline.pairs(folder, choose(rows, arms), arms))
        write_summary(folder, summary)  # last: a folder with a summary is a finished one
    return summary


def _beside(folder: Path, registration: Any, held: Mapping[str, Any]) -> Any:
    """What the summary tells of a run beside its trials. Raises ConfigError for a calibration that cannot be read."""
    from harness.report.summary import Beside
    from harness.seal import sources
    from harness.status import at_analysis, read_status

    status = at_analysis(registration, read_status(held), sources())
    path = folder / "calibration.json"
    if not path.is_file():
        if registration.calibration is not None:
            status = replace(status, confirmatory=False, because=(*status.because, UNCALIBRATED))
        return Beside(status=msgspec.to_builtins(status))
    try:
        calibration = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConfigError(f"the calibration cannot be read: {error}", where=str(path)) from error
    return Beside(status=msgspec.to_builtins(status), calibration=calibration)


def gate(summary: Mapping[str, Any]) -> int:
    """Exit code of a decision: 0 GO, 10 GO_NARROW, 11 STOP, 12 INCONCLUSIVE, 13 INVALID."""
    codes = {"GO": 0, "GO_NARROW": 10, "STOP": 11, "INCONCLUSIVE": 12, "INVALID": 13}
    return codes[summary["decision"]["kill_criterion"]]
