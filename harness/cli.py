"""The command line `agentmesh`: nothing but wiring.

Exit codes: 0 it ended, whatever was decided; 2 bad input; 3 a failure of the harness; 130 interrupted; with `--gate`
the decision: 0 GO, 10 GO_NARROW, 11 STOP, 12 INCONCLUSIVE, 13 INVALID. Errors go to stderr in one line; the last line
of `eval` and `run` on stdout is the folder of the results.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from harness.console import progress
from harness.core.clock import wall_iso
from harness.core.errors import ConfigError, Crash, HarnessBug

try:
    from harness import catalogue, evaluate, replay, verify
    from harness.evaluate import Overrides, Plan
    from harness.runner import RunOutcome
    from harness.schedule import canonical
    from harness.schedule_file import json_schema
    from harness.trace_store import TraceStore
except ConfigError as _error:  # arms read their policies when they are imported, before any command can say so
    sys.stderr.write(f"agentmesh: {_error}\n")
    raise SystemExit(2) from _error

BAD_INPUT, HARNESS_FAILURE, INTERRUPTED = 2, 3, 130


class Interrupted(Exception):
    """The person stopped it; the message says how to go on."""


class _Guarded(TyperGroup):
    """Turns what goes wrong into one message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        ctx.obj = {}  # "folder": where the traceback of a failure is kept
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            raise _stop(f"agentmesh: {error}", BAD_INPUT) from error
        except (KeyboardInterrupt, Interrupted) as error:
            raise _stop(f"agentmesh: interrupted{': ' if str(error) else ''}{error}", INTERRUPTED) from error
        except (Exception, HarnessBug, Crash) as error:
            if type(error).__module__.partition(".")[0] in ("typer", "click") or isinstance(error, BrokenPipeError):
                raise  # typer's own: a wrong option, an exit code
            raise _failed(error, ctx.obj.get("folder")) from error


def _stop(message: str, code: int) -> typer.Exit:
    typer.echo(message, err=True)
    return typer.Exit(code)


def _failed(error: BaseException, folder: Path | None) -> typer.Exit:
    told = "".join(traceback.format_exception(error))
    message = f"agentmesh: the harness failed: {type(error).__name__}: {error}"
    if folder is not None and folder.is_dir():
        path = folder / "failure.txt"
        with suppress(OSError):  # a full disk: the traceback is printed instead
            path.write_text(f"{wall_iso()}\n{told}")
            return _stop(f"{message}; the traceback is in {path}", HARNESS_FAILURE)
    return _stop(f"{told}\n{message}", HARNESS_FAILURE)


app = typer.Typer(cls=_Guarded, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

ScheduleArg = Annotated[Path, typer.Argument(help="Schedule file (YAML).")]
RunArg = Annotated[Path, typer.Argument(help="Folder of a run: results/<schedule>/<run>.")]
Pairs = Annotated[int | None, typer.Option(help="Pairs to run, in place of the schedule's.")]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Seed, in place of the schedule's.")]
Arms = Annotated[str | None, typer.Option(help="Arms to run, with commas between.")]
Jobs = Annotated[int | None, typer.Option(min=1, max=256, help="Trials at a time.")]
WorldOption = Annotated[str | None, typer.Option("--world", help="live or sim.")]
Out = Annotated[Path | None, typer.Option(help="Folder of this run, in place of results/<schedule>/<run>.")]
RealProxy = Annotated[
    bool, typer.Option("--toxiproxy-server", help="Cut networks by the program of that name instead of ours.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the newest unfinished run, or that in --out.")]


@app.command(name="eval")
def eval_(
    ctx: typer.Context,
    schedule: ScheduleArg,
    pairs: Pairs = None,
    seed: SeedOption = None,
    arms: Arms = None,
    jobs: Jobs = None,
    world: WorldOption = None,
    out: Out = None,
    resume: Resume = False,
    toxiproxy_server: RealProxy = False,
    gate: Annotated[bool, typer.Option("--gate", help="Exit with the code of the decision.")] = False,
) -> None:
    """Run a schedule, score it, analyse it, report."""
    plan = evaluate.plan(schedule, _overrides(pairs, seed, arms, world), judged=True)
    folder = _run(ctx, plan, jobs, out, resume, toxiproxy_server)
    _score(folder)
    summary = evaluate.report(folder)
    _say_decision(summary)
    typer.echo(folder)
    raise typer.Exit(evaluate.gate(summary) if gate else 0)


@app.command()
def run(
    ctx: typer.Context,
    schedule: ScheduleArg,
    pairs: Pairs = None,
    seed: SeedOption = None,
    arms: Arms = None,
    jobs: Jobs = None,
    world: WorldOption = None,
    out: Out = None,
    resume: Resume = False,
    toxiproxy_server: RealProxy = False,
) -> None:
    """Run the trials of a schedule and seal them, without judging."""
    plan = evaluate.plan(schedule, _overrides(pairs, seed, arms, world))
    typer.echo(_run(ctx, plan, jobs, out, resume, toxiproxy_server))


@app.command()
def score(ctx: typer.Context, folder: RunArg) -> None:
    """Judge the sealed trials of a run by the oracle."""
    ctx.obj["folder"] = folder
    typer.echo(f"{_score(folder)} trials scored")


@app.command()
def report(
    ctx: typer.Context,
    folder: RunArg,
    gate: Annotated[bool, typer.Option("--gate", help="Exit with the code of the decision.")] = False,
) -> None:
    """Make summary, tables and plots of a scored run again."""
    ctx.obj["folder"] = folder
    summary = evaluate.report(folder)
    _say_decision(summary)
    raise typer.Exit(evaluate.gate(summary) if gate else 0)


@app.command()
def lint(files: Annotated[list[Path], typer.Argument(help="Schedule files.")]) -> None:
    """Check schedules without running anything."""
    bad = 0
    for path in files:
        try:
            plan = evaluate.plan(path)
            typer.echo(f"{path}: {len(plan.specs)} trials, {len(plan.schedule.arms)} arms, sha256 {plan.sha256}")
        except ConfigError as error:
            bad += 1
            typer.echo(f"agentmesh: {error}", err=True)
    raise typer.Exit(BAD_INPUT if bad else 0)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a schedule, for editors."""
    typer.echo(canonical(json_schema()))


class Kind(StrEnum):
    ARMS = "arms"
    FAULTS = "faults"
    WORKLOADS = "workloads"
    METRICS = "metrics"


@app.command(name="list")
def list_(kind: Kind) -> None:
    """Print what there is, one per line: name, and what it is."""
    for line in _listed(kind, catalogue.load()):
        typer.echo(line)


def _listed(kind: Kind, entries: catalogue.Catalogue) -> Iterator[str]:
    if kind is Kind.ARMS:
        yield from (f"{name}\t{arm.about}" for name, arm in entries.arms.items())
    elif kind is Kind.WORKLOADS:
        yield from (f"{name}\t{workload.about}" for name, workload in entries.workloads.items())
    elif kind is Kind.FAULTS:
        for name, fault in entries.faults.items():
            yield f"{name}\t{fault.code}: {getattr(fault, 'about', '')} Variants: {', '.join(fault.variants)}"
    else:
        from harness.metrics import METRICS

        yield from (f"{name}\t{m.about} [{m.unit}; better: {m.better}]" for name, m in METRICS.items())


@app.command(name="replay")
def replay_(folder: RunArg, trial: Annotated[str, typer.Argument(help="Id of a trial, or how it begins.")]) -> None:
    """Tell what happened in one trial: faults, calls, effects and verdicts, in order."""
    with TraceStore.open(folder) as store:
        record = replay.find(store, trial)
        for line in replay.lines(store.read(record.id), replay.findings(folder, record.id)):
            typer.echo(line)


@app.command(name="verify")
def verify_(folder: RunArg) -> None:
    """Check that a run is still what was sealed: recompute all digests and the ids of all trials."""
    with TraceStore.open(folder) as store:
        found = list(verify.problems(store))
        count = len(store.sealed_ids())
    for problem in found:
        typer.echo(f"agentmesh: {problem}", err=True)
    if found:
        raise typer.Exit(BAD_INPUT)
    typer.echo(f"{count} trials are as they were sealed")


IncidentFolder = Annotated[Path, typer.Argument(help="Folder or file of incidents.")]
WORLDS: dict[str, tuple[Any, ...]] = {"sim": ("sim",), "live": ("live",), "both": ("sim", "live")}
Tables = Annotated[Path, typer.Option("--out", help="Folder for the tables.")]


@app.command(name="incidents")
def incidents_(
    folder: IncidentFolder = Path("schedules/incidents"),
    world: Annotated[str, typer.Option("--world", help="sim, live or both.")] = "sim",
    out: Tables = Path("results/incidents"),
) -> None:
    """Play known failures on an arm that fails of them and on the mesh; exit 1 when one is not as expected."""
    from harness.incidents import regression, tables

    if world not in WORLDS:
        raise ConfigError(f"unknown world {world!r}", allowed=", ".join(WORLDS))
    catalogue.check_boot("mesh")
    corpus = regression.load(folder)
    tables.folder(out)
    failed: list[str] = []
    for line in regression.tell_incidents(corpus.incidents, WORLDS[world], failed):
        typer.echo(line)
    if corpus.scenarios:
        found = regression.judged(corpus.scenarios)
        for line in regression.tell_field(found):
            typer.echo(line)
        regression.write_field_csv(out / "field.csv", found)
    raise typer.Exit(1 if failed else 0)


@app.command()
def mutants(folder: IncidentFolder = Path("schedules/incidents"), out: Tables = Path("results/incidents")) -> None:
    """Take away each guard, then each primitive: its incidents must come back and no other; exit 1 when not proven."""
    from harness.incidents import proof, regression, tables

    incidents = regression.load(folder).incidents
    if not incidents:
        raise ConfigError("there is no incident of our own form here to prove a guard with", where=str(folder))
    tables.folder(out)
    rows: list[proof.Row] = []
    for line in regression.tell_matrix(_kept(proof.matrix(incidents), rows)):
        typer.echo(line)
    proof.write_csv(out / "mutants.csv", rows)
    unproven = [row.name for row in rows if not row.proven]
    typer.echo(f"{len(rows) - len(unproven)} of {len(rows)} guards are proven; the matrix is in {out / 'mutants.csv'}")
    arms: list[proof.Row] = []
    for line in regression.tell_matrix(_kept(proof.primitives(incidents), arms)):
        typer.echo(line)
    for line in regression.tell_apart(incidents):
        typer.echo(line)
    proof.write_csv(out / "primitives.csv", arms, "arm")
    lame = [row.name for row in arms if not row.proven]
    said = f"{len(arms) - len(lame)} of {len(arms)} arms that lack a primitive fail as they must"
    typer.echo(f"{said}; the matrix is in {out / 'primitives.csv'}")
    raise typer.Exit(1 if unproven or lame else 0)


def _kept(rows: Iterator[Any], kept: list[Any]) -> Iterator[Any]:
    for row in rows:
        kept.append(row)
        yield row


@app.command()
def admit(
    file: Annotated[Path, typer.Argument(help="Declaration of a system (YAML).")],
    repository: Annotated[Path, typer.Option(help="Folder of the files that are there before.")] = Path("."),
) -> None:
    """Say whether a declared system may be started: its delegations and their digest, or every reason against it."""
    from arms.mesh.control import admission, declaration
    from harness.orchestrator import plan
    from harness.world.files import DiskFiles

    if not repository.is_dir():
        hint = "name the folder that the declared files lie in"
        raise ConfigError("the repository is no folder", where=str(repository), hint=hint)
    files = DiskFiles(repository)
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    admitted = admission.admit(
        declaration.load(file),
        read=lambda path: files.get(path) if (repository / path).is_file() else None,  # a device never ends
        resolves=lambda program: shutil.which(program, path=programs) is not None,
        validate=plan.validate,
    )
    for refusal in admitted.refusals:
        typer.echo(f"agentmesh: {refusal}", err=True)
    if not admitted.compiled or admitted.refusals:
        raise typer.Exit(BAD_INPUT)
    for one in admitted.compiled.delegations:
        typer.echo(f"{one.id}\tneeds {', '.join(one.needs) or 'nothing'}; phases {', '.join(one.phases)}")
    typer.echo(f"admitted, sha256 {admitted.compiled.digest}")


# --- shared by the commands ---------------------------------------------------------------------------------------


def _overrides(pairs: int | None, seed: int | None, arms: str | None, world: str | None) -> Overrides:
    named = None if arms is None else tuple(name for name in (part.strip() for part in arms.split(",")) if name)
    return Overrides(pairs=pairs, seed=seed, arms=named, world=world)


def _run(
    ctx: typer.Context, plan: Plan, jobs: int | None, out: Path | None, resume: bool, toxiproxy_server: bool
) -> Path:
    jobs = jobs or evaluate.default_jobs(plan.schedule)
    executor = evaluate.make_executor(plan.schedule, jobs, toxiproxy_server)
    with evaluate.open_run(plan, jobs=jobs, out=out, resume=resume) as store:
        if store.dropped:
            typer.echo(f"{store.dropped} trials were cut off on the disk and are run again", err=True)
        ctx.obj["folder"] = store.folder
        with progress("trials") as step, _stoppable():
            outcome = evaluate.execute(plan, store, executor, step)
        _check_outcome(outcome, plan, store.folder)
        return store.folder


def _check_outcome(outcome: RunOutcome, plan: Plan, folder: Path) -> None:
    done = outcome.earlier + sum(outcome.sealed.values())
    if outcome.interrupted:
        raise Interrupted(
            f"{done} of {outcome.total} trials are sealed in {folder}; continue with the same command and --resume"
        )
    if not outcome.complete:
        raise HarnessBug(f"only {done} of {outcome.total} trials of {plan.source} gave a result")
    counts = ", ".join(f"{count} {status}" for status, count in sorted(outcome.sealed.items()))
    typer.echo(f"{outcome.total} trials: {outcome.earlier} sealed earlier, {counts or 'none new'}", err=True)


def _score(folder: Path) -> int:
    with progress("trials judged") as step:
        return evaluate.score(folder, step)


def _say_decision(summary: Any) -> None:
    decision = summary["decision"]
    for reason in decision["reasons"]:
        typer.echo(f"  {reason}")
    typer.echo(f"kill criterion: {decision['kill_criterion']} (pairs used: {decision['pairs_used']})")


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main() -> None:
    """Entry of the console script. The current folder can be imported from, for `module:name` in schedules."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    app()


if __name__ == "__main__":
    main()
