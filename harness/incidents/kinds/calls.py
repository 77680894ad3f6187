"""Stories told as lists of calls: they go through the real seams and layers on the stage, as field scenarios do.

Each replay of a story must either finish (it was making progress) or be stopped (it was not).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, convert

from harness import catalogue
from harness.incidents.field import Scenario, Truth, delegation_of, runs_of
from harness.incidents.play import Played, PlayedWorld, Side
from harness.incidents.stage import Replay, replay


class _Wanted(Struct, frozen=True, kw_only=True):
    """calls_max: so many calls may be executed before a stop."""

    name: str
    must: Literal["finish", "stop"]
    delegation: dict[str, Any]
    attempts: list[dict[str, Any]]
    calls_max: int = 0


def play(story: Mapping[str, Any], side: Side, world: PlayedWorld) -> Played:
    """story: {replays: [{name, must: finish|stop, calls_max, delegation, attempts}], unit, count: calls|replays}. count
    says what is counted: executed calls, or replays that went wrong."""
    arm = catalogue.arm(side)
    wrong, calls, told, verdict = 0, 0, [], ""
    for wanted in convert(story["replays"], list[_Wanted]):
        scenario = Scenario(
            id=wanted.name,
            kind=0,
            delegation=delegation_of(wanted.delegation),
            runs=runs_of({"attempts": wanted.attempts}),
            truth=Truth(intended={}, correct={}, also={}, run=""),
        )
        got = replay(scenario, arm)
        executed = sum(said == "executed" for said in got.decisions.values())
        trouble = _trouble(wanted, scenario, got, executed)
        wrong, calls, verdict = wrong + bool(trouble), calls + executed, got.verdict
        told.append(f"{wanted.name}: {executed} calls executed, {got.verdict}{trouble and ', ' + trouble}")
    count = calls if story.get("count") == "calls" else wrong
    return Played(failed=wrong > 0, count=count, unit=story["unit"], verdict=verdict, told="; ".join(told))


def _trouble(wanted: _Wanted, scenario: Scenario, got: Replay, executed: int) -> str:
    if wanted.must == "stop":
        stopped = got.verdict == "refused-as-stalled" and executed <= wanted.calls_max
        return "" if stopped else "went nowhere and was not stopped in time"
    last = scenario.runs[-1].calls[-1].id
    return "" if got.decisions.get(last) == "executed" else "was making progress and was stopped"
