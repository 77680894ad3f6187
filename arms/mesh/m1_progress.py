"""M1, progress breaker: a session that gets nowhere is stopped, however successful its calls are.

Evidence is (tool, canonical arguments, canonical result): identical calls with changing results are not identical
evidence. Scopes here: tool session (repetitions, cycles, rewordings) and session turns (no new grounding or mutation);
rounds, components and the run are in `arms.mesh.rounds`. A check is ended by lack of progress, never by a wall clock.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec import Struct

from arms.common.race import until
from arms.mesh.control.breaker import POLICY
from arms.mesh.control.kinds import Kind, kind_of, transient
from arms.mesh.m6_quarantine import Observations
from arms.mesh.sessions import (
    Evidence,
    Turn,
    Waited,
    answered,
    ended,
    idle,
    next_stop,
    plain,
    refusals_of,
    repeats,
    reworded,
    shape_of,
    tells,
    waiting,
)
from harness.core.roles import ArmContext
from harness.core.seams import NextDelegate, NextModel, NextTool, PassThrough
from harness.core.types import (
    Attempt,
    DelegationOutcome,
    Err,
    ModelCall,
    Ok,
    Outcome,
    Poll,
    Refused,
    ToolCall,
    Verdict,
)

IDLE_TURNS_MAX = POLICY.turns.idle_max
STALL_MS = POLICY.checks.stall_ms
WATCH_MS = POLICY.checks.watch_ms


class Session(Struct):
    """What one phase of one attempt has done so far. `idle_turns` counts turns without news; stop: why it is over;
    free: earlier calls that may be made again since the conversation was cut short; transient: failures in a row that
    may pass by themselves."""

    history: list[Evidence]
    known: set[str]
    idle_turns: int = 0
    turn: Turn | None = None
    stop: Refused | None = None
    waits: dict[str, Waited] = {}
    free: dict[str, int] = {}
    withheld: set[str] = set()
    messages: int = 0
    transient: int = 0


class ProgressBreaker(PassThrough):
    """The layer. observations: of the quarantine, when there is one; checks whose evidence is no good do not count."""

    def __init__(self, ctx: ArmContext, observations: Observations | None = None) -> None:
        self._ctx, self._observations = ctx, observations
        self._sessions: dict[tuple[str, int, str], Session] = {}
        self._delivered: set[tuple[str, int]] = set()

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        outcome = await next(attempt)
        key = (attempt.delegation.id, attempt.number)
        stops = [self._sessions.pop(k).stop for k in [k for k in self._sessions if k[:2] == key]]
        delivered = key in self._delivered
        self._delivered.discard(key)
        return ended(outcome, next_stop(stops), delivered)

    def _session(self, call: ModelCall | ToolCall) -> Session:
        key = (call.site.delegation, call.attempt, call.site.phase)
        return self._sessions.setdefault(key, Session([], set()))

    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome:
        session = self._session(call)
        messages = call.request.get("messages") or ()
        if len(messages) < session.messages:  # the conversation was cut short: what was read is no longer known
            read = (e.call for e in session.history if kind_of(json.loads(e.call)[0]) is Kind.READ)
            session.free = dict.fromkeys(read, POLICY.session.rereads_max)
        session.messages = len(messages)
        if session.turn is not None:
            stood = idle(session.turn, refusals_of(messages))
            session.idle_turns = session.idle_turns + (stood is True) if stood is not False else 0
        session.turn = Turn()
        if session.stop is not None:
            return session.stop
        if session.idle_turns >= IDLE_TURNS_MAX:
            because = f"{IDLE_TURNS_MAX} turns without new grounding or mutation"
            return self._trip(call, session, "turns", because, ())
        outcome = await next(call)
        asked = outcome.value.get("tool_calls") if isinstance(outcome, Ok) and isinstance(outcome.value, dict) else None
        session.turn.asked = len(asked or ())
        return outcome

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        session = self._session(call)
        turn = session.turn = session.turn or Turn()
        turn.calls += 1
        if call.tool == "done":
            return session.stop or await next(call)  # to stop going in circles is not to have finished
        asked = json.dumps([call.tool, plain(call.args)], sort_keys=True)
        began_ms, poll = self._ctx.now_ms(), self._poll(call)
        past = session.waits.get(asked)
        how = waiting(poll, kind_of(call.tool), past, began_ms)
        if how == "overdue" and poll is not None:
            because = f"waited for {poll.until or 'a change'} longer than {poll.deadline_ms:g} ms"
            return self._trip(call, session, "wait", because, (asked,), Verdict.EXHAUSTED)
        free = session.free.get(asked, 0) > 0
        if free:
            session.free[asked] -= 1
        if how == "ordinary" and not free:
            loop = self._loop(call, session, asked)
            if loop is not None:
                return self._trip(call, session, "session", loop, (asked,))
        outcome = await self._watched(call, next) if call.tool == "run_check" else await next(call)
        if isinstance(outcome, Ok):
            session.waits[asked] = answered(past, poll, began_ms, self._ctx.now_ms(), outcome.value)
            if kind_of(call.tool) is Kind.TERMINAL:
                self._delivered.add((call.site.delegation, call.attempt))
        self._learn(call, session, turn, asked, outcome, waits=how == "wait", free=free)
        return outcome

    def _learn(
        self, call: ToolCall, session: Session, turn: Turn, asked: str, outcome: Outcome, *, waits: bool, free: bool
    ) -> None:
        """Take a finished call into account."""
        if isinstance(outcome, Refused) and outcome.verdict in POLICY.turns.unjudged:
            return
        if isinstance(outcome, Err) and transient(outcome.code):
            session.transient += 1
            if session.transient <= POLICY.session.transient_max:
                turn.waits += 1
                return
        else:
            session.transient = 0
        got = _result(outcome)
        fresh = asked + got not in session.known
        told = isinstance(outcome, Ok) and tells(outcome.value, call.args)
        news = (got not in session.known and told) or (fresh and kind_of(call.tool) is Kind.DRAFT)
        session.known |= {asked + got, got}
        turn.news |= fresh or free
        turn.waits += waits
        if waits or (call.tool == "run_check" and self._quarantined(call.site.delegation)):
            return
        turn.made += 1
        if not free:
            session.history.append(Evidence(asked, got, shape_of(call.tool, call.args), told, news))

    def _loop(self, call: ToolCall, session: Session, asked: str) -> str | None:
        """Why this call continues a loop, or None; says so once when there would be one but for answers that say
        nothing."""
        bare = [Evidence(e.call, e.result) for e in session.history]
        loop = repeats(bare, asked)
        shape = shape_of(call.tool, call.args)
        most = POLICY.session.reworded_max
        if loop is None and reworded(session.history, shape) >= most:
            loop = f"{most} calls in other words with one answer"
        mute = sum(e.shape == shape and not e.tells for e in session.history) if shape else 0
        if loop is None and mute >= most and shape not in session.withheld:
            session.withheld.add(shape)
            because = "calls in other words whose answers say nothing"
            self._note(call, "session", "withheld", because, (), (session.history[-1].result,))
        return loop

    def _poll(self, call: ToolCall) -> Poll | None:
        contract = self._ctx.contracts.get(call.site.delegation)
        names = (call.tool, f"{call.tool} {call.args.get('check', '')}".strip())
        return next((p for p in contract.polls if p.tool in names), None) if contract else None

    def _quarantined(self, delegation: str) -> bool:
        return self._observations is not None and self._observations.quarantined(delegation) is not None

    def _trip(
        self,
        call: ModelCall | ToolCall,
        session: Session,
        scope: str,
        because: str,
        evidence: tuple[str, ...],
        verdict: Verdict = Verdict.STALLED,
    ) -> Refused:
        if session.stop is None:
            session.stop = Refused(verdict=verdict, because=because)
            self._note(call, scope, "trip", because, evidence or _last(session.history), ())
        return Refused(verdict=verdict, because=because)

    def _note(
        self,
        call: ModelCall | ToolCall,
        scope: str,
        decision: str,
        because: str,
        evidence: tuple[str, ...],
        constant: tuple[str, ...],
    ) -> None:
        site = {"delegation": call.site.delegation, "attempt": call.attempt, "phase": call.site.phase}
        shown = POLICY.evidence_shown_max
        told = {"evidence": [e[:200] for e in evidence[:shown]], "constant": [c[:200] for c in constant[:shown]]}
        facts = {"scope": scope, "decision": decision, **site, "turn": call.turn, **told, "because": because}
        self._ctx.note("progress-decision", facts)

    async def _watched(self, call: ToolCall, next: NextTool) -> Outcome:
        """A check that makes no observable progress for STALL_MS is ended; slow and progressing is fine."""
        outcome = await until(next(call), self._stalled(call.call_id))
        return outcome or Err(code="no-progress", definite=False, verdict=Verdict.STALLED)

    async def _stalled(self, call_id: str) -> None:
        units, idle_ms = -1, 0.0
        while idle_ms < STALL_MS:
            await self._ctx.sleep_ms(WATCH_MS)
            now = self._ctx.progress(call_id)
            idle_ms = idle_ms + WATCH_MS if now == units else 0.0
            units = now


def _last(history: Sequence[Evidence]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(e.call for e in history[-IDLE_TURNS_MAX:])) or ("no call of any tool",)


def _result(outcome: Outcome) -> str:
    if isinstance(outcome, Ok):
        return json.dumps(plain(outcome.value), sort_keys=True)
    return outcome.code if isinstance(outcome, Err) else f"{outcome.verdict}: {outcome.because}"
