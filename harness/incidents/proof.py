"""The mutation proof: a guard is taken back to how it was before its incident, and the incident must come back.

And no other incident may: a guard whose reversion breaks everything proves nothing about itself. The matrix of all
guards and all incidents is printed and kept.
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from harness.core.errors import ConfigError
from harness.incidents import files
from harness.incidents.files import Incident
from harness.incidents.guards import GUARDS
from harness.incidents.play import Guard

Cell = Literal["caught", "silent", "quiet", "spread"]
"""caught: the guard's own incident came back, as it must. silent: it did not, so the guard is unproven. quiet: another
incident stayed away, as it must. spread: another incident came back too."""


class Row(Struct, frozen=True, kw_only=True):
    """One guard against every incident."""

    guard: str
    cells: dict[str, Cell]

    @property
    def proven(self) -> bool:
        return "caught" in self.cells.values() and not {"silent", "spread"} & set(self.cells.values())


def matrix(incidents: Sequence[Incident], guards: Sequence[Guard] = GUARDS) -> Iterator[Row]:
    """A row per guard, in the sim world. Raises ConfigError when an incident names a guard that nobody has, when one
    names none, or when an incident fails already while nothing is reverted."""
    _check(incidents, guards)
    for guard in guards:
        with reverted(guard):
            failed = {one.id: files.play(one, "mesh", "sim").played.failed for one in incidents}
        yield Row(guard=guard.name, cells={one.id: _cell(guard, one, failed[one.id]) for one in incidents})


def _check(incidents: Sequence[Incident], guards: Sequence[Guard]) -> None:
    known = {guard.name for guard in guards}
    for one in incidents:
        unknown = set(one.guards) - known
        if unknown or not one.guards:
            problem = f"names the guard {min(unknown)!r}, which nobody has" if unknown else "names no guard"
            raise ConfigError(problem, where=one.id, allowed=", ".join(sorted(known)))
        result = files.play(one, "mesh", "sim")
        if result.played.failed:
            raise ConfigError(f"fails although every guard stands: {result.played.told}", where=one.id)


def _cell(guard: Guard, incident: Incident, failed: bool) -> Cell:
    if guard.name in incident.guards:
        return "caught" if failed else "silent"
    return "spread" if failed else "quiet"


@contextmanager
def reverted(guard: Guard) -> Iterator[None]:
    """The guard as it was before its incident, for as long as the block lasts."""
    module, _, path = guard.target.partition(":")
    *outer, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for part in outer:
        owner = getattr(owner, part)
    if not hasattr(owner, name):
        raise ConfigError(f"guard {guard.name!r}: {guard.target} does not exist")
    before = owner.__dict__[name]
    setattr(owner, name, guard.reverted)
    try:
        yield
    finally:
        setattr(owner, name, before)


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """The matrix as a table: a line per guard, a column per incident."""
    incidents = list(rows[0].cells) if rows else []
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["guard", *incidents])
        out.writerows([row.guard, *(row.cells[id] for id in incidents)] for row in rows)
