"""`example`: the naive arm with one more layer, which counts effects."""

from __future__ import annotations

from arms.naive.arm import NAIVE, layers
from harness.core.roles import Arm, ArmContext
from harness.core.seams import NextEffect, PassThrough
from harness.core.types import EffectCall, Outcome


class ExampleLayer(PassThrough):
    """Override the seams that you touch: on_delegate, on_model, on_tool, on_effect, on_commit. What is to survive the
    death of the orchestrator goes to `ctx.store`; time is `ctx.now_ms`, chance is `ctx.draw`."""

    def __init__(self, ctx: ArmContext) -> None:
        self._ctx = ctx

    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome:
        outcome = await next(call)
        self._ctx.note("counted", {"boundary": call.boundary})
        return outcome


EXAMPLE = Arm(
    name="example",
    about="The naive arm, and a note for every effect.",
    layers=lambda ctx: (ExampleLayer(ctx), *layers(ctx)),
    parameters=NAIVE.parameters,
)
