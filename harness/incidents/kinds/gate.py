"""Stories about an enforcement layer: calls that are right or wrong, and what the gates make of them.

The naive side has the gates as the platform had them before the incident, in the same layer; the mesh side has its own,
and is offered the former one at its start where a story says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from arms.mesh.gates import GATES
from arms.mesh.gates.base import Gate
from arms.mesh.gates.corpus import DELEGATION, Crossing, call_of
from arms.mesh.gates.former import FORMER
from arms.mesh.m2_exoneration import Gates, boot_check
from harness.core.errors import ConfigError, did_you_mean
from harness.core.seams import Crossings
from harness.core.types import (
    Commit,
    Delegation,
    DelegationOutcome,
    EffectCall,
    EffectContract,
    Err,
    ModelCall,
    Ok,
    Outcome,
    Refused,
    ToolCall,
)
from harness.incidents.field import filled
from harness.incidents.layerbench import Outside, Process, on_virtual_time
from harness.incidents.play import Played, PlayedWorld, Side, read
from harness.orchestrator.store import SqliteStore

PLACE = "$it"


class Turn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call, what the world answers it (`answer`, `error`), and what is right to do with it."""

    call: Crossing
    right: Literal["executed", "refused"] = "executed"


class Story(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """former: names of the gates of the naive side. candidate: one of them that is offered to the mesh at its start.
    each: values of `$it`, each played in a delegation of its own. turns_max: the turns are gone through again and again
    until the last of them is executed, at most so many; 0: once, and every wrong decision counts."""

    unit: str
    contract: EffectContract
    turns: list[dict[str, Any]]
    former: tuple[str, ...]
    candidate: str = ""
    phases: tuple[str, ...] = ("implementation",)
    each: tuple[str, ...] = ("",)
    turns_max: int = 0


class _World(Outside):
    """Answers as the story says."""

    def __init__(self) -> None:
        super().__init__()
        self.told = Crossing()

    async def tool(self, call: ToolCall) -> Outcome:
        if self.told.error:
            return Err(code=self.told.error, definite=not self.told.lost)
        return Ok(value=self.told.answer, receipt=self.told.receipt)


class _Told(Struct):
    """What came of a story so far. reached: the last of its turns was executed."""

    wrong: int = 0
    turns: int = 0
    reached: bool = False
    verdict: str = ""
    because: str = ""


def play(story: Mapping[str, Any], side: Side, world: PlayedWorld) -> Played:
    """See `Story`. count: turns where `turns_max` is given, else wrong decisions. Raises ConfigError for a story that
    cannot be read."""
    said: Story = read(story, Story)
    turns: list[list[Turn]] = [read(filled(said.turns, PLACE, it), list[Turn]) for it in said.each]
    gates, started = _gates(said, side)
    told = _Told()
    for one in turns:
        _play_one(said, one, gates, told)
    if said.turns_max:
        failed, count = not told.reached, told.turns
    else:
        failed, count = told.wrong > 0, told.wrong
    line = "; ".join(filter(None, (started, told.because, f"{count} {said.unit}")))
    return Played(failed=failed, count=count, unit=said.unit, verdict=told.verdict, told=line)


def _gates(story: Story, side: Side) -> tuple[tuple[Gate, ...], str]:
    """The gates of a side, and what was said when they were put to their proof."""
    for name in (*story.former, *filter(None, (story.candidate,))):
        if name not in FORMER:
            problem = f"there is no former gate {name!r}"
            raise ConfigError(problem, where="story", allowed=", ".join(FORMER), hint=did_you_mean(name, FORMER))
    if side == "naive":
        return tuple(FORMER[name] for name in story.former), ""
    if not story.candidate:
        return GATES, ""
    offered = tuple(FORMER[gate.name] if gate.name == story.candidate else gate for gate in GATES)
    try:
        boot_check((FORMER[story.candidate],))
    except ConfigError as error:
        return GATES, f"refused to start: {error}"
    return offered, "started with the offered gate"


def _play_one(story: Story, turns: list[Turn], gates: tuple[Gate, ...], told: _Told) -> None:
    """One delegation, on layers of its own."""
    outside = _World()
    delegation = Delegation(id=DELEGATION, tenant="t", goal="g", phases=story.phases, contract=story.contract)

    async def work(crossings: Crossings) -> DelegationOutcome:
        rounds = max(1, -(-story.turns_max // len(turns)))
        for number, turn in enumerate(turns * rounds):
            if story.turns_max and number >= story.turns_max:
                break
            outside.told = turn.call
            outcome = await _cross(crossings, call_of(turn.call, f"c{number}"))
            told.turns += 1
            executed = not isinstance(outcome, Refused)
            if isinstance(outcome, Refused):
                told.verdict, told.because = outcome.verdict.value, outcome.because
            told.wrong += executed is not (turn.right == "executed")
            told.reached = executed and turn is turns[-1]
            if story.turns_max and told.reached:
                break
        return DelegationOutcome(status="done")

    store = SqliteStore(":memory:")
    try:
        process = Process(store, delegation, lambda ctx: (Gates(ctx, gates=gates, waivers=()),), outside)
        on_virtual_time(process.attempt(work))
    finally:
        store.close()


async def _cross(crossings: Crossings, call: ModelCall | ToolCall | EffectCall | Commit) -> Outcome:
    if isinstance(call, ToolCall):
        return await crossings.tool(call)
    if isinstance(call, EffectCall):
        return await crossings.effect(call)
    if isinstance(call, Commit):
        return await crossings.commit(call)
    raise ConfigError("a story of kind gate has no model turns", where="story")
