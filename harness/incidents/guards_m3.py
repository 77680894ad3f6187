"""The guards of the effect ledger, each with its mutation."""

from __future__ import annotations

import json

from arms.mesh.identity import Identity
from harness.incidents.play import Guard

GUARDS: tuple[Guard, ...] = (
    Guard(
        name="ledger_identity",
        primitive="M3",
        target="arms.mesh.m3_effects:identity",
        reverted=lambda call, clause, *named: Identity(json.dumps([call.cause, call.payload])),
        incidents=("I03", "I16"),
        about="an effect is known by its content, never by the transaction that caused it",
    ),
    Guard(
        name="lease_fence",
        primitive="M3",
        target="arms.mesh.ledger:holds",
        reverted=lambda *lease: True,
        incidents=("I20",),
        about="who lost the lease is told so, and not left to go on to some other end",
    ),
    Guard(
        name="ledger_lookup",
        primitive="M3",
        target="arms.mesh.m3_effects:was_had",
        reverted=lambda entry: False,
        incidents=("I03",),
        about="an effect that was had and recorded is not had again",
    ),
)
