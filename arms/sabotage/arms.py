"""Arms that are wrong on purpose: each must lose on the measure made for it, or the harness proves nothing.

They are not in the registry; negative schedules name them as `arms.sabotage.arms:NAME`.
"""

from __future__ import annotations

from collections.abc import Callable

from arms.mesh.arm import layers as mesh_layers
from arms.mesh.m3_effects import EffectLedger, Key
from harness.core.roles import Arm, ArmContext
from harness.core.seams import Layer, NextEffect, PassThrough
from harness.core.types import EffectCall, ModelCall, Ok, Outcome, Verdict


class SuppressAll(PassThrough):
    """Vouches for every effect and has none of them: no duplicates, and everything is lost."""

    def __init__(self, ctx: ArmContext) -> None:
        pass

    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome:
        body = {"body_b64": "", "content_type": "application/zip", "choices": [{"message": {"content": "yes"}}]}
        return Ok(value=body, receipt="0-1", verdict=Verdict.SUPPRESSED)


class AttemptKeyed(EffectLedger):
    """A ledger keyed on the crossing itself, as a transaction id would be: it never recognises anything."""

    def _key(self, call: EffectCall | ModelCall, boundary: str, print_: str, occurrence: int) -> Key:
        return super()._key(call, boundary, f"{print_}|{call.call_id}", occurrence)


class FuzzyMerge(EffectLedger):
    """A ledger without an occurrence index: two intended effects of equal content become one."""

    def _key(self, call: EffectCall | ModelCall, boundary: str, print_: str, occurrence: int) -> Key:
        return super()._key(call, boundary, print_, 0)


def _mesh_with(name: str, about: str, ledger: Callable[[ArmContext], Layer]) -> Arm:
    def made(ctx: ArmContext) -> tuple[Layer, ...]:
        return tuple(ledger(ctx) if isinstance(layer, EffectLedger) else layer for layer in mesh_layers(ctx))

    return Arm(name=name, about=about, layers=made, contained=True)


SUPPRESS_ALL = Arm(
    name="suppress_all",
    about="Sabotage: vouches for every effect and lets none happen.",
    layers=lambda ctx: (*mesh_layers(ctx, m3=False), SuppressAll(ctx)),
    contained=True,
)
ATTEMPT_KEYED = _mesh_with("attempt_keyed", "Sabotage: the ledger is keyed on the crossing.", AttemptKeyed)
FUZZY_MERGE = _mesh_with("fuzzy_merge", "Sabotage: the ledger has no occurrence index.", FuzzyMerge)
