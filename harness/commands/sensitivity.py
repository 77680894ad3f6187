"""`agentmesh sensitivity`: which level of variation defeats which ledger."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Annotated

import typer

from harness.core.errors import ConfigError

LEVELS = (0, 1, 2, 3, 4, 5)


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command(name="sensitivity")(sensitivity)


def sensitivity(
    folder: Annotated[Path, typer.Argument(help="Folder for table and figure.")] = Path("results/sensitivity"),
    pairs: Annotated[int | None, typer.Option(min=1, help="Pairs per level and workload.")] = None,
    workloads: Annotated[str, typer.Option(help="Workloads, with commas between; left out: all.")] = "",
    levels: Annotated[str, typer.Option(help="Levels, as 0,3 or L0,L3.")] = ",".join(map(str, LEVELS)),
    jobs: Annotated[int | None, typer.Option(min=1, max=256, help="Trials at a time.")] = None,
) -> None:
    """Run ledgers of three kinds at every level of variation, in the sim world, and draw what each level costs them."""
    from harness import catalogue, segment
    from harness.console import progress
    from harness.sensitivity import cells, defeated, planned
    from harness.sensitivity.figure import figure
    from harness.sensitivity.runs import rows

    names = _listed(workloads) or list(catalogue.load().workloads)
    specs = planned(names, _levels(levels), pairs)
    with progress("trials") as step:
        found = cells(specs, jobs or os.cpu_count() or 1, step)
    with segment.disk(folder, "make room, or name another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        lines = list(rows(found))
        with (folder / "sensitivity.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
        drawn = figure(found)
        drawn.savefig(folder / "sensitivity.svg", metadata={"Date": None, "Creator": None})
        drawn.savefig(folder / "sensitivity.png", dpi=200, metadata={"Software": None})
    for sentence in defeated(found):
        typer.echo(sentence)
    typer.echo(folder)


def _listed(text: str) -> list[str]:
    return [part for part in (name.strip() for name in text.split(",")) if part]


def _levels(text: str) -> list[int]:
    given = [one.removeprefix("L").removeprefix("l") for one in _listed(text)]
    if not given or any(one not in map(str, LEVELS) for one in given):
        raise ConfigError(f"--levels is {text!r}", allowed="0 to 5, or L0 to L5, with commas between")
    return sorted({int(one) for one in given})
