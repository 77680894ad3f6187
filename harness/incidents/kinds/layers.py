"""Stories of a single layer, told with the real one and without a trial: what two commits of equal content become, and
whether a user can tell apart the ways in which a delegation is stopped."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from arms.mesh.control.canonical import fingerprint
from harness import catalogue
from harness.core.seams import Crossings, NextEffect, PassThrough
from harness.core.types import (
    DeclaredEffect,
    Delegation,
    DelegationOutcome,
    EffectCall,
    EffectContract,
    Json,
    ModelCall,
    Ok,
    Outcome,
    Seam,
    Site,
    ToolCall,
    Verdict,
)
from harness.incidents.layerbench import Made, Outside, Process, on_virtual_time
from harness.incidents.play import Played, PlayedWorld, Side, read
from harness.orchestrator.store import SqliteStore


class Commitment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A commit that a component sends out. content: path to digest, in the order in which it was written."""

    transaction: str
    content: dict[str, str]


class Commits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="commits", tag_field="tells"):
    """Commits of one delegation, each sent by a process of its own over one durable state, since a restart is where a
    transaction gets another id. A commit of a transaction that was sent before is the same crossing again."""

    component: str
    commits: tuple[Commitment, ...]


class Condition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a delegation cannot go on. reads: whether its agent reads the same file at every turn, or another one.
    tokens: what a turn costs. taken_over: after its first turn it sleeps for away_ms while another process resumes it.
    """

    name: str
    verdict: Verdict
    reads: Literal["same", "other"] = "other"
    tokens: int = 100
    budget_tokens: int = 60_000
    taken_over: bool = False
    away_ms: float = 120_000.0


class Ends(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ends", tag_field="tells"):
    """Conditions that end a delegation, each to be told from the others."""

    conditions: tuple[Condition, ...]
    turns_max: int = 24


def play(story: Mapping[str, Any], side: Side, world: PlayedWorld, arm: str = "mesh") -> Played:
    """Play the story on one side. Raises ConfigError for one that cannot be read."""
    told: Commits | Ends = read(story, Commits | Ends)
    if isinstance(told, Commits):
        return _play_commits(told, side, world, arm)
    return _play_ends(told, side, world, arm if side == "mesh" else side)


@contextmanager
def _state(world: PlayedWorld) -> Iterator[Callable[[], SqliteStore]]:
    """Durable state, and how a process opens it: a file in the live world, one connection in the sim world."""
    opened: list[SqliteStore] = []
    with tempfile.TemporaryDirectory(prefix="layers-") as folder:

        def open_() -> SqliteStore:
            if world == "live" or not opened:
                opened.append(SqliteStore(str(Path(folder) / "state.db") if world == "live" else ":memory:"))
            return opened[-1]

        try:
            yield open_
        finally:
            for store in opened:
                store.close()


# --- commits: what is the same --------------------------------------------------------------------------------------

COMMITTED = DeclaredEffect(
    boundary="transport", operation="XADD", target="commits", key=("event.type", "event.subject")
)


class KeyedOnTransaction(PassThrough):
    """Recognises a commit by an id that its transaction is part of. known: the ids that were seen, durable."""

    def __init__(self, known: set[str]) -> None:
        self._known = known

    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome:
        id = fingerprint(f"{call.cause}|{sorted(call.payload['event']['data']['manifest'].items())}")
        if id in self._known:
            return Ok(verdict=Verdict.SUPPRESSED)
        self._known.add(id)
        return await next(call)


def _play_commits(story: Commits, side: Side, world: PlayedWorld, arm: str) -> Played:
    delegation = Delegation(
        id=story.component,
        tenant="acme",
        goal="commit",
        phases=("implementation",),
        contract=EffectContract(effects=(COMMITTED,)),
        component=story.component,
    )
    known: set[str] = set()
    made: Made = catalogue.arm(arm).layers if side == "mesh" else lambda ctx: (KeyedOnTransaction(known),)
    outside = Outside()
    verdicts: list[str] = []
    with _state(world) as open_:
        for epoch, commit in enumerate(story.commits):
            process = Process(open_(), delegation, made, outside, epoch)
            verdicts.append(on_virtual_time(_send(process, _committed(story.component, commit, epoch))))
    sent = Counter(_content(call) for call in outside.effects)
    wanted = {tuple(sorted(one.content.items())) for one in story.commits}
    most = max(sent.values(), default=0)
    by = f"arm {arm}" if side == "mesh" else "a ledger keyed as the platform's was, which is no arm"
    return Played(
        failed=any(sent[content] != 1 for content in wanted),
        count=most,
        unit="effects of one content",
        verdict=Verdict.SUPPRESSED if Verdict.SUPPRESSED in verdicts and side == "mesh" else "",
        told=f"{by}: {len(story.commits)} commits of {len(wanted)} contents became {len(outside.effects)} effects",
        facts={"effects": len(outside.effects), "contents": len(wanted), "verdicts": verdicts},
    )


def _content(call: EffectCall) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(call.payload["event"]["data"]["manifest"].items()))


def _committed(component: str, commit: Commitment, epoch: int) -> EffectCall:
    event = {"type": "component.committed", "subject": component, "data": {"manifest": commit.content}}
    return EffectCall(
        site=Site(delegation=component, phase="implementation", seam=Seam.TOOL, name="transport"),
        call_id=f"e-{commit.transaction}-{epoch}",
        attempt=epoch + 1,
        turn=0,
        index=0,
        ordinal=0,
        cause=commit.transaction,
        origin="publish",
        boundary=COMMITTED.boundary,
        operation=COMMITTED.operation,
        target=COMMITTED.target,
        payload={"event": event},
    )


async def _send(process: Process, call: EffectCall) -> str:
    """Send one effect in an attempt of its delegation; the verdict on it."""
    said: list[str] = []

    async def work(crossings: Crossings) -> DelegationOutcome:
        outcome = await crossings.effect(call)
        said.append(outcome.verdict or "")
        return DelegationOutcome(status="done")

    await process.attempt(work)
    return said[-1] if said else ""


# --- ends: what a user can tell apart -------------------------------------------------------------------------------


class Agent(Outside):
    """An agent that reads on and on and never comes to an end, and what it reads."""

    def __init__(self, condition: Condition) -> None:
        super().__init__()
        self._condition, self.turns = condition, 0
        self.when_first_read: Callable[[], Any] | None = None

    async def model(self, call: ModelCall) -> Outcome:
        self.turns += 1
        name = "notes.md" if self._condition.reads == "same" else f"notes-{self.turns}.md"
        asked: list[Json] = [{"id": f"c{self.turns}", "name": "read", "arguments": f'{{"path": "{name}"}}'}]
        usage = {"prompt_tokens": self._condition.tokens, "completion_tokens": 0}
        value = {"id": f"r{self.turns}", "content": "", "tool_calls": asked, "usage": usage}
        return Ok(value=value, receipt=f"r{self.turns}")

    async def tool(self, call: ToolCall) -> Outcome:
        if self.when_first_read is not None:
            hook, self.when_first_read = self.when_first_read, None
            await hook()
        return Ok(value={"path": call.args["path"], "content": "text", "digest": call.args["path"]})


def _play_ends(story: Ends, side: Side, world: PlayedWorld, arm: str) -> Played:
    ends: dict[str, DelegationOutcome] = {}
    turns: dict[str, int] = {}
    for condition in story.conditions:
        with _state(world) as open_:
            ends[condition.name], turns[condition.name] = on_virtual_time(_end(condition, story, arm, open_))
    told = {name: end.verdict or f"{end.status}: {end.code}" for name, end in ends.items()}
    distinct = len({(end.status, end.code, end.verdict) for end in ends.values()})
    right = side == "mesh" and all(ends[one.name].verdict == one.verdict for one in story.conditions)
    return Played(
        failed=distinct < len(ends) or (side == "mesh" and not right),
        count=distinct,
        unit="ends that can be told apart",
        verdict=str(ends[story.conditions[0].name].verdict or ""),
        told=", ".join(f"{name}: {what}" for name, what in told.items()),
        facts={"ends": told, "turns": turns, "conditions": len(ends)},
    )


async def _end(
    condition: Condition, story: Ends, arm: str, open_: Callable[[], SqliteStore]
) -> tuple[DelegationOutcome, int]:
    """How the delegation ends under one condition, and after how many turns that were paid for."""
    delegation = Delegation(
        id="notes",
        tenant="acme",
        goal="read the notes",
        phases=("implementation",),
        contract=EffectContract(),
        component="notes",
        budget_tokens=condition.budget_tokens,
        turns_max=story.turns_max,
    )
    made = catalogue.arm(arm).layers
    agent = Agent(condition)

    async def take_over() -> None:
        await asyncio.sleep(condition.away_ms / 1000)
        await Process(open_(), delegation, made, Agent(condition), epoch=1).attempt()

    if condition.taken_over:
        agent.when_first_read = take_over
    outcome = await Process(open_(), delegation, made, agent).attempt()
    return outcome, agent.turns
