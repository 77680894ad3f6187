"""Stories about an enforcement layer: calls that are right or wrong, and what the gates make of them.

The naive side has the gates as the platform had them before the incident, in the same layer. The mesh side is the whole
onion of its arm; where a story says so, a former gate is offered to the arm's own boot check, and an arm that has none,
or whose check lets the gate pass, has to work with it. An arm without gates refuses nothing, so any other story has
calls that must be refused, or a commit that must not go on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

from msgspec import Struct

from arms.mesh.gates.base import Gate
from arms.mesh.gates.corpus import DELEGATION, Crossing, call_of
from arms.mesh.gates.former import FORMER
from arms.mesh.m2_exoneration import Gates
from harness import catalogue
from harness.core.errors import ConfigError, did_you_mean
from harness.core.roles import Arm, ArmContext
from harness.core.seams import Crossings, Layer
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
from harness.incidents.layerbench import Made, Outside, Process, on_virtual_time
from harness.incidents.play import Played, PlayedWorld, Side, read, without_end
from harness.orchestrator.store import SqliteStore

PLACE = "$it"


class Turn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call, what the world answers it (`answer`, `error`), and what is right to do with it. carries: of a commit,
    the paths that it must have when it is carried out, None for any."""

    call: Crossing
    right: Literal["executed", "refused"] = "executed"
    carries: frozenset[str] | None = None


class Story(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """former: names of the gates of the naive side. candidate: one of them that is offered to the mesh at its start.
    each: values of `$it`, each played in a delegation of its own. turns_max: the turns are gone through again and again
    until the last of them is executed, at most so many; 0: once, and every wrong decision counts. What must be refused
    and is not shows the failure in either case."""

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
        self.carried: frozenset[str] = frozenset()

    async def tool(self, call: ToolCall) -> Outcome:
        if self.told.error:
            return Err(code=self.told.error, definite=not self.told.lost)
        return Ok(value=self.told.answer, receipt=self.told.receipt)

    async def commit(self, call: Commit) -> Outcome:
        self.carried = frozenset(call.changes)
        return Ok()


class _Told(Struct):
    """What came of a story so far. rejected: right calls that were refused; admitted: wrong ones that were not.
    reached: the last of its turns was executed."""

    rejected: int = 0
    admitted: int = 0
    turns: int = 0
    reached: bool = False
    verdict: str = ""
    because: str = ""


def play(story: Mapping[str, Any], side: Side, world: PlayedWorld, arm: str = "mesh") -> Played:
    """See `Story`. count: turns where `turns_max` is given, else wrong decisions. Raises ConfigError for a story that
    cannot be read."""
    said: Story = read(story, Story)
    turns: list[list[Turn]] = [read(filled(said.turns, PLACE, it), list[Turn]) for it in said.each]
    made, started = _former(said) if side == "naive" else _onion(said, catalogue.arm(arm))
    told = _Told()
    for one in turns:
        _play_one(said, one, made, told)
    wrong = told.rejected + told.admitted
    endless = bool(said.turns_max) and not told.reached
    failed = endless or told.admitted > 0 if said.turns_max else wrong > 0
    count = told.turns if said.turns_max else wrong
    unit = without_end(said.unit) if endless else said.unit
    line = [started, told.because, f"{count} {unit}"]
    line.append(f"{told.admitted} wrong calls carried out" if told.admitted else "")
    facts = {"rejected": told.rejected, "admitted": told.admitted, "turns": told.turns}
    told_line = "; ".join(filter(None, line))
    return Played(failed=failed, count=count, unit=unit, verdict=told.verdict, told=told_line, facts=facts)


def _gate(name: str) -> Gate:
    if name not in FORMER:
        problem = f"there is no former gate {name!r}"
        raise ConfigError(problem, where="story", allowed=", ".join(FORMER), hint=did_you_mean(name, FORMER))
    return FORMER[name]


def _former(story: Story) -> tuple[Made, str]:
    gates = tuple(map(_gate, story.former))
    return lambda ctx: (Gates(ctx, gates=gates, waivers=()),), ""


def _onion(story: Story, arm: Arm) -> tuple[Made, str]:
    """The layers of the arm, and what its boot check said of the gate that it was offered."""
    if not story.candidate:
        return arm.layers, ""
    offered = _gate(story.candidate)

    def with_it(ctx: ArmContext) -> Sequence[Layer]:
        return (Gates(ctx, gates=(offered,), waivers=()), *arm.layers(ctx))

    if arm.boot_check is None:
        return with_it, f"arm {arm.name} has no boot check, and started with the offered gate"
    try:
        cast(Callable[[Sequence[Gate]], None], arm.boot_check)((offered,))
    except ConfigError as error:
        if f"gate {offered.name!r} rejects" not in error.problem:
            raise  # whatever else keeps the arm from starting is no refusal of this gate
        return arm.layers, f"refused to start: {error}"
    return with_it, "started with the offered gate"


def _play_one(story: Story, turns: list[Turn], made: Made, told: _Told) -> None:
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
            told.rejected += not executed and turn.right == "executed"
            as_is = turn.carries is not None and outside.carried != turn.carries
            told.admitted += executed and (turn.right == "refused" or as_is)
            told.reached = executed and turn is turns[-1]
            if story.turns_max and told.reached:
                break
        return DelegationOutcome(status="done")

    store = SqliteStore(":memory:")
    try:
        process = Process(store, delegation, made, outside)
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
