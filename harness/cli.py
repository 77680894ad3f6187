"""The command line `agentmesh`: nothing but wiring.

Exit codes: 0 it ended, whatever was decided; 1 something that was looked at does not hold (`harness.commands`); 2 bad
input; 3 a failure of the harness; 4 another environment (`replicate`); 130 interrupted; with `--gate` the decision, see
`harness.analysis.gate`. Errors go to stderr in one line; the last line
of `eval` and `run` on stdout is the folder of the results.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from harness.console import progress
from harness.core.clock import wall_iso
from harness.core.errors import ConfigError, Crash, HarnessBug

try:
    from harness import analysis, commands, evaluate, real_model, replay
    from harness.evaluate import Overrides, Plan
    from harness.real_model import CassetteFile, KeyFrom, MaxCost, MaxTokens, ModelName, Price, ProviderUrl
    from harness.runner import RunOutcome
    from harness.schedule import canonical
    from harness.schedule_file import json_schema
    from harness.trace_store import TraceStore
except ConfigError as _error:  # arms read their policies when they are imported, before any command can say so
    sys.stderr.write(f"agentmesh: {_error}\n")
    raise SystemExit(2) from _error
except KeyboardInterrupt:
    sys.stderr.write("agentmesh: interrupted\n")
    raise SystemExit(130) from None

if TYPE_CHECKING:
    from harness.live.capped import Capped
    from harness.world.live.realmodel import ModelSource

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
UntilOption = Annotated[
    str | None,
    typer.Option("--until", help="all_pairs, kill_criterion or full_claim, in place of the registered rule."),
]
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
    until: UntilOption = None,
    out: Out = None,
    resume: Resume = False,
    toxiproxy_server: RealProxy = False,
    no_calibration: Annotated[
        bool, typer.Option("--no-calibration", help="Leave out the registered calibration; the run is exploratory.")
    ] = False,
    gate: Annotated[bool, typer.Option("--gate", help="Exit with the code of the decision.")] = False,
    provider_url: ProviderUrl = None,
    model: ModelName = None,
    key_from: KeyFrom = real_model.KEY_VARIABLE,
    cassette: CassetteFile = None,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    price: Price = None,
) -> None:
    """Run a schedule, score it, analyse it, report."""
    source = real_model.source(provider_url, model, key_from, cassette, max_tokens, max_cost, price)
    plan = evaluate.plan(schedule, _overrides(pairs, seed, arms, world, until, source), judged=True)
    calibrated = not no_calibration and source is None  # what is calibrated is the harness with its scripts
    folder = _run(ctx, plan, jobs, out, resume, toxiproxy_server, calibrated, source)
    with _stoppable(f"all trials are sealed in {folder}; `agentmesh score` and `agentmesh report` do the rest"):
        _score(folder)
        summary = analysis.report(folder)
    _say_decision(summary)
    typer.echo(folder)
    raise typer.Exit(analysis.gate(summary) if gate else 0)


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
    provider_url: ProviderUrl = None,
    model: ModelName = None,
    key_from: KeyFrom = real_model.KEY_VARIABLE,
    cassette: CassetteFile = None,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    price: Price = None,
) -> None:
    """Run the trials of a schedule and seal them, without judging."""
    source = real_model.source(provider_url, model, key_from, cassette, max_tokens, max_cost, price)
    plan = evaluate.plan(schedule, _overrides(pairs, seed, arms, world, source=source))
    typer.echo(_run(ctx, plan, jobs, out, resume, toxiproxy_server, source=source))


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
    summary = analysis.report(folder)
    _say_decision(summary)
    raise typer.Exit(analysis.gate(summary) if gate else 0)


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


@app.command(name="replay")
def replay_(folder: RunArg, trial: Annotated[str, typer.Argument(help="Id of a trial, or how it begins.")]) -> None:
    """Tell what happened in one trial: faults, calls, effects and verdicts, in order."""
    with TraceStore.open(folder) as store:
        record = replay.find(store, trial)
        for line in replay.lines(store.read(record.id), replay.findings(folder, record.id)):
            typer.echo(line)


for _concern in commands.CONCERNS:
    importlib.import_module(f"harness.commands.{_concern}").add(app)


# --- shared by the commands ---------------------------------------------------------------------------------------


def _overrides(
    pairs: int | None,
    seed: int | None,
    arms: str | None,
    world: str | None,
    until: str | None = None,
    source: ModelSource | None = None,
) -> Overrides:
    named = None if arms is None else tuple(name for name in (part.strip() for part in arms.split(",")) if name)
    answers = real_model.answers(source)
    return Overrides(pairs=pairs, seed=seed, arms=named, world=world, until=until, answers=answers)


def _run(
    ctx: typer.Context,
    plan: Plan,
    jobs: int | None,
    out: Path | None,
    resume: bool,
    toxiproxy_server: bool,
    calibrated: bool = False,
    source: ModelSource | None = None,
) -> Path:
    jobs = jobs or evaluate.default_jobs(plan.schedule)
    real_model.check_world(source, plan.schedule)
    executor, capped = evaluate.make_executor(plan.schedule, jobs, toxiproxy_server), None
    with evaluate.open_run(plan, jobs=jobs, out=out, resume=resume) as store:
        if store.dropped:
            typer.echo(f"{store.dropped} trials were cut off on the disk and are run again", err=True)
        ctx.obj["folder"] = store.folder
        source = real_model.begin(store, source, resume)
        if source is not None:  # only now there is a folder to count in what is spent
            from harness.live.capped import Capped  # with what the live world needs

            answering = evaluate.make_executor(plan.schedule, jobs, toxiproxy_server, source)
            executor = capped = Capped(answering)
        if calibrated:
            from harness import calibration  # itself made of evaluations, with statistics to look at them
            from harness.commands.calibrate import before_run

            told = f"no trial is sealed yet in {store.folder}; continue with the same command and --resume"
            with _stoppable(told):
                found = calibration.of_run(plan, store, jobs, progress)
            for line in before_run(found):
                typer.echo(line, err=True)
        with progress("trials", at_most=plan.until != "all_pairs") as step, _stoppable():
            outcome = evaluate.execute(plan, store, executor, step, jobs)
        if source is not None:
            typer.echo(real_model.end(store, source), err=True)
        _check_outcome(outcome, plan, store.folder, capped)
        return store.folder


def _check_outcome(outcome: RunOutcome, plan: Plan, folder: Path, capped: Capped | None) -> None:
    done = outcome.earlier + sum(outcome.sealed.values())
    if capped is not None and capped.reached:
        raise _stop(f"agentmesh: {capped.told(done, outcome.total, folder)}", commands.NOT_AS_WANTED)
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
        return analysis.score(folder, step)


def _say_decision(summary: Any) -> None:
    from harness.report.ci import standing

    decision, (confirmatory, because) = summary["decision"], standing(summary)
    if not confirmatory:
        typer.echo(f"  exploratory, this is not the registered run: {'; '.join(because)}")
    for reason in decision["reasons"]:
        typer.echo(f"  {reason}")
    typer.echo(f"kill criterion: {decision['kill_criterion']} (pairs used: {decision['pairs_used']})")


@contextmanager
def _stoppable(told: str = "") -> Iterator[None]:
    """SIGTERM ends what is under way as Ctrl-C does. told: how to go on, where the block does not say so itself."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt as error:
        raise (Interrupted(told) if told else error) from error
    finally:
        signal.signal(signal.SIGTERM, before)


def main() -> None:
    """Entry of the console script. The current folder can be imported from, for `module:name` in schedules."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        app()
    except KeyboardInterrupt:  # before a command has begun
        sys.stderr.write("agentmesh: interrupted\n")
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
