"""What became of an effect that was reserved and not recorded: the boundary is asked until its answer means something.

Why patience is not enough: an answer counts every effect of a business key, so it says something about one of them only
when no other one is under way, and `absent` says nothing while a request that timed out may still arrive.
"""

from __future__ import annotations

import json

from msgspec import Struct
from msgspec.structs import replace

from arms.mesh.identity import TOOL, Identity, content
from arms.mesh.leases import WAIT_SHARE, WAITS_MAX, Leases
from arms.mesh.ledger import SETTLE_MS, Backend, Books, Entry, Key, absence_counts, resolve, unmoved
from harness.core.roles import ArmContext
from harness.core.seams import NextEffect
from harness.core.types import DeclaredEffect, EffectCall, Err, Probe

PROBES_MAX = 6
PROBE_PAUSE_MS = 1_000.0
"""Probes of one doubt, and the pause after the first that tells nothing; each further pause is longer by as much."""


class Crossing(Struct, frozen=True):
    """An effect on its way through the ledger, and what the ledger knows it by. reserved: the call in the words of its
    reservation, where those were others: what a boundary must be asked for."""

    call: EffectCall
    clause: DeclaredEffect | None
    who: Identity
    key: Key
    business: str
    next: NextEffect
    reserved: EffectCall | None = None

    def asked(self) -> str | None:
        """What a reservation keeps of the call, where another wording may come back for it."""
        if self.who.worded:
            return None
        call = self.reserved or self.call
        return json.dumps([call.operation, call.target, call.payload])

    def of(self, entry: Entry) -> Crossing:
        """This crossing as one that was reserved before, which is what is in doubt."""
        if entry.state == "recorded" or entry.value is None:
            return self
        operation, target, payload = json.loads(entry.value)
        call = replace(self.call, operation=operation, target=target, payload=payload)
        return replace(self, reserved=call, business=known_by(self.business, call, self.clause))

    def anew(self) -> Crossing:
        """This crossing as one that is made now, in its own words."""
        return replace(self, reserved=None, business=known_by(self.business, self.call, self.clause))


def known_by(declared: str, call: EffectCall, clause: DeclaredEffect | None) -> str:
    """The business key; of an undeclared tool call, which has no key paths, its canonical content."""
    if clause is not None or call.boundary != TOOL:
        return declared
    return json.dumps([call.boundary, call.target, content(call, clause)])


class Answer(Struct, frozen=True):
    """What an effect in doubt is (see `arms.mesh.ledger.resolve`), the boundary's answer that says so, and how many
    effects of its business key were accounted for at that moment."""

    says: str
    answer: Probe
    known: int


class Inquiry:
    """Asks boundaries. patient False: nobody is asked, and every doubt stays one."""

    def __init__(self, ctx: ArmContext, backend: Backend, leases: Leases, patient: bool) -> None:
        self._ctx, self._ledger, self._leases, self._patient = ctx, backend, leases, patient

    async def ask(self, it: Crossing, failed: Err | None) -> Answer:
        """failed: how the effect's own call ended, None when its process died."""
        needs_content = it.clause is not None and it.clause.content
        answer, books, absent_before = Probe(count=None), self._books(it), False
        for asked in range(PROBES_MAX if self._patient else 0):
            books = await self._quiet(it)
            answer = await self._ctx.probe(it.reserved or it.call)
            says = resolve(books.recorded, answer, needs_content) if unmoved(books, self._books(it)) else "unknown"
            if says == "absent" and not absence_counts(failed, absent_before):
                absent_before = True
                await self._ctx.sleep_ms(SETTLE_MS)
            elif says != "unknown":
                return Answer(says, answer, books.recorded)
            else:
                await self._ctx.sleep_ms(PROBE_PAUSE_MS * (asked + 1))
        return Answer("unknown", answer, books.recorded)

    def _books(self, it: Crossing) -> Books:
        return self._ledger.books(it.key.tenant, it.business, self._leases.holder)

    async def _quiet(self, it: Crossing) -> Books:
        """The books once no other host has an equal effect under way; as they are, when that takes too long."""
        for _ in range(WAITS_MAX):
            books = self._books(it)
            if not books.under_way:
                break
            await self._ctx.sleep_ms(WAIT_SHARE * self._leases.length_ms(it.key.delegation))
        return books
