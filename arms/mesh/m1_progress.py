"""M1, progress breaker: a session that gets nowhere is stopped, however successful its calls are.

Evidence is (tool, canonical arguments, canonical result): identical calls with changing results are not identical
evidence. Scopes here: tool session (repetitions and cycles) and session turns (no new grounding or mutation). A check
is ended by lack of progress, never by a wall clock.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec import Struct

from arms.common.race import until
from arms.mesh.control.canonical import strip
from harness.core.roles import ArmContext
from harness.core.seams import NextDelegate, NextModel, NextTool, PassThrough
from harness.core.types import (
    Attempt,
    DelegationOutcome,
    Err,
    ModelCall,
    Ok,
    Outcome,
    Refused,
    ToolCall,
    Verdict,
)

REPEATS_MAX = 4
CYCLES_MAX = 3
PERIOD_MAX = 3
IDLE_TURNS_MAX = 4
STALL_MS = 60_000.0
WATCH_MS = 2_000.0


class Evidence(Struct, frozen=True):
    """One finished tool call, canonically."""

    call: str
    result: str


def repeats(history: Sequence[Evidence], call: str) -> str | None:
    """Why this next call would continue a loop that changed nothing, or None.

    A call is refused when it would be the 4th identical one in a row with identical results, or the start of a 4th
    round of a cycle of up to three calls (A-B-A-B...) whose rounds were identical.
    """
    for period in range(1, PERIOD_MAX + 1):
        rounds = REPEATS_MAX - 1 if period == 1 else CYCLES_MAX
        tail = list(history[-period * rounds :])
        if len(tail) < period * rounds or tail[0].call != call:
            continue
        if all(tail[i] == tail[i % period] for i in range(len(tail))) and len(set(tail)) == period:
            return f"{rounds} identical rounds of {period} call(s)"
    return None


class Session(Struct):
    """What one phase of one attempt has done so far. `idle_turns` counts turns without news."""

    history: list[Evidence]
    known: set[str]
    idle_turns: int = 0
    news: bool = True
    tripped: str = ""


class ProgressBreaker(PassThrough):
    def __init__(self, ctx: ArmContext) -> None:
        self._ctx = ctx
        self._sessions: dict[tuple[str, int, str], Session] = {}

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        outcome = await next(attempt)
        for key in [k for k in self._sessions if k[:2] == (attempt.delegation.id, attempt.number)]:
            tripped = self._sessions.pop(key).tripped
            if tripped and outcome.status != "done":
                return DelegationOutcome(status="stopped", code="stalled", because=tripped, verdict=Verdict.STALLED)
        return outcome

    def _session(self, call: ModelCall | ToolCall) -> Session:
        key = (call.site.delegation, call.attempt, call.site.phase)
        return self._sessions.setdefault(key, Session([], set()))

    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome:
        session = self._session(call)
        session.idle_turns = 0 if session.news else session.idle_turns + 1
        session.news = False
        if session.idle_turns >= IDLE_TURNS_MAX:
            return self._trip(session, f"{IDLE_TURNS_MAX} turns without new grounding or mutation")
        return await next(call)

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        session = self._session(call)
        asked = json.dumps([call.tool, strip(call.args)], sort_keys=True)
        loop = repeats(session.history, asked) if call.tool != "done" else None
        if loop is not None:
            return self._trip(session, loop)
        outcome = await self._watched(call, next) if call.tool == "run_check" else await next(call)
        got = json.dumps(strip(outcome.value), sort_keys=True) if isinstance(outcome, Ok) else type(outcome).__name__
        evidence = Evidence(asked, got)
        session.history.append(evidence)
        seen = asked + got
        if seen not in session.known:
            session.known.add(seen)
            session.news = True
        return outcome

    def _trip(self, session: Session, because: str) -> Refused:
        session.tripped = because
        self._ctx.note("progress-trip", {"because": because, "calls": len(session.history)})
        return Refused(verdict=Verdict.STALLED, because=because)

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
