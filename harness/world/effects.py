"""Effects as both worlds let them leave a tool call: how an effect's call is made, and what hooks a write triggers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.core.types import EffectCall, HookSpec, Json, Ok, Seam, Site, ToolCall
from harness.world import files
from harness.world.protocol import CrossEffect

Effect = tuple[str, str, str, Json]
"""Boundary, operation, target and payload."""


def effect_of(call: ToolCall, ordinal: int, origin: str, effect: Effect, call_id: str) -> EffectCall:
    """The `ordinal`-th effect of a tool call, caused by the process of the check or hook `origin`."""
    boundary, operation, target, content = effect
    site = Site(delegation=call.site.delegation, phase=call.site.phase, seam=Seam.TOOL, name=boundary)
    return EffectCall(
        site=site,
        call_id=call_id,
        attempt=call.attempt,
        turn=call.turn,
        index=call.index,
        ordinal=ordinal,
        cause=call.call_id,
        origin=origin,
        boundary=boundary,
        operation=operation,
        target=target,
        payload=content,
    )


async def run_hooks(
    call: ToolCall, written: Ok, hooks: Sequence[HookSpec], cross: CrossEffect, new_id: Callable[[], str]
) -> Ok:
    """The outcome of a write with the hooks that it triggered. A hook's run is itself an effect, and crosses S2."""
    ran: list[Json] = []
    for hook in hooks:
        if files.matches(call.args["path"], (hook.glob,)):
            content = {"path": call.args["path"], "digest": written.value["digest"]}
            effect = effect_of(call, len(ran), hook.name, ("hook", "run", hook.name, content), new_id())
            ran.append([hook.name, isinstance(await cross(effect), Ok)])
    return Ok(value={**written.value, "hooks": ran}) if ran else written
