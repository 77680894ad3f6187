"""Bounded retry with exponential backoff and full jitter, by tenacity, with clock and chance handed in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from tenacity import AsyncRetrying, RetryCallState, retry_if_result, stop_after_attempt

from harness.core.roles import ArmContext
from harness.core.seams import NextDelegate, NextEffect, NextModel, NextTool, PassThrough
from harness.core.types import Attempt, DelegationOutcome, EffectCall, Err, ModelCall, Outcome, ToolCall


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """attempts_max counts the first try. retry_on: error codes; `definite` stands for every error that is certain."""

    attempts_max: int
    base_ms: float
    max_ms: float
    retry_on: tuple[str, ...]

    def wants(self, outcome: object) -> bool:
        if not isinstance(outcome, Err):
            return False
        return outcome.code in self.retry_on or (outcome.definite and "definite" in self.retry_on)


class Retry(PassThrough):
    """Retries S1 and S2 crossings; each seam has its own policy, and None leaves it alone."""

    def __init__(
        self,
        ctx: ArmContext,
        *,
        model: RetryPolicy | None = None,
        tool: RetryPolicy | None = None,
        effect: RetryPolicy | None = None,
    ) -> None:
        self._ctx, self._model, self._tool, self._effect = ctx, model, tool, effect

    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome:
        return await _retried(self._ctx, self._model, call, next)

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        return await _retried(self._ctx, self._tool, call, next)

    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome:
        return await _retried(self._ctx, self._effect, call, next)


async def _retried(
    ctx: ArmContext, policy: RetryPolicy | None, call: Any, next: Callable[[Any], Awaitable[Outcome]]
) -> Outcome:
    first = [await next(call)]
    if policy is None or not policy.wants(first[0]):
        return first[0]

    async def attempt(call: Any) -> Outcome:
        """The first try has been made: nearly every call succeeds, and should not pay for what retries need."""
        return first.pop() if first else await next(call)

    retrying = AsyncRetrying(
        sleep=lambda seconds: ctx.sleep_ms(seconds * 1000),
        stop=stop_after_attempt(policy.attempts_max),
        wait=lambda state: _pause_s(ctx, policy, call.call_id, state),
        retry=retry_if_result(policy.wants),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )
    return await retrying(attempt, call)


def _pause_s(ctx: ArmContext, policy: RetryPolicy, name: str, state: RetryCallState) -> float:
    """Full jitter: uniform below an exponentially growing cap. Seconds, because tenacity counts so."""
    cap_ms = _cap_ms(policy.base_ms, policy.max_ms, state.attempt_number)
    return float(ctx.draw("backoff", name, state.attempt_number)) * cap_ms / 1000


def _cap_ms(base_ms: float, max_ms: float, number: int) -> float:
    """The longest pause after try `number`, counted from 1."""
    return min(max_ms, base_ms * 2 ** (number - 1))


async def pause_before_again(ctx: ArmContext, delegation: str, number: int, pause_ms: tuple[float, float]) -> None:
    """Wait before a delegation is tried again after its attempt `number`. pause_ms: the first cap and the highest."""
    await ctx.sleep_ms(ctx.draw("again", delegation, number) * _cap_ms(*pause_ms, number))


class RetryDelegation(PassThrough):
    """Runs a failed delegation again, as a new attempt that is told why the last one failed."""

    def __init__(self, ctx: ArmContext, *, attempts_max: int, base_ms: float, max_ms: float) -> None:
        self._ctx, self._attempts_max, self._pause_ms = ctx, attempts_max, (base_ms, max_ms)

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        outcome = await next(attempt)
        while outcome.status == "failed" and attempt.number < self._attempts_max:
            await pause_before_again(self._ctx, attempt.delegation.id, attempt.number, self._pause_ms)
            notes = (*attempt.notes, outcome.code)
            attempt = replace(attempt, number=attempt.number + 1, resumed=False, keep_workspace=False, notes=notes)
            outcome = await next(attempt)
        return outcome
