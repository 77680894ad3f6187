"""The proof of incidents: what prevents one is taken away, and the incident must come back.

Twice: a guard is taken back to how it was before its incident, and an arm is left without a whole primitive. No other
incident may come back: a guard whose reversion breaks everything proves nothing about itself, and an incident that
fails without a primitive that it does not name rests on something else than it says.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from msgspec import Struct

from harness.core.errors import ConfigError
from harness.incidents import files, tables
from harness.incidents.files import Incident, RestsOn
from harness.incidents.guards import GUARDS
from harness.incidents.play import Guard

Cell = Literal["caught", "silent", "quiet", "spread", "apart"]
"""caught: the own incident of what was taken away came back, as it must. silent: it did not, so nothing is proven.
quiet: another incident stayed away, as it must. spread: another incident came back too. apart: not played, since no
layer of any arm takes part in it."""

Lacking = Literal["bare", "mesh_without_m1", "mesh_without_m2", "mesh_without_m3", "mesh_without_m4",
                  "mesh_without_m5", "mesh_without_m6"]  # fmt: skip

LACKS: dict[Lacking, frozenset[RestsOn]] = {
    "bare": frozenset({"m1", "m2", "m3", "m4", "m5", "m6"}),
    "mesh_without_m1": frozenset({"m1"}),
    "mesh_without_m2": frozenset({"m2"}),
    "mesh_without_m3": frozenset({"m3"}),
    "mesh_without_m4": frozenset({"m4"}),
    "mesh_without_m5": frozenset({"m5"}),
    "mesh_without_m6": frozenset({"m6"}),
}
"""The arms that stand in for the mesh, and the primitives that they lack."""

APART: dict[RestsOn, str] = {
    "control": "the control plane decides before a trial begins, and no layer calls it",
    "preview": "a running system is verified beside a trial, and no layer takes part",
    "verdicts": "the words for ends belong to the rounds that M1 and M4 share, so no arm lacks them alone",
}
"""What no arm can be without, and why: proven by its guards alone."""


class Row(Struct, frozen=True, kw_only=True):
    """What was taken away, a guard or (by the name of the arm that is left) a primitive, against every incident."""

    name: str
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
        cells = {one.id: _cell(guard.name in one.guards, failed[one.id]) for one in incidents}
        yield Row(name=guard.name, cells=cells)


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


def _cell(own: bool, failed: bool) -> Cell:
    if own:
        return "caught" if failed else "silent"
    return "spread" if failed else "quiet"


def primitives(incidents: Sequence[Incident]) -> Iterator[Row]:
    """A row per arm that lacks something, in the sim world. Raises ConfigError when an incident says of nothing that it
    rests on it."""
    for one in incidents:
        if not one.rests_on:
            raise ConfigError("rests on nothing", where=one.id, allowed=", ".join(get_args(RestsOn)))
    for arm, lacks in LACKS.items():
        cells: dict[str, Cell] = {}
        for one in incidents:
            if is_apart(one):
                cells[one.id] = "apart"
            else:
                failed = files.play(one, "mesh", "sim", arm).played.failed
                cells[one.id] = _cell(bool(lacks & set(one.rests_on)), failed)
        yield Row(name=arm, cells=cells)


def is_apart(incident: Incident) -> bool:
    """Whether nothing that it rests on can be left out of an arm."""
    return set(incident.rests_on) <= APART.keys()


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


def write_csv(path: Path, rows: Sequence[Row], first: str = "guard") -> None:
    """The matrix as a table: a line per thing that was taken away, a column per incident. first: head of the names."""
    incidents = list(rows[0].cells) if rows else []
    tables.write(path, [first, *incidents], ([row.name, *(row.cells[id] for id in incidents)] for row in rows))
