"""Layers around the seams, and how they are put together.

The orchestrator calls one function per crossing and knows no arm. `compose` wraps the arm's layers round the base,
outermost first; an arm without layers is the base itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from harness.core.types import Attempt, Commit, DelegationOutcome, EffectCall, ModelCall, Outcome, ToolCall

NextDelegate = Callable[[Attempt], Awaitable[DelegationOutcome]]
NextModel = Callable[[ModelCall], Awaitable[Outcome]]
NextTool = Callable[[ToolCall], Awaitable[Outcome]]
NextEffect = Callable[[EffectCall], Awaitable[Outcome]]
NextCommit = Callable[[Commit], Awaitable[Outcome]]


class Layer(Protocol):
    """One concern of an arm. Inherit `PassThrough` and override what you touch; call `next` zero, one or more times."""

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome: ...
    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome: ...
    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome: ...
    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome: ...
    async def on_commit(self, call: Commit, next: NextCommit) -> Outcome: ...


class PassThrough:
    """A layer that changes nothing."""

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        return await next(attempt)

    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome:
        return await next(call)

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        return await next(call)

    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome:
        return await next(call)

    async def on_commit(self, call: Commit, next: NextCommit) -> Outcome:
        return await next(call)


class Crossings(Struct, frozen=True):
    """The five functions that a call crosses by: what the orchestrator is given."""

    delegate: NextDelegate
    model: NextModel
    tool: NextTool
    effect: NextEffect
    commit: NextCommit


_HANDLERS = {
    "delegate": "on_delegate",
    "model": "on_model",
    "tool": "on_tool",
    "effect": "on_effect",
    "commit": "on_commit",
}


def compose(layers: Sequence[Layer], base: Crossings) -> Crossings:
    """`base` inside the layers, the first of them outermost. Layers that do not override a seam cost nothing there."""
    crossings: dict[str, Any] = {}
    for seam, handler in _HANDLERS.items():
        current = getattr(base, seam)
        for layer in reversed(layers):
            if getattr(type(layer), handler) is not getattr(PassThrough, handler):
                current = _wrap(getattr(layer, handler), current)
        crossings[seam] = current
    return Crossings(**crossings)


def _wrap(handle: Callable[..., Awaitable[Any]], inner: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def crossing(call: Any) -> Any:
        return await handle(call, inner)

    return crossing
