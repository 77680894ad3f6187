"""The business key of an effect, as its delegation's contract declares it."""

from __future__ import annotations

import json

from harness.core import payload
from harness.core.roles import ArmContext
from harness.core.types import DeclaredEffect, EffectCall


def declaration(ctx: ArmContext, call: EffectCall) -> DeclaredEffect | None:
    """The clause of the contract that covers this effect, if any."""
    contract = ctx.contracts.get(call.site.delegation)
    return contract.clause(call) if contract else None


def business_key(ctx: ArmContext, call: EffectCall) -> str:
    """Boundary, target and declared key values; equal for two spellings of one effect and for legitimate repeats."""
    declared = declaration(ctx, call)
    view = payload.view(call)
    keys = [payload.at(view, path) for path in declared.key] if declared else []
    return json.dumps([call.boundary, call.target, keys])
