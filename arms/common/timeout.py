"""Wall-clock timeouts, one per kind of crossing."""

from __future__ import annotations

from msgspec import Struct

from arms.common.race import within
from harness.core.roles import ArmContext
from harness.core.seams import NextDelegate, NextEffect, NextModel, NextTool, PassThrough
from harness.core.types import Attempt, DelegationOutcome, EffectCall, Err, ModelCall, Outcome, ToolCall, Verdict


class TimeoutPolicy(Struct, frozen=True, kw_only=True):
    """Nominal milliseconds per try."""

    delegation_ms: float
    model_ms: float
    check_ms: float
    effect_ms: float


class Timeout(PassThrough):
    """Gives up on a call after its time. The call may still have happened, so the error is not definite."""

    def __init__(self, ctx: ArmContext, policy: TimeoutPolicy) -> None:
        self._ctx, self._policy = ctx, policy

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        outcome = await within(next(attempt), self._policy.delegation_ms, self._ctx.sleep_ms)
        return outcome or DelegationOutcome(status="failed", code="timeout", verdict=Verdict.TIMED_OUT)

    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome:
        return await within(next(call), self._policy.model_ms, self._ctx.sleep_ms) or _late()

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        if call.tool != "run_check":
            return await next(call)
        return await within(next(call), self._policy.check_ms, self._ctx.sleep_ms) or _late()

    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome:
        return await within(next(call), self._policy.effect_ms, self._ctx.sleep_ms) or _late()


def _late() -> Err:
    return Err(code="timeout", definite=False, verdict=Verdict.TIMED_OUT)
