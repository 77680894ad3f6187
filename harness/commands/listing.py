"""`agentmesh list`: what a schedule may name, in the words of each part itself."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, get_args, get_type_hints

import typer

if TYPE_CHECKING:
    from harness.catalogue import Catalogue

WIDTH = 100
INDENT = " " * 4
NONE = "-"


class Kind(StrEnum):
    ARMS = "arms"
    FAULTS = "faults"
    WORKLOADS = "workloads"
    METRICS = "metrics"


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command(name="list")(list_)


def list_(kind: Kind) -> None:
    """Print what there is: each by its name, and what it is."""
    from harness import catalogue

    listed = {Kind.ARMS: arms, Kind.FAULTS: faults, Kind.WORKLOADS: workloads, Kind.METRICS: metrics}[kind]
    for line in listed(catalogue.load()):
        typer.echo(line)


def arms(entries: Catalogue) -> Iterator[str]:
    """A line for each: name, tab, what it is."""
    yield from (f"{name}\t{arm.about}" for name, arm in entries.arms.items())


def metrics(entries: Catalogue) -> Iterator[str]:
    """A line for each: name, tab, what it is, its unit and which way is better."""
    from harness.metrics import METRICS

    yield from (f"{name}\t{m.about} [{m.unit}; better: {m.better}]" for name, m in METRICS.items())


def faults(entries: Catalogue) -> Iterator[str]:
    """Name and code of each, then what happens, and its variants."""
    for name, fault in entries.faults.items():
        yield f"{name}  {fault.code}"
        yield from _told(getattr(fault, "about", ""))
        yield from _told(f"variants: {', '.join(fault.variants)}")
        if further := getattr(fault, "further", ()):
            yield from _told(f"further variants, only where a schedule names them: {', '.join(further)}")


def workloads(entries: Catalogue) -> Iterator[str]:
    """A table: intended effects by boundary, worlds and levels of variation, and below each row what is asked.

    Worlds and levels are those that a schedule may name: whatever is in the catalogue answers in each of them.
    """
    from harness.console import aligned
    from harness.core.types import BOUNDARIES
    from harness.schedule import Schedule, World

    levels = get_args(get_type_hints(Schedule)["variation"])
    everywhere = (", ".join(get_args(World)), f"L{min(levels)}-L{max(levels)}")
    rows: list[tuple[str, ...]] = [("workload", *BOUNDARIES, "worlds", "levels")]
    for name, one in entries.workloads.items():
        rows.append((name, *(str(one.intended.get(boundary, NONE)) for boundary in BOUNDARIES), *everywhere))
    head, *table = aligned(rows)
    yield head
    for line, one in zip(table, entries.workloads.values(), strict=True):
        yield line
        yield from _told(one.about)


def _told(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False)
