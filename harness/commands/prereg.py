"""`agentmesh prereg`: seal a registration, check it against what is there now, explain it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.commands import NOT_AS_WANTED
from harness.core.errors import ConfigError

if TYPE_CHECKING:
    from harness.report.prereg import Prereg
    from harness.schedule import Schedule


FileArg = Annotated[Path, typer.Argument(help="Registration (YAML): schedules/prereg/<name>.yaml.")]


def add(app: typer.Typer) -> None:
    """Register the commands."""
    prereg = typer.Typer(no_args_is_help=True, help="Registrations of decisions: seal, check, explain.")
    prereg.command()(seal)
    prereg.command()(check)
    prereg.command()(explain)
    app.add_typer(prereg, name="prereg")


def seal(
    file: FileArg,
    schedule: Annotated[Path, typer.Option("--schedule", help="Schedule that the registration decides.")],
    again: Annotated[bool, typer.Option("--again", help="Replace a seal; the old one is noted.")] = False,
    results: Annotated[Path, typer.Option(help="Folder in which runs of the same seed are looked for.")] = Path(
        "results"
    ),
) -> None:
    """Write into a registration the digests of everything that the decision depends on."""
    from harness import status
    from harness.core import strict_yaml
    from harness.core.clock import wall_iso
    from harness.report.prereg.form import V2, Digests
    from harness.report.prereg.write import resealed, with_seal

    text = strict_yaml.text_of(file, regular=True)
    held = _registration(file)
    if held.stopping is None:
        raise ConfigError(f"{held.schema} cannot be sealed", where=str(file), allowed=V2)
    if held.sealed and not again:
        hint = "`agentmesh prereg check` compares it; --again replaces it and notes the old one"
        raise ConfigError(f"it was sealed at {held.sealed.at}", where=str(file), hint=hint)
    decided = _schedule(schedule)
    for problem in _reasons_against(held, file, decided, schedule, results):
        raise problem
    now = status.look_at(held, file, decided)
    if now.absent:
        raise ConfigError(f"cannot be sealed: {'; '.join(now.absent.values())}", where=str(file))
    sealed = resealed(held, wall_iso(), Digests(**now.digests))
    written = with_seal(text, sealed, str(file))
    _replace(status.files_beside(file), status.SealedFiles.text(now.files))
    _replace(file, written)
    count = sum(len(files) for files in now.files.values())
    typer.echo(f"{file}: sealed at {sealed.at}; {count} source files in {status.files_beside(file)}")
    typer.echo(f"sha256 {_registration(file).sha256}")
    for sentence in now.other_packages:
        typer.echo(f"agentmesh: here a run would be exploratory: {sentence}", err=True)


def check(
    file: FileArg,
    schedule: Annotated[Path | None, typer.Option("--schedule", help="Schedule that the registration decides.")] = None,
) -> None:
    """Compare a sealed registration with what is there now; exit 1 when anything differs."""
    from harness import status

    held = _registration(file)
    decided = None if schedule is None else _schedule(schedule)
    if decided is not None and schedule is not None:
        for problem in _fits(held, file, decided, schedule):
            raise problem
    now = status.look_at(held, file, decided)
    compared = status.compare(held, now, status.sealed_files(file))
    for one in compared:
        typer.echo(f"{one.name}\t{'same' if one.same else 'differs' if one.now else 'not compared'}")
        if one.because:
            typer.echo(f"  {one.because}")
        for line in one.files:
            typer.echo(f"  {line}")
        if one.now and not one.same and one.name in now.files and not one.files:
            typer.echo(f"  {status.files_beside(file)} is missing or of another seal, so that files cannot be named")
    differing = [one.name for one in compared if one.now and not one.same]
    for sentence in now.other_packages:
        typer.echo(f"packages\t{sentence}")
    if differing or now.other_packages:
        typer.echo("a run here and now would be exploratory")
        raise typer.Exit(NOT_AS_WANTED)
    typer.echo(f"as sealed at {held.sealed.at if held.sealed else ''}, sha256 {held.sha256}")


def explain(file: FileArg) -> None:
    """Say in plain words what is claimed, how it is decided, what it takes, and what is bound."""
    from harness.report.prereg.explain import explain as lines

    for line in lines(_registration(file)):
        typer.echo(line)


def _registration(file: Path) -> Prereg:
    from harness.report.prereg import load_prereg

    return load_prereg(file)


def _schedule(path: Path) -> Schedule:
    """The schedule as its file says."""
    from harness import catalogue, schedule_file

    draft = schedule_file.read(path)
    return schedule_file.resolve(draft, schedule_file.Names.of(catalogue.load(draft.foreign())))


def _fits(held: Prereg, file: Path, decided: Schedule, source: Path) -> Iterator[ConfigError]:
    """Why the registration cannot decide this schedule."""
    from harness import schedule_file, seeds, status

    named = schedule_file.registration(decided, source)
    if named is None or named.resolve() != file.resolve():
        problem = f"the schedule names {decided.preregistration or 'no registration'!r}, not {file}"
        yield ConfigError(problem, where=str(source), allowed=f"preregistration: {file}")
    if found := status.disagreements(held, decided):
        problem = f"the schedule does not fit {file}: {'; '.join(found)}"
        yield ConfigError(problem, where=str(source), hint="make the two agree before anything runs")
    if decided.seed in (used := seeds.used_seeds(file)):
        hint = "take a seed that nobody has seen the outcome of"
        yield ConfigError(f"seed {decided.seed} was used before: {used[decided.seed]}", where=str(source), hint=hint)


def _reasons_against(held: Prereg, file: Path, decided: Schedule, source: Path, results: Path) -> Iterator[ConfigError]:
    from harness import seal as digests
    from harness import seeds

    if not file.with_name(seeds.USED_SEEDS).is_file():
        hint = "write one, empty if no seed was ever used"
        yield ConfigError(f"there is no {seeds.USED_SEEDS} beside it", where=str(file), hint=hint)
    yield from _fits(held, file, decided, source)
    if foreign := digests.foreign_code(decided):
        yield ConfigError(f"no digest binds code of others: {', '.join(foreign)}", where=str(source))
    if runs := seeds.runs_with_seed(decided.seed, [results]):
        hint = "its outcome may have been seen; take a fresh seed"
        named = ", ".join(f"{run.where} (released)" if run.released else run.where for run in runs)
        yield ConfigError(f"seed {decided.seed} was run already: {named}", where=str(source), hint=hint)


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    draft = path.with_name(path.name + ".new")
    try:
        draft.write_text(text, encoding="utf-8", newline="")
        draft.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write the file: {error.strerror}", where=str(path)) from error
