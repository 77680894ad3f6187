"""What every kind of story shares: how a story is read, what playing it gives, and what a guard is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from harness.core.errors import ConfigError

Side = Literal["naive", "mesh"]
PlayedWorld = Literal["sim", "live"]


class Played(Struct, frozen=True, kw_only=True):
    """How a story went on one side.

    failed: the failure of the incident showed itself. count: how often, or how much of it, in `unit`. verdict: what the
    arm said, "" for nothing. told: one line for a person. facts: further numbers, for the report.
    """

    failed: bool
    count: int
    unit: str
    verdict: str = ""
    told: str = ""
    facts: dict[str, Any] = {}


class Play(Protocol):
    """A kind of story: (story as it stands in the file, which side, which world) to how it went. arm: name of the arm
    that plays the mesh's side, which a proof replaces by one that lacks something. Raises ConfigError for a story that
    it cannot read."""

    def __call__(self, story: Mapping[str, Any], side: Side, world: PlayedWorld, arm: str = "mesh") -> Played: ...


def without_end(unit: str) -> str:
    """The unit of a count that says where a story was cut, so that nobody takes what it was given for a finding."""
    return f"{unit} (cut there, without an end)"


def read(story: Any, wanted: Any) -> Any:
    """A story, or a part of one, as the type that its kind reads. Raises ConfigError for one that does not fit."""
    try:
        return msgspec.convert(story, wanted)
    except msgspec.ValidationError as error:
        hint = "see the incidents of its kind under schedules/incidents"
        raise ConfigError(f"the story cannot be read: {error}", where="story", hint=hint) from error


class Guard(Struct, frozen=True, kw_only=True):
    """A decision of a primitive that prevents a failure, and its mutation.

    target: `module:name` of the function or method that decides, as its caller looks it up. reverted: what stands there
    when the guard is taken back to how it was before the incident. incidents: ids of those that it must prevent.
    """

    name: str
    primitive: str
    target: str
    reverted: Any
    incidents: tuple[str, ...]
    about: str
