"""Incident files of our own form, and playing them: one story per file, two sides, what is expected of each.

A file says which guards must prevent its failure; `harness.incidents.proof` proves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from harness.core.errors import ConfigError, did_you_mean
from harness.incidents.field import parsed
from harness.incidents.kinds import KINDS
from harness.incidents.play import Played, PlayedWorld, Side

RestsOn = Literal["m1", "m2", "m3", "m4", "m5", "m6", "control", "preview", "verdicts"]
"""What may prevent a failure: a primitive that an arm can be without, or one of the parts that every arm has beside it,
the control plane, the verification of a running system, and the verdicts that ends are told apart by."""


class Expected(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a side must come to. count None: any; count_max: at most this much."""

    failed: bool
    count: int | None = None
    count_max: int | None = None
    unit: str = ""
    verdict: str | None = None

    def misses(self, played: Played) -> str:
        """Why `played` is not what was expected, "" when it is."""
        if played.failed is not self.failed:
            return f"{'failed' if played.failed else 'did not fail'}: {played.told}"
        if self.count is not None and played.count != self.count:
            return f"{played.count} {played.unit}, expected {self.count}"
        if self.count_max is not None and played.count > self.count_max:
            return f"{played.count} {played.unit}, expected at most {self.count_max}"
        if self.verdict is not None and played.verdict != self.verdict:
            return f"verdict {played.verdict!r}, expected {self.verdict!r}"
        return ""


class Expectations(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    naive: Expected
    mesh: Expected


class Incident(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file. guards: names of the guards that must prevent the failure; rests_on: the primitives that they belong
    to, without any of which the failure must be back. story: read by its kind alone."""

    schema: Literal["agentmesh-incident/1"]
    id: str
    title: str
    kind: str
    guards: tuple[str, ...]
    rests_on: tuple[RestsOn, ...]
    story: dict[str, Any]
    expect: Expectations
    worlds: tuple[PlayedWorld, ...] = ("sim",)
    source: str = ""


class Result(Struct, frozen=True, kw_only=True):
    """An incident on one side in one world. missed: why it is not as expected, "" when it is."""

    incident: str
    side: Side
    world: PlayedWorld
    played: Played
    missed: str


def load(path: Path) -> Incident:
    """The incident in a file. Raises ConfigError with file and key."""
    try:
        incident = msgspec.convert(parsed(path), Incident)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error), where=str(path), hint="see the incidents under schedules/incidents") from error
    if incident.kind not in KINDS:
        hint = did_you_mean(incident.kind, KINDS)
        raise ConfigError(f"unknown kind {incident.kind!r}", where=f"{path}: kind", allowed=", ".join(KINDS), hint=hint)
    return incident


def play(incident: Incident, side: Side, world: PlayedWorld, arm: str = "mesh") -> Result:
    """Play one side of an incident, the mesh's with the arm of this name. Raises ConfigError for a story that its kind
    cannot read."""
    try:
        played = KINDS[incident.kind](incident.story, side, world, arm)
    except KeyError as error:
        raise ConfigError(f"the story lacks {error}", where=incident.id) from error
    expected = incident.expect.naive if side == "naive" else incident.expect.mesh
    return Result(incident=incident.id, side=side, world=world, played=played, missed=expected.misses(played))


def play_all(incidents: tuple[Incident, ...], worlds: tuple[PlayedWorld, ...]) -> Iterator[Result]:
    """Both sides of every incident, in each of the worlds that it knows."""
    for incident in incidents:
        for world in worlds:
            if world in incident.worlds:
                for side in ("naive", "mesh"):
                    yield play(incident, side, world)  # type: ignore[arg-type]
