"""Arms that are wrong on purpose, each of which must lose on the measure made for it, and one that knows the names.

They are not in the registry; schedules name them as `arms.sabotage.arms:NAME`. All are the mesh with another ledger.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from arms.common.business import business_key
from arms.mesh.arm import layers as mesh_layers
from arms.mesh.identity import Identity
from arms.mesh.m3_effects import EffectLedger, Key
from harness.core.roles import Arm, ArmContext
from harness.core.seams import Layer, NextEffect, PassThrough
from harness.core.types import DeclaredEffect, EffectCall, ModelCall, Ok, Outcome, Verdict


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


class ExactBytes(EffectLedger):
    """A ledger without canonicalization: an effect is what was sent, byte for byte, so that one that is told again in
    other words, or with another timestamp, is another one."""

    def _identity(self, call: EffectCall, clause: DeclaredEffect | None, slot: str = "") -> Identity:
        return Identity(json.dumps([call.operation, call.target, call.payload]))


class ByName(EffectLedger):
    """A ledger keyed on the declared business keys, which in the workloads here are the very names that the oracle goes
    by: what no arm can know of a workload whose author declared less. The best that a ledger can do."""

    def _identity(self, call: EffectCall, clause: DeclaredEffect | None, slot: str = "") -> Identity:
        return Identity(business_key(self._ctx, call))


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
EXACT_BYTES = _mesh_with("exact_bytes", "Sabotage: the ledger compares bytes.", ExactBytes)
BY_NAME = _mesh_with("by_name", "Reference: the ledger is keyed on the names that the oracle goes by.", ByName)
