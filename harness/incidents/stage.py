"""The stage: listed calls go through the real seams and the real layers of an arm, over a world that does as listed.

A third place beside the sim and the live world, because a report of somebody else's orchestrator knows tools that ours
does not have. The arm sees tool, arguments, result, status and time of each call, and nothing else of the file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from harness.core import rng
from harness.core.clock import Clock
from harness.core.roles import Arm, ArmContext
from harness.core.seams import Crossings, compose
from harness.core.types import (
    Attempt,
    Commit,
    Delegation,
    DelegationOutcome,
    EffectCall,
    Json,
    ModelCall,
    Ok,
    Outcome,
    Probe,
    Refused,
    Seam,
    Site,
    ToolCall,
    Verdict,
)
from harness.incidents.field import TICK_MS, Listed, Run, Scenario, Truth
from harness.incidents.layerbench import on_virtual_time
from harness.incidents.stage_world import CALL_MS, ListedWorld
from harness.orchestrator.arm_store import ArmStore
from harness.orchestrator.delegate import ended_by
from harness.orchestrator.store import SqliteStore

FAILED = "failed"
"""An attempt that ends with a text that begins so has failed; after any other end the next one is a new start."""


FIRST = 1
"""A process that goes on where another ended re-enters the interrupted attempt, which keeps its number."""


class Told(Struct, frozen=True):
    """What an arm noted while a scenario was played."""

    kind: str
    data: Mapping[str, Json]


class Replay(Struct, frozen=True, kw_only=True):
    """What came of a scenario. decisions: what the arm decided on each call that was issued, by call id; verdict: how
    the run ended; effects: what materialised, how often."""

    decisions: dict[str, str]
    verdict: str
    effects: dict[str, int]
    notes: tuple[Told, ...]
    arm_error: str = ""


def replay(scenario: Scenario, arm: Arm) -> Replay:
    """Play a scenario with an arm on virtual time. What only the scoring may know is not there to be found."""
    told = replace(scenario, truth=Truth(intended={}, correct={}, also={}, run=""))
    return on_virtual_time(_Stage(told, arm).play())


class _Stage:
    """One scenario with one arm: processes that come and go, on one durable store and one world."""

    def __init__(self, scenario: Scenario, arm: Arm) -> None:
        self._scenario, self._arm = scenario, arm
        self._clock = Clock()
        self._world = ListedWorld(self._clock, arm.contained)
        self._store = SqliteStore(":memory:")
        self._notes: list[Told] = []
        self._outcomes: dict[str, Outcome] = {}
        self._listed: dict[str, Listed] = {}
        self._played: set[int] = set()
        self._paused: dict[int, float] = {}
        self._ids = iter(range(1_000_000_000))
        self._error = ""

    async def play(self) -> Replay:
        """Every attempt in a process of its own, after the one before it or beside it."""
        outcomes: dict[int, DelegationOutcome] = {}
        beside: list[asyncio.Task[None]] = []

        async def one(run: Run, epoch: int) -> None:
            outcomes[run.number] = await self._process(run, epoch)

        try:
            for epoch, run in enumerate(self._scenario.runs):
                if run.number in self._played:
                    continue
                following = self._scenario.runs[epoch + 1 : epoch + 2]
                if run.starts_at_tick is not None:
                    await self._clock.sleep_ms(run.starts_at_tick * TICK_MS - self._clock.now_ms())
                task = asyncio.ensure_future(one(run, epoch))
                beside.append(task)
                if not (following and following[0].starts_at_tick is not None):
                    await asyncio.gather(*beside)
                    if run.ends.startswith(FAILED) and outcomes[run.number].status != "done":
                        break  # trying again after a failed attempt is the arm's business, and it gave up
            await asyncio.gather(*beside)
        finally:
            self._store.close()
        self._world.land_all()
        last = outcomes[max(outcomes)]
        verdict = last.verdict or (Verdict.EXECUTED if last.status == "done" else "failed")
        return Replay(
            decisions={id: self._decided(id, outcome) for id, outcome in self._outcomes.items()},
            verdict=str(verdict),
            effects=self._world.effects(),
            notes=tuple(self._notes),
            arm_error=self._error,
        )

    async def _process(self, run: Run, epoch: int) -> DelegationOutcome:
        """One life of an orchestrator process: it enters the delegation at this attempt."""
        told = self._scenario.delegation
        delegation = replace(told, tenant=run.tenant or "tenant")
        crossings: Crossings

        async def attempt_once(attempt: Attempt) -> DelegationOutcome:
            """What this process was started for; and then, when a layer tries again, what is listed next."""
            left = [one for one in (run, *self._scenario.runs) if one.number not in self._played]
            if not left:
                return DelegationOutcome(status="failed", code="agent-blocked", because="nothing else to try")
            self._played.add(left[0].number)
            return await self._attempt(crossings, delegation, left[0], attempt.number)

        base = Crossings(attempt_once, self._model, self._tool_through(lambda: crossings), self._effect, self._commit)
        try:
            crossings = compose(self._arm.layers(self._context(delegation, run, epoch)), base)
            return await crossings.delegate(Attempt(delegation=delegation, number=FIRST, resumed=epoch > 0))
        except Exception as error:
            self._error = f"{type(error).__name__}: {error}"
            return DelegationOutcome(status="failed", code="arm-error", because=self._error)

    def _context(self, delegation: Delegation, run: Run, epoch: int) -> ArmContext:
        async def probe(call: EffectCall) -> Probe:
            return Probe(count=self._world.holds(self._listed[call.cause]))

        return ArmContext(
            now_ms=lambda: self._clock.now_ms(),
            sleep_ms=lambda ms: self._sleep(run, ms),
            draw=lambda *name: rng.draw(1, *name),
            note=lambda kind, data: self._notes.append(Told(kind, dict(data))),
            store=ArmStore(lambda: self._store.transaction(), lambda sql, params: self._store.query(sql, params)),
            probe=probe,
            progress=lambda call_id: 0,
            contracts={delegation.id: delegation.contract},
            epoch=epoch,
            worker=run.worker and f"{run.worker}/{run.number}",
        )

    def _decided(self, id: str, outcome: Outcome) -> str:
        """What was decided on a call, by whether it reached the world, and not by what the arm calls it."""
        if isinstance(outcome, Refused):
            return outcome.verdict.value
        if id in self._world.reached:
            return Verdict.EXECUTED.value
        vouched = isinstance(outcome, Ok) and outcome.verdict in (Verdict.SUPPRESSED, Verdict.RECONCILED)
        return Verdict.SUPPRESSED.value if vouched else "withheld"

    async def _sleep(self, run: Run, ms: float) -> None:
        """A process that is paused does nothing until it goes on, its timers included."""
        await self._clock.sleep_ms(ms)
        while self._clock.now_ms() < self._paused.get(run.number, 0.0):
            await self._clock.sleep_ms(CALL_MS)

    # --- the agent ------------------------------------------------------------------------------------------------

    async def _attempt(self, crossings: Crossings, delegation: Delegation, run: Run, number: int) -> DelegationOutcome:
        """The agent's turns in listed order; calls with a time of their own do not wait for the one before."""
        phase = delegation.phases[min(run.stage, len(delegation.phases) - 1)]
        state = _Attempt(crossings, delegation, run, number, phase)
        beside: list[asyncio.Task[None]] = []
        for turn, calls in enumerate(_turns(run.calls)):
            at_ms = None if calls[0].at_tick is None else calls[0].at_tick * TICK_MS
            if at_ms is not None:
                await self._clock.sleep_ms(max(at_ms - self._clock.now_ms(), 0.0))
            task = asyncio.ensure_future(self._turn(state, turn, calls))
            beside.append(task)
            following = _turns(run.calls)[turn + 1 : turn + 2]
            if not (following and following[0][0].at_tick is not None):
                await asyncio.gather(*beside)
            if state.ended is not None:
                break
        await asyncio.gather(*beside)
        if state.ended is None:
            closing = await crossings.model(_asks(state, len(run.calls), (), self._new_id()))
            state.ended = None if isinstance(closing, Ok) else ended_by(closing)
        if state.ended is not None:
            return state.ended
        if run.ends.startswith(FAILED):
            return DelegationOutcome(status="failed", code="agent-blocked", because=run.ends)
        if state.waiting:
            return DelegationOutcome(
                status="stopped", code="awaiting-waiver", because=state.waiting, verdict=Verdict.AWAITING_WAIVER
            )
        return await self._publish(state)

    async def _turn(self, state: _Attempt, turn: int, calls: tuple[Listed, ...]) -> None:
        if state.ended is not None:
            return
        answer = await state.crossings.model(_asks(state, turn, calls, self._new_id()))
        if not isinstance(answer, Ok):
            state.ended = state.ended or ended_by(answer)
            if isinstance(answer, Refused):
                self._outcomes |= dict.fromkeys((listed.id for listed in calls), answer)
            return
        for index, listed in enumerate(calls):
            call = ToolCall(
                site=Site(delegation=state.delegation.id, phase=state.phase, seam=Seam.TOOL, name=listed.tool),
                call_id=self._new_id(),
                attempt=state.number,
                turn=turn,
                index=index,
                tool=listed.tool,
                args=listed.args,
            )
            self._listed[call.call_id] = listed
            if listed.paused:
                ends = (listed.ticks or 1.0) * TICK_MS + self._clock.now_ms()
                later = [c.at_tick * TICK_MS for c in state.run.calls if c.at_tick is not None]
                self._paused[state.run.number] = min([ends, *(at for at in later if at > self._clock.now_ms())])
            outcome = await state.crossings.tool(call)
            self._outcomes[listed.id] = outcome
            if not isinstance(outcome, Refused):
                state.waiting = "" if state.waited == listed.effects else state.waiting
            elif outcome.verdict in (Verdict.STALLED, Verdict.EXHAUSTED, Verdict.FENCED):
                state.ended = state.ended or DelegationOutcome(
                    status="failed", code="agent-blocked", because=outcome.because
                )
                return
            elif outcome.verdict is Verdict.AWAITING_WAIVER and listed.effects:
                state.waiting, state.waited = outcome.because, listed.effects

    async def _publish(self, state: _Attempt) -> DelegationOutcome:
        """S3: what was drafted becomes the accepted state, in two steps."""
        changes: dict[str, str | None] = {path: rng.token(1, path) for path in self._world.drafted(state.number)}
        for step in ("stage", "publish"):
            site = Site(delegation=state.delegation.id, phase=state.phase, seam=Seam.COMMIT, name=step)
            call = Commit(site=site, call_id=self._new_id(), attempt=state.number, step=step, changes=changes)
            outcome = await state.crossings.commit(call)
            if not isinstance(outcome, Ok):
                return ended_by(outcome)
        return DelegationOutcome(status="done")

    # --- the base of the seams --------------------------------------------------------------------------------------

    def _new_id(self) -> str:
        return f"s{next(self._ids)}"

    async def _model(self, call: ModelCall) -> Outcome:
        await self._clock.sleep_ms(CALL_MS)
        spent = {"prompt_tokens": 1, "completion_tokens": 1}
        content = call.request["messages"][-1]["content"]
        return Ok(value={"id": call.call_id, "usage": spent, **json.loads(content)}, receipt=call.call_id)

    def _tool_through(self, crossings: Any) -> Any:
        async def tool(call: ToolCall) -> Outcome:
            """Everything that a tool sends out passes the gateway, whatever it may do there."""
            effect = EffectCall(
                site=Site(delegation=call.site.delegation, phase=call.site.phase, seam=Seam.TOOL, name="tool"),
                call_id=self._new_id(),
                attempt=call.attempt,
                turn=call.turn,
                index=call.index,
                ordinal=0,
                cause=call.call_id,
                origin=call.tool,
                boundary="tool",
                operation=call.tool,
                target="",
                payload=dict(call.args),
            )
            return await crossings().effect(effect)

        return tool

    async def _effect(self, call: EffectCall) -> Outcome:
        return await self._world.answer(self._listed[call.cause], call.attempt)

    async def _commit(self, call: Commit) -> Outcome:
        if call.step == "publish":
            self._world.publish(call.attempt)
        return Ok(value={})


class _Attempt(Struct):
    """Where an attempt stands. waiting: why one of its effects waits for a person, "" when none does."""

    crossings: Crossings
    delegation: Delegation
    run: Run
    number: int
    phase: str
    ended: DelegationOutcome | None = None
    waiting: str = ""
    waited: tuple[str, ...] = ()


def _turns(calls: tuple[Listed, ...]) -> list[tuple[Listed, ...]]:
    """Calls of one batch are issued in one turn, others in a turn each."""
    turns: list[tuple[Listed, ...]] = []
    for call in calls:
        if call.batch and turns and turns[-1][0].batch == call.batch:
            turns[-1] = (*turns[-1], call)
        else:
            turns.append((call,))
    return turns


def _asks(state: _Attempt, turn: int, calls: tuple[Listed, ...], call_id: str) -> ModelCall:
    """A model turn whose answer is the listed calls. An answer that was cut says so, as providers do."""
    asked = [{"id": f"t{turn}.{i}", "name": c.tool, "arguments": json.dumps(c.args)} for i, c in enumerate(calls)]
    reason = "length" if any(c.status == "cut" for c in calls) else "tool_calls" if calls else "stop"
    scripted = json.dumps({"content": "", "tool_calls": asked, "finish_reason": reason})
    request = {
        "model": "scripted",
        "messages": [{"role": "user", "content": scripted}],
        "turn": [state.run.number, turn],
    }
    site = Site(delegation=state.delegation.id, phase=state.phase, seam=Seam.MODEL, name="chat")
    return ModelCall(site=site, call_id=call_id, attempt=state.number, turn=turn, request=request)
