"""Known failures as a regression: `incidents`, `mutants`, and `admit` for declarations that prevent some of them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from harness import catalogue
from harness.commands import NOT_AS_WANTED
from harness.core.errors import ConfigError

IncidentFolder = Annotated[Path, typer.Argument(help="Folder or file of incidents.")]
WORLDS: dict[str, tuple[Any, ...]] = {"sim": ("sim",), "live": ("live",), "both": ("sim", "live")}
Tables = Annotated[Path, typer.Option("--out", help="Folder for the tables.")]


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
    raise typer.Exit(NOT_AS_WANTED if failed else 0)


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
    raise typer.Exit(NOT_AS_WANTED if unproven or lame else 0)


def _kept(rows: Iterator[Any], kept: list[Any]) -> Iterator[Any]:
    for row in rows:
        kept.append(row)
        yield row


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
        raise typer.Exit(2)
    for one in admitted.compiled.delegations:
        typer.echo(f"{one.id}\tneeds {', '.join(one.needs) or 'nothing'}; phases {', '.join(one.phases)}")
    typer.echo(f"admitted, sha256 {admitted.compiled.digest}")


def add(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(name="incidents")(incidents_)
    app.command()(mutants)
    app.command()(admit)
