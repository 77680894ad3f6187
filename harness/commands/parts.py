"""`agentmesh new` and `agentmesh check`: parts of your own, from the first line to a proof that they fit."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, cast

import typer

from harness.commands import NOT_AS_WANTED


class Part(StrEnum):
    ARM = "arm"
    FAULT = "fault"
    WORKLOAD = "workload"
    METRIC = "metric"


def add(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(name="new")(new)
    app.command(name="check")(check)


def new(
    kind: Part,
    name: Annotated[str, typer.Argument(help="Its name: a-z, 0-9 and _.")],
    folder: Annotated[Path, typer.Option("--into", help="Folder to write to.")] = Path(),
) -> None:
    """Write a part that works, to be changed: its file, its test, and (a metric needs none) a schedule that uses it."""
    from harness.conformance import skeleton
    from harness.conformance.kinds import Kind

    of = cast("Kind", kind.value)
    for path in skeleton.write(of, name, folder):
        typer.echo(path)
    typer.echo(f"next, in {folder.resolve()}: agentmesh check {skeleton.reference(of, name)}", err=True)


def check(
    name: Annotated[str, typer.Argument(help="An arm, fault, workload or metric: its name, or module:name.")],
) -> None:
    """Put a part to simulated trials, and say what is wrong with it; exit 1 when something is."""
    from harness.conformance import answers, kind_of

    typer.echo(f"{kind_of(name)} {name}", err=True)
    failed = 0
    for answer in answers(name):
        failed += not answer.passed
        typer.echo(f"{'ok    ' if answer.passed else 'FAILED'}  {answer.question}")
        if answer.because:
            typer.echo(f"        {answer.because}")
        sys.stdout.flush()
    typer.echo(f"{failed} of these do not hold" if failed else "it conforms", err=True)
    raise typer.Exit(NOT_AS_WANTED if failed else 0)
