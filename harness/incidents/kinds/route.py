"""Stories of whom a failure wakes, told with the layers of an arm over scripted components.

Two tellings: `routing`, where components are defective and a check of all of them says how far its tests came, and
`observing`, where the components are right and the check contradicts itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from arms.common.coverage import coverage_routing
from arms.naive.arm import BREAKER
from arms.naive.breaker import Breaker
from harness import catalogue
from harness.core.clock import Clock
from harness.core.errors import ConfigError
from harness.core.seams import Crossings, compose
from harness.core.types import (
    Attempt,
    Delegation,
    DelegationOutcome,
    Edge,
    EffectContract,
    Err,
    Json,
    ModelCall,
    Node,
    Ok,
    Outcome,
    Seam,
    Site,
    System,
    ToolCall,
    Verdict,
)
from harness.incidents.layerbench import Made, Outside, context, on_virtual_time
from harness.incidents.play import Played, PlayedWorld, Side, read, without_end
from harness.orchestrator.store import SqliteStore

TRIES = 3
"""How often the agent of the judging delegation runs a check before it says that it is blocked."""


class Answer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the check says while exactly these components are broken. checkpoints: [correlation, stage, node]."""

    broken: tuple[str, ...]
    failing: tuple[str, ...] = ()
    checkpoints: tuple[tuple[str, str, str], ...] = ()


class Routing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="routing", tag_field="tells"):
    """coverage: the components of the scenario, all of which can be repaired. edges: `component/kind/name ->
    component/kind/name`. files: how many files of a component an agent reads until it finds a defect that nobody told
    it the place of. frozen: files that a brief names and that nobody may change; they are read first. turns_max: of a
    repair. count: components that were woken, or turns of repairs."""

    coverage: tuple[str, ...]
    edges: tuple[str, ...]
    defective: tuple[str, ...]
    answers: tuple[Answer, ...]
    count: Literal["woken", "turns"]
    files: int = 6
    frozen: tuple[str, ...] = ()
    turns_max: int = 24


class Observing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="observing", tag_field="tells"):
    """runs: what the check's runs really end in, over and over: p passed, f failed, b the runner broke. The workspace
    is right and never changes. asked: how often the agent asks, every so many milliseconds."""

    coverage: tuple[str, ...]
    runs: str
    asked: int
    every_ms: float


def play(story: Mapping[str, Any], side: Side, world: PlayedWorld, arm: str = "mesh") -> Played:
    """The story is a `Routing` or an `Observing`, as its key `tells` says. The mesh side is the whole onion of the arm,
    the other those layers of the naive arm that the story is about. Raises ConfigError for any other story."""
    told: Routing | Observing = read(story, Routing | Observing)
    if world != "sim":
        raise ConfigError(f"a story of routing cannot be told in the {world} world", allowed="sim")
    onion = catalogue.arm(arm).layers if side == "mesh" else None
    return _route(told, onion) if isinstance(told, Routing) else _observe(told, onion)


# --- a process with nothing but the layers ------------------------------------------------------------------------


class Scripted(Outside):
    """What is behind the layers of a story, attempts included."""

    async def delegate(self, attempt: Attempt) -> DelegationOutcome:
        raise NotImplementedError


class Stage:
    """The judging delegation and its repairs through the layers of one side."""

    def __init__(self, system: System, made: Made) -> None:
        self.clock = Clock()
        self.notes: list[tuple[str, dict[str, Json]]] = []
        self._numbers = itertools.count(1)

        def note(kind: str, data: Mapping[str, Json]) -> None:
            self.notes.append((kind, dict(data)))

        self._judging = _delegation("acceptance")
        contracts = {d.id: d.contract for d in (self._judging, *system.repairs.values())}
        facts: dict[str, Any] = {"note": note, "system": system, "contracts": contracts}
        self._layers = tuple(made(context(self.clock, SqliteStore(":memory:"), **facts)))
        self.crossings: Crossings

    def play(self, behind: Scripted) -> None:
        """The judging delegation, from beginning to end."""
        base = Crossings(behind.delegate, behind.model, behind.tool, behind.effect, behind.commit)
        self.crossings = compose(self._layers, base)
        on_virtual_time(self.crossings.delegate(Attempt(delegation=self._judging)))

    async def turn(self, attempt: Attempt, turn: int, tool: str, **args: Json) -> Outcome:
        """One turn of an agent: a model call and one tool call."""
        d = attempt.delegation.id
        where: dict[str, Any] = {"call_id": f"c{next(self._numbers)}", "attempt": attempt.number, "turn": turn}
        chat, used = (
            Site(delegation=d, phase="repair", seam=seam, name=name)
            for seam, name in ((Seam.MODEL, "chat"), (Seam.TOOL, tool))
        )
        await self.crossings.model(ModelCall(site=chat, request={"messages": []}, **where))
        return await self.crossings.tool(ToolCall(site=used, index=0, tool=tool, args=args, **where))

    @property
    def verdict(self) -> str:
        said = [data["verdict"] for kind, data in self.notes if kind == "routing"]
        return str(said[-1]) if said else ""


def _delegation(id: str, component: str = "", turns_max: int = 24) -> Delegation:
    writable = (f"{component}/**",) if component else ()
    contract = EffectContract(writable=writable, checks=("acceptance",))
    goal = f"Repair {component}." if component else "Accept the components together."
    return Delegation(
        id=id, tenant="t", goal=goal, phases=("p",), contract=contract, component=component, turns_max=turns_max
    )


def _system(coverage: Sequence[str], edges: Sequence[str] = (), turns_max: int = 24) -> System:
    repairs = {name: _delegation(f"repair/{name}", name, turns_max) for name in coverage}
    return System(repairs=repairs, coverage={"acceptance": tuple(coverage)}, edges=tuple(map(_edge, edges)))


def _edge(text: str) -> Edge:
    source, arrow, target = text.partition(" -> ")
    if not arrow:
        raise ConfigError(f"{text!r} is no edge", allowed="component/kind/name -> component/kind/name")
    return Edge(source=_node(source), target=_node(target))


def _node(text: str) -> Node:
    component, kind, name = (*text.split("/", 2), "", "")[:3]
    try:
        return msgspec.convert({"component": component, "kind": kind, "name": name}, Node)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{text!r} is no node: {error}", allowed="component/kind/name") from None


# --- defective components -----------------------------------------------------------------------------------------


class Repairs(Scripted):
    """The components behind the layers, and what the agents do to them."""

    def __init__(self, story: Routing, stage: Stage) -> None:
        super().__init__()
        self._story, self._stage = story, stage
        self.broken = set(story.defective)
        self.woken: list[str] = []
        self.edited: set[str] = set()
        self.turns = self.reads = self.cut = 0

    async def tool(self, call: ToolCall) -> Outcome:
        if call.tool != "run_check":
            return Ok(value={"digest": call.call_id})
        for answer in self._story.answers:
            if set(answer.broken) == self.broken:
                points = [list(point) for point in answer.checkpoints]
                value = {"passed": not answer.failing, "failing": list(answer.failing), "checkpoints": points}
                return Ok(value=value, receipt=",".join(sorted(self.broken)))
        raise ConfigError(f"no answer of the check is told for broken {sorted(self.broken)}")

    async def delegate(self, attempt: Attempt) -> DelegationOutcome:
        if attempt.delegation.component:
            return await self._mend(attempt, attempt.delegation.component)
        for turn in range(TRIES):
            outcome = await self._stage.turn(attempt, turn, "run_check", check="acceptance")
            if isinstance(outcome, Ok) and outcome.value["passed"]:
                return DelegationOutcome(status="done")
        return DelegationOutcome(status="failed", code="agent-blocked")

    async def _mend(self, attempt: Attempt, component: str) -> DelegationOutcome:
        """An agent that is told a place in its component looks there. One that is not reads what the brief names and
        then its component, runs the check in between, and in the end edits what looks suspicious."""
        self.woken.append(component)
        told = any(f"{component}/" in note for note in attempt.notes)
        own = [f"{component}/file{n}" for n in range(self._story.files)]
        look_at = own[:1] if told else [*self._story.frozen, *own]
        budget = attempt.delegation.turns_max - 2
        endless = component not in self.broken and not told
        self.cut += endless
        for turn in range(budget if endless else min(budget, 2 * len(look_at))):
            if turn % 2 == 0:
                await self._act(attempt, turn, "read", path=look_at[turn // 2 % len(look_at)])
            else:
                await self._act(attempt, turn, "run_check", check="acceptance")
        await self._act(attempt, budget, "edit", path=own[0], old="", new="")
        if component not in self.broken:
            self.edited.add(component)
        if told or 2 * len(look_at) <= budget:
            self.broken.discard(component)
        return DelegationOutcome(status="done")

    async def _act(self, attempt: Attempt, turn: int, tool: str, **args: Json) -> None:
        self.turns += 1
        self.reads += tool == "read"
        await self._stage.turn(attempt, turn, tool, **args)


def _route(story: Routing, onion: Made | None) -> Played:
    system = _system(story.coverage, story.edges, story.turns_max)
    stage = Stage(system, onion or (lambda ctx: (coverage_routing(ctx),)))
    parts = Repairs(story, stage)
    stage.play(parts)
    bystanders = sorted(parts.edited)
    still = sorted(parts.broken)
    facts = {"woken": len(parts.woken), "turns": parts.turns, "reads": parts.reads, "cut": parts.cut}
    facts["bystanders"] = len(bystanders)
    told = f"woke {', '.join(parts.woken) or 'nobody'}; edited although right: {', '.join(bystanders) or 'none'}"
    unit = {"woken": "components woken", "turns": "turns of repairs"}[story.count]
    if parts.cut:
        told += f"; {parts.cut} found nothing, and were cut at {story.turns_max} turns"
        unit = without_end(unit) if story.count == "turns" else unit
    return Played(
        failed=bool(bystanders or still),
        count=facts[story.count],
        unit=unit,
        verdict=stage.verdict if onion else "",
        told=told + (f"; still broken: {', '.join(still)}" if still else ""),
        facts=facts,
    )


# --- a check that contradicts itself ------------------------------------------------------------------------------


class Noise(Scripted):
    """A check of a workspace that is right and does not change, and the agent that asks it."""

    def __init__(self, story: Observing, stage: Stage) -> None:
        super().__init__()
        self._story, self._stage = story, stage
        self._answers = itertools.cycle(story.runs)
        self.runs = self.ejected = self.believed = self.woken = 0

    async def tool(self, call: ToolCall) -> Outcome:
        self.runs += 1
        answer = next(self._answers)
        if answer == "b":
            return Err(code="monitor-error", definite=False)
        failing = [] if answer == "p" else ["test_all"]
        return Ok(value={"passed": not failing, "failing": failing}, receipt="workspace|environment|contract")

    async def delegate(self, attempt: Attempt) -> DelegationOutcome:
        if attempt.delegation.component:
            self.woken += 1
            return DelegationOutcome(status="failed", code="nothing-found")
        outcome: Outcome = Ok()
        for turn in range(self._story.asked):
            outcome = await self._stage.turn(attempt, turn, "run_check", check="acceptance")
            self.ejected += isinstance(outcome, Err) and outcome.verdict is Verdict.EJECTED
            self.believed += isinstance(outcome, Ok) and not outcome.value["passed"]
            await self._stage.clock.sleep_ms(self._story.every_ms)
        passed = isinstance(outcome, Ok) and outcome.value["passed"]
        return DelegationOutcome(status="done" if passed else "failed", code="" if passed else "agent-blocked")


def _observe(story: Observing, onion: Made | None) -> Played:
    stage = Stage(_system(story.coverage), onion or (lambda ctx: (coverage_routing(ctx), Breaker(ctx, BREAKER))))
    noise = Noise(story, stage)
    stage.play(noise)
    facts = {"believed": noise.believed, "ejected": noise.ejected, "woken": noise.woken, "runs": noise.runs}
    count = noise.believed + noise.ejected + noise.woken
    quarantined = any(kind == "quarantine" and data["held"] for kind, data in stage.notes)
    return Played(
        failed=count > 0,
        count=count,
        unit="decisions on noise",
        verdict=Verdict.QUARANTINED.value if quarantined else "",
        told=", ".join(f"{name} {number}" for name, number in facts.items()),
        facts=facts,
    )
