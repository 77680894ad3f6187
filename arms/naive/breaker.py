"""The two breakers of a service mesh, per upstream: error rate over a window, and consecutive errors.

Decisions are pure; the layer only feeds them outcomes and times.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from harness.core.roles import ArmContext
from harness.core.seams import NextEffect, NextModel, NextTool, PassThrough
from harness.core.types import EffectCall, Err, ModelCall, Outcome, ToolCall, Verdict


class BreakerPolicy(Struct, frozen=True, kw_only=True):
    """volume_min: calls in the window before a rate counts. Times in nominal milliseconds.

    panic: an ejection is noted but the traffic goes on, as in Envoy when fewer than half of the hosts are healthy:
    each upstream here is a single host, and losing it to an ejection would only weaken the arm.
    """

    window_ms: float
    volume_min: int
    error_rate: float
    open_ms: float
    consecutive_max: int
    ejection_ms: float
    ejection_max_ms: float
    panic: bool = True


class BreakerState(Struct, frozen=True):
    """What is known of one upstream: recent calls as (time, failed), the run of errors, and until when it is shut."""

    recent: tuple[tuple[float, bool], ...] = ()
    consecutive: int = 0
    shut_until_ms: float = -1.0
    ejections: int = 0


def admits(state: BreakerState, now_ms: float) -> bool:
    return now_ms >= state.shut_until_ms


def decide(policy: BreakerPolicy, state: BreakerState, now_ms: float, failed: bool) -> BreakerState:
    """The state after one more outcome."""
    recent = (*(past for past in state.recent if past[0] > now_ms - policy.window_ms), (now_ms, failed))
    state = replace(state, recent=recent, consecutive=state.consecutive + 1 if failed else 0)
    if state.consecutive >= policy.consecutive_max:
        ejections = state.ejections + 1
        state = replace(state, consecutive=0, ejections=ejections)
        if not policy.panic:
            shut_ms = min(policy.ejection_ms * ejections, policy.ejection_max_ms)
            return replace(state, shut_until_ms=now_ms + shut_ms)
    errors = sum(f for _, f in recent)
    if len(recent) >= policy.volume_min and errors / len(recent) >= policy.error_rate:
        return replace(state, recent=(), shut_until_ms=now_ms + policy.open_ms)
    return state


class Breaker(PassThrough):
    """One state per upstream: the model, the check runner, each boundary."""

    def __init__(self, ctx: ArmContext, policy: BreakerPolicy) -> None:
        self._ctx, self._policy = ctx, policy
        self._states: dict[str, BreakerState] = {}

    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome:
        return await self._guard("model", call, next)

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        return await self._guard("checks", call, next) if call.tool == "run_check" else await next(call)

    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome:
        return await self._guard(call.boundary, call, next)

    async def _guard(self, upstream: str, call: Any, next: Callable[[Any], Awaitable[Outcome]]) -> Outcome:
        if not admits(self._states.get(upstream, BreakerState()), self._ctx.now_ms()):
            return Err(code="ejected", definite=True, detail=upstream, verdict=Verdict.EJECTED)
        outcome = await next(call)
        before = self._states.get(upstream, BreakerState())
        after = decide(self._policy, before, self._ctx.now_ms(), isinstance(outcome, Err))
        self._states[upstream] = after
        if after.shut_until_ms > before.shut_until_ms or after.ejections > before.ejections:
            state = {"until_ms": after.shut_until_ms, "ejections": after.ejections}
            self._ctx.note("breaker", {"upstream": upstream, **state})
        return outcome
