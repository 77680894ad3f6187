"""One evaluation, from a schedule file to a folder of sealed trials: plan, then run.

Apart from `harness.analysis`, which judges and reports: nothing that runs may know how it will be judged.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from harness import catalogue, schedule_file
from harness.analysis import stopped_at
from harness.console import Step, announced
from harness.core import strict_yaml
from harness.core.clock import wall_iso
from harness.core.errors import ConfigError, did_you_mean
from harness.core.types import Json
from harness.manifest import manifest, start
from harness.runner import Executor, Progress, RunOutcome, rehearse, run
from harness.schedule import Schedule, TrialSpec, World, override, resolved, trials
from harness.schedule_file import LIVE_TIME_SCALE, Names
from harness.trace_store import TraceStore

if TYPE_CHECKING:
    from harness.world.live.realmodel import ModelSource

RESULTS = Path("results")
LIVE_JOBS_PER_CORE = 2
TELL_EVERY_PAIRS = 20


class Overrides(Struct, frozen=True, kw_only=True):
    """What the command line changes in a schedule; None leaves it as it is. answers: who does, in place of the
    scripts."""

    pairs: int | None = None
    seed: int | None = None
    arms: tuple[str, ...] | None = None
    world: str | None = None
    until: str | None = None
    answers: str | None = None

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


def plan(source: Path, overrides: Overrides = Overrides(), *, judged: bool = False) -> Plan:  # noqa: B008 (frozen)
    """Read and check everything that a run depends on, before its first trial.

    judged: the run is to be analysed too, so that there must be a registration and its control arm. Raises ConfigError.
    """
    draft = schedule_file.read(source)
    with _located(source):
        entries = catalogue.load(draft.foreign())
    written = schedule_file.resolve(draft, Names.of(entries))
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
    with _located(source), announced("what the trials need is made ready; the first time this can take minutes"):
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
        begun = manifest(plan.schedule, _for_the_first_time(plan), plan.overrides, jobs)
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
    if not store.manifest.get("ended") or _missing(plan, store):
        store.update_manifest({"starts": [*store.manifest.get("starts", []), start(jobs)]})
    return store


def _for_the_first_time(plan: Plan) -> dict[str, Json] | None:
    """The registration, with what speaks against a new run of its seed."""
    if plan.registration is None:
        return None
    from harness.status import Status

    held = msgspec.convert(plan.registration["status"], Status)
    return {**plan.registration, "status": msgspec.to_builtins(_beside_others(plan, held))}


def _note_status(plan: Plan, store: TraceStore) -> None:
    """A run that confirmed when it was started does so no longer when it is continued by other code, or when another of
    its seed was released meanwhile, or when it had ended and has lost trials since."""
    if plan.registration is None:
        return
    from harness.status import Status, continued, read_status, run_again

    now, missing = msgspec.convert(plan.registration["status"], Status), len(_missing(plan, store))
    ended = bool(store.manifest.get("ended"))
    if missing and not ended:
        now = _beside_others(plan, now, store.manifest)
    _restate(store, run_again(continued(read_status(store.manifest), now), missing if ended else 0))


def _beside_others(plan: Plan, held: Any, own: dict[str, Json] | None = None) -> Any:
    """The status of a run beside others of its seed. In the sim world a second run is the first. own: the manifest of
    the run when it is continued: then only others that were released count, since it may be older than the rest."""
    if plan.schedule.world == "sim":
        return held
    from harness.seeds import runs_with_seed
    from harness.status import begun_before

    runs = runs_with_seed(plan.schedule.seed, [RESULTS], apart_from=own)
    return begun_before(held, [run for run in runs if own is None or run.released])


def _note_end(plan: Plan, store: TraceStore) -> None:
    """Nor does one during which the code was changed."""
    if plan.registration is None:
        return
    from harness.seal import sources
    from harness.status import at_end, read_status

    _restate(store, at_end(read_status(store.manifest), plan.registration["digests"], sources()))


def _restate(store: TraceStore, now: Any) -> None:
    from harness.status import read_status

    if now != read_status(store.manifest):
        noted = {**store.manifest["preregistration"], "status": msgspec.to_builtins(now)}
        store.update_manifest({"preregistration": noted})


def _missing(plan: Plan, store: TraceStore) -> list[str]:
    """The trials that the run is to have, as far as it went, and that the store does not hold."""
    pairs, sealed = stopped_at(store.manifest), store.sealed_ids()
    return [spec.id for spec in plan.specs if spec.index < pairs and spec.id not in sealed]


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


def make_executor(
    schedule: Schedule, jobs: int, toxiproxy_server: bool = False, model: ModelSource | None = None
) -> Executor:
    """What executes the trials of a schedule's world, `jobs` at a time.

    toxiproxy_server: faults of the network go through the program of that name instead of the embedded proxy. Raises
    ConfigError when it is not on PATH. model: who answers in place of the scripts.
    """
    if toxiproxy_server and shutil.which("toxiproxy-server") is None:
        hint = "install it, or leave the option out to use the embedded proxy"
        raise ConfigError("there is no toxiproxy-server on PATH", hint=hint)
    if schedule.world == "sim":
        from harness.pool import PoolExecutor

        return PoolExecutor(jobs)
    if shutil.which("git") is None:
        raise ConfigError("there is no git on PATH", hint="install it: remotes of live trials are git's")
    from harness.live.executor import LiveExecutor

    workers = os.cpu_count() or 1
    return LiveExecutor(jobs, workers, seed=schedule.seed, external_proxy=toxiproxy_server, model=model)


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
        _note_end(plan, store)
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
