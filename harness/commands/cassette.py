"""`agentmesh cassette`: record what a real model answers in a run, play it again without a network, look at it.

Why beside `run --cassette`: who only wants the recording, or only the replay, finds both in one place with their file.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from harness.commands import NOT_AS_WANTED
from harness.core.errors import ConfigError
from harness.real_model import KEY_VARIABLE, KeyFrom, MaxCost, MaxTokens, Price

if TYPE_CHECKING:
    from harness.evaluate import Plan
    from harness.trace_store import TraceStore
    from harness.world.live.cassette import Entry
    from harness.world.live.realmodel import ModelSource

ScheduleArg = Annotated[Path, typer.Argument(help="Schedule file (YAML).")]
FileArg = Annotated[Path, typer.Argument(help="The cassette.")]
Pairs = Annotated[int | None, typer.Option(help="Pairs to run, in place of the schedule's.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed, in place of the schedule's.")]
Arms = Annotated[str | None, typer.Option(help="Arms to run, with commas between.")]
Jobs = Annotated[int | None, typer.Option(min=1, max=256, help="Trials at a time.")]
Out = Annotated[Path | None, typer.Option(help="Folder of the run.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in --out, and its recording.")]
SHOWN_CHARACTERS = 60


def add(app: typer.Typer) -> None:
    """Register the commands."""
    group = typer.Typer(no_args_is_help=True, help="Record what a real model answers, replay it, look at it.")
    app.add_typer(group, name="cassette")
    group.command()(record)
    group.command()(replay)
    group.command()(inspect)


def record(
    schedule: ScheduleArg,
    file: FileArg,
    provider_url: Annotated[str, typer.Option("--provider-url", help="Base URL of the endpoint, such as .../v1.")],
    model: Annotated[str, typer.Option("--model", help="The model to ask for.")],
    key_from: KeyFrom = KEY_VARIABLE,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    price: Price = None,
    pairs: Pairs = None,
    seed: Seed = None,
    arms: Arms = None,
    jobs: Jobs = None,
    out: Out = None,
    resume: Resume = False,
) -> None:
    """Run the trials of a schedule with a real model, and record all that it is asked and answers."""
    from harness import real_model

    source = real_model.source(
        url=provider_url,
        model=model,
        key_variable=key_from,
        cassette=file,
        max_tokens=max_tokens,
        max_cost=max_cost,
        price=price,
    )
    assert source is not None
    _run(_plan(schedule, source, pairs, seed, arms), source, jobs, out, resume)


def replay(
    schedule: ScheduleArg,
    file: FileArg,
    pairs: Pairs = None,
    seed: Seed = None,
    arms: Arms = None,
    jobs: Jobs = None,
    out: Out = None,
) -> None:
    """Run the trials of a schedule again with the answers of a cassette; nothing goes out.

    It needs the --pairs and --arms of the recording. Answers take as long as they took.

    Exit code 1: an answer was missing, and the trial that needed it is invalid; or recorded answers to the trials that
    were run were never asked for, so that it was not the same run.
    """
    import asyncio

    from harness import real_model
    from harness.trace_store import TraceStore
    from harness.world.live.cassette import Tape
    from harness.world.live.played import never_asked

    source = real_model.replayed(file)
    plan = _plan(schedule, source, pairs, seed, arms)
    with TemporaryDirectory(prefix="agentmesh-replay-") as folder:
        asked = Path(folder) / "asked"
        playing = replace(source, asked=str(asked), time_scale=plan.schedule.time_scale)
        invalid, run = _run(plan, playing, jobs, out, False)
        with TraceStore.open(run) as store:
            trials = asyncio.run(_stops(plan, store))
        unasked, recorded = never_asked(Tape(file), asked, trials)
    said = f"{unasked} of {recorded} recorded answers to these trials were never asked for"
    typer.echo(f"{said}: this was not the same run" if unasked else said, err=True)
    raise typer.Exit(NOT_AS_WANTED if invalid or unasked else 0)


def inspect(
    file: FileArg,
    trial: Annotated[str, typer.Option("--trial", help="Show the entries of the trial whose id begins so.")] = "",
    bodies: Annotated[bool, typer.Option("--bodies", help="Print the whole answers too.")] = False,
) -> None:
    """Say what a cassette holds, and whether all of it can be read.

    Exit code 1: some of it is damaged. Exit code 2: it is no cassette that this program reads.
    """
    from harness.world.live.cassette import Tape

    tape = Tape(file)
    trials, statuses = set[str](), Counter[str]()
    for entry in tape.entries():
        trials.add(entry.trial)
        statuses[str(entry.status) if entry.status else entry.ended] += 1
    typer.echo(f"{tape.header.cassette}: {tape.header.model} at {tape.header.host}")
    told = ", ".join(f"{count} times {status}" for status, count in sorted(statuses.items()))
    typer.echo(f"{len(tape)} answers to {len(trials)} trials{': ' + told if told else ''}")
    if trial and not any(one.startswith(trial) for one in trials):
        raise ConfigError(f"no trial of the cassette begins with {trial!r}", where=str(file))
    for entry in tape.entries() if trial else ():
        if entry.trial.startswith(trial):
            typer.echo(_line(entry))
            if bodies:
                typer.echo(entry.body)
    if tape.damaged_bytes:
        typer.echo(f"{tape.damaged_bytes} bytes are damaged and were skipped", err=True)
        raise typer.Exit(NOT_AS_WANTED)


def _line(entry: Entry) -> str:
    said = entry.body.replace("\n", " ")
    shown = said if len(said) <= SHOWN_CHARACTERS else said[:SHOWN_CHARACTERS] + "..."
    return f"{entry.key[:12]}.{entry.nth}  {entry.status} {entry.ended}  {entry.took_ms:g} ms  {entry.site}  {shown}"


def _plan(schedule: Path, source: ModelSource, pairs: int | None, seed: int | None, arms: str | None) -> Plan:
    from harness import evaluate, real_model

    named = None if arms is None else tuple(name for name in (part.strip() for part in arms.split(",")) if name)
    changed = evaluate.Overrides(pairs=pairs, seed=seed, arms=named, answers=real_model.answers(source))
    plan = evaluate.plan(schedule, changed)
    real_model.check_world(source, plan.schedule)
    return plan


async def _stops(plan: Plan, store: TraceStore) -> dict[str, str | None]:
    """Of every trial in a store the completion that reached a limit, None where none did."""
    from harness.trial import Meter

    limits = {spec.id: spec.limits for spec in plan.specs}
    stops: dict[str, str | None] = {}
    for sealed in store.iter():
        trial, meter = sealed.record.id, Meter(limits[sealed.record.id])
        stops[trial] = None
        for event in sealed.truth:
            meter.hear(event.kind, event.data)
            if event.kind == "billed" and meter.over.done():
                stops[trial] = str(event.data["completion"])
                break
    return stops


def _run(plan: Plan, source: ModelSource, jobs: int | None, out: Path | None, resume: bool) -> tuple[int, Path]:
    """Run and seal the trials; how many of them are invalid, and the folder, which is the last line on stdout."""
    from harness import evaluate, real_model
    from harness.console import progress
    from harness.live.capped import Capped

    jobs = jobs or evaluate.default_jobs(plan.schedule)
    with evaluate.open_run(plan, jobs=jobs, out=out, resume=resume) as store:
        ready = real_model.begin(store, source, resume)
        executor = Capped(evaluate.make_executor(plan.schedule, jobs, model=ready))
        with progress("trials", at_most=plan.until != "all_pairs") as step:
            outcome = evaluate.execute(plan, store, executor, step, jobs)
        typer.echo(real_model.end(store, ready), err=True)
        done = outcome.earlier + sum(outcome.sealed.values())
        if executor.reached:
            typer.echo(f"agentmesh: {executor.told(done, outcome.total, store.folder)}", err=True)
            raise typer.Exit(NOT_AS_WANTED)
        if not outcome.complete:
            raise KeyboardInterrupt(f"{done} of {outcome.total} trials are sealed in {store.folder}")
        typer.echo(store.folder)
        return outcome.sealed.get("invalid", 0), store.folder
