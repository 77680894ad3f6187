"""Commands about a finished run: bundle, verify, compare, replicate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.commands import NOT_AS_WANTED

if TYPE_CHECKING:
    from harness.replication.checks import Problem

OTHER_CODE = "installed "
"""With it begins what `harness.replication.checks` says of the harness at hand."""

SourceArg = Annotated[Path, typer.Argument(help="Folder of a run, or a bundle.")]


def add(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(bundle)
    app.command()(verify)
    app.command()(compare)
    app.command()(replicate)


def bundle(
    folder: Annotated[Path, typer.Argument(help="Folder of a run: results/<schedule>/<run>.")],
    out: Annotated[Path | None, typer.Option(help="The archive; by default beside the folder.")] = None,
) -> None:
    """Make one archive of a finished run: sealed trials, results, registration, code, digests. Checks it first."""
    from harness.replication.bundle import bundle as make

    made = make(folder, out)
    for name in made.left_out:
        typer.echo(f"left out, no part of a run: {name}", err=True)
    for note in made.notes:
        typer.echo(note, err=True)
    typer.echo(f"{made.files} files, {made.size_bytes} bytes")
    typer.echo(f"sha256 {made.sha256} of the archive")
    typer.echo(f"sha256 {made.digests_sha256} of digests.json in it")
    typer.echo(made.path)


def verify(
    source: SourceArg,
    quick: Annotated[bool, typer.Option("--quick", help="Digests only; make no derived file again.")] = False,
) -> None:
    """Recompute all digests and every derived file, and say what differs; exit 1 when anything does."""
    from harness.console import progress
    from harness.replication.checks import check

    with progress("trials judged again") as step:
        found = check(source, quick=quick, step=step)
    for line in _folded(found.problems, source):
        typer.echo(f"agentmesh: {line}", err=True)
    for note in found.notes:
        typer.echo(note, err=True)
    if found.problems:
        raise typer.Exit(NOT_AS_WANTED)
    again = f"; {found.remade} derived files come out the same, byte for byte" if found.remade else ""
    typer.echo(f"{found.trials} trials are as they were sealed{again}")


def _folded(problems: Sequence[Problem], source: Path) -> Iterator[str]:
    """One line per problem, and one for all files in which the code at hand is not the bundle's, since what to do about
    them is one thing."""
    from harness.replication import layout

    other = [problem for problem in problems if problem.file.startswith(OTHER_CODE)]
    if other:
        unzip = "" if source.is_dir() else f"unzip {source} -d checked && "
        place = f"{source if source.is_dir() else 'checked'}/{layout.SOURCE}"
        yield (
            f"the code at hand is not the bundle's, it differs in {len(other)} files, and what it makes again "
            f"may differ for that alone. Let the bundle's own code verify it: {unzip}cd {place} && make setup && "
            ".venv/bin/agentmesh verify .."
        )
    yield from (str(problem) for problem in problems if problem not in other)


def compare(
    first: SourceArg,
    second: SourceArg,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for a script.")] = False,
) -> None:
    """Lay two runs side by side: what was changed, and which numbers differ by more than noise."""
    from harness.core.pretty import pretty
    from harness.replication.compare import compare as lay
    from harness.replication.compare import told

    found = lay(first, second)
    if as_json:
        typer.echo(pretty(found).decode(), nl=False)
        return
    for line in told(found):
        typer.echo(line)


def replicate(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(help="A bundle.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the new run, in place of results/<schedule>/<run>.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, max=256, help="Trials at a time.")] = None,
) -> None:
    """Do the run of a bundle again: REPLICATED (exit 0), NOT_REPLICATED (1) or DIFFERENT_ENVIRONMENT (4)."""
    from harness.replication.replicate import EXIT
    from harness.replication.replicate import replicate as again

    result, folder = again(source, lambda plan, calibration: _run(ctx, plan, calibration, jobs, out))
    tests = [test.because for test in result.equivalence]
    for line in dict.fromkeys((*result.environment, *tests, *result.differences)):
        typer.echo(f"  {line}")
    typer.echo(f"{result.verdict}: {result.because}")
    typer.echo(folder)
    raise typer.Exit(EXIT[result.verdict])


def _run(ctx: typer.Context, plan: Any, calibration: bytes | None, jobs: int | None, out: Path | None) -> Path:
    """Run, judge and report, as `eval` does; the calibration is the one of the bundle."""
    from harness import analysis, evaluate, segment
    from harness.console import progress

    jobs = jobs or evaluate.default_jobs(plan.schedule)
    executor = evaluate.make_executor(plan.schedule, jobs)
    with evaluate.open_run(plan, jobs=jobs, out=out) as store:
        if isinstance(ctx.obj, dict):
            ctx.obj["folder"] = store.folder
        if calibration is not None:  # before the run ends, so that its digest is among those of the run
            with segment.disk(store.folder):
                (store.folder / "calibration.json").write_bytes(calibration)
        with progress("trials") as step:
            outcome = evaluate.execute(plan, store, executor, step, jobs)
        folder = store.folder
    if not outcome.complete:
        raise KeyboardInterrupt(f"the second run in {folder} has not ended, and nothing is compared")
    with progress("trials judged") as step:
        analysis.score(folder, step)
    analysis.report(folder)
    return folder
