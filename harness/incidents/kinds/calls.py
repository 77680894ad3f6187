"""Stories told as lists of calls: they go through the real seams and layers on the stage, as field scenarios do.

Each replay of a story must either finish (it was making progress) or be stopped (it was not).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from harness import catalogue
from harness.incidents.field import Scenario, Truth, delegation_of, runs_of
from harness.incidents.play import Played, PlayedWorld, Side, read
from harness.incidents.stage import Replay, replay


class Wanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A replay and what it must come to. calls_max: so many calls may be executed before a stop."""

    name: str
    must: Literal["finish", "stop"]
    delegation: dict[str, Any]
    attempts: list[dict[str, Any]]
    calls_max: int = 0


class Story(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """count: what is counted, executed calls or replays that went wrong."""

    replays: tuple[Wanted, ...]
    unit: str
    count: Literal["calls", "replays"] = "replays"


def play(story: Mapping[str, Any], side: Side, world: PlayedWorld, arm: str = "mesh") -> Played:
    """Replay each list of calls with the arm of one side. Raises ConfigError for a story that cannot be read."""
    said: Story = read(story, Story)
    played_on = catalogue.arm(arm if side == "mesh" else side)
    wrong, calls, told, verdict = 0, 0, [], ""
    for wanted in said.replays:
        scenario = Scenario(
            id=wanted.name,
            delegation=delegation_of(wanted.delegation),
            runs=runs_of({"attempts": wanted.attempts}),
            truth=Truth(),
        )
        got = replay(scenario, played_on)
        executed = sum(said == "executed" for said in got.decisions.values())
        trouble = _trouble(wanted, scenario, got, executed)
        wrong, calls, verdict = wrong + bool(trouble), calls + executed, got.verdict
        told.append(f"{wanted.name}: {executed} calls executed, {got.verdict}{trouble and ', ' + trouble}")
    count = calls if said.count == "calls" else wrong
    return Played(failed=wrong > 0, count=count, unit=said.unit, verdict=verdict, told="; ".join(told))


def _trouble(wanted: Wanted, scenario: Scenario, got: Replay, executed: int) -> str:
    if wanted.must == "stop":
        stopped = got.verdict == "refused-as-stalled" and executed <= wanted.calls_max
        return "" if stopped else "went nowhere and was not stopped in time"
    last = scenario.runs[-1].calls[-1].id
    return "" if got.decisions.get(last) == "executed" else "was making progress and was stopped"
