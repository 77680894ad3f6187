"""M3, effect contract and ledger: an effect that the same delegation already had is not had again.

Entry = (tenant, delegation, boundary, canonical operation, argument digest, occurrence), content-addressed, never keyed
on an attempt or call. Protocol: reserve (durable, with a fencing token) -> effect -> record with the boundary's own id.
A reservation without a record is in doubt: the boundary is asked, and where it cannot tell a person must.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import defaultdict

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from arms.common.business import business_key, declaration
from arms.mesh.control.canonical import canonical, fingerprint
from harness.core.roles import ArmContext
from harness.core.seams import NextDelegate, NextEffect, NextModel, NextTool, PassThrough
from harness.core.types import (
    Attempt,
    DelegationOutcome,
    EffectCall,
    Err,
    ModelCall,
    Ok,
    Outcome,
    Probe,
    Refused,
    ToolCall,
    Verdict,
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS ledger (
    tenant TEXT, delegation TEXT, boundary TEXT, fingerprint TEXT, occurrence INTEGER,
    business TEXT, state TEXT, token INTEGER, value TEXT, receipt TEXT,
    PRIMARY KEY (tenant, delegation, boundary, fingerprint, occurrence));
CREATE INDEX IF NOT EXISTS ledger_business ON ledger (tenant, business, state);
CREATE TABLE IF NOT EXISTS leases (
    tenant TEXT, delegation TEXT, token INTEGER, expires_ms REAL, PRIMARY KEY (tenant, delegation));
"""

LEASE_MS = 60_000.0
PROBES_MAX = 6
PROBE_PAUSE_MS = 1_000.0
EXECUTIONS_MAX = 3


class Entry(Struct, frozen=True):
    """A ledger row. state: `reserved` or `recorded`."""

    state: str
    value: str | None
    receipt: str | None


class Key(Struct, frozen=True):
    """Identity of an effect. No attempt, no transaction, no call id."""

    tenant: str
    delegation: str
    boundary: str
    fingerprint: str
    occurrence: int


def resolve(known: int, answer: Probe, content: bool) -> str:
    """What a reservation in doubt is, given how many effects of its business key are recorded and how many the
    boundary holds: `present`, `absent` or `unknown`; `lost` when it is there and the caller needs an answer that the
    boundary cannot give again (content)."""
    if answer.count is None:
        return "unknown"
    if answer.count <= known:
        return "absent"
    return "lost" if content and answer.value is None else "present"


class Ledger:
    """Durable entries and leases of one run; every write proves that its token is still the newest."""

    def __init__(self, ctx: ArmContext) -> None:
        self._ctx = ctx
        with ctx.store.transaction() as db:
            for statement in _SCHEMA.split(";"):
                db.execute(statement)

    def lease(self, tenant: str, delegation: str) -> int:
        """Take the delegation over: a new fencing token, higher than every one before."""
        with self._ctx.store.transaction() as db:
            token = self._holder(db, tenant, delegation) + 1
            row = (tenant, delegation, token, self._ctx.now_ms() + LEASE_MS)
            db.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?)", row)
        return token

    def _holder(self, db: sqlite3.Connection, tenant: str, delegation: str) -> int:
        """The newest token of the delegation, 0 when nobody ever held it."""
        where = (tenant, delegation)
        row = db.execute("SELECT token FROM leases WHERE tenant=? AND delegation=?", where).fetchone()
        return int(row[0]) if row else 0

    def find(self, key: Key) -> Entry | None:
        rows = self._ctx.store.query(
            "SELECT state, value, receipt FROM ledger WHERE tenant=? AND delegation=? AND boundary=? AND fingerprint=?"
            " AND occurrence=?",
            astuple(key),
        )
        return Entry(*rows[0]) if rows else None

    def write(self, key: Key, token: int, business: str, entry: Entry) -> bool:
        """Reserve or record; False when a newer holder has fenced this one off."""
        with self._ctx.store.transaction() as db:
            if token != self._holder(db, key.tenant, key.delegation):
                return False
            lease = (self._ctx.now_ms() + LEASE_MS, key.tenant, key.delegation)
            db.execute("UPDATE leases SET expires_ms=? WHERE tenant=? AND delegation=?", lease)
            row = (*astuple(key), business, entry.state, token, entry.value, entry.receipt)
            db.execute("INSERT OR REPLACE INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        return True

    def release(self, key: Key, token: int) -> None:
        """Take a reservation back whose effect certainly did not happen; a newer holder's is left alone."""
        with self._ctx.store.transaction() as db:
            db.execute(
                "DELETE FROM ledger WHERE tenant=? AND delegation=? AND boundary=? AND fingerprint=? AND occurrence=?"
                " AND state='reserved' AND token=?",
                (*astuple(key), token),
            )

    def recorded(self, tenant: str, business: str) -> int:
        """How many effects of this business key are accounted for: whichever delegation had them, the boundary's
        count has them all."""
        rows = self._ctx.store.query(
            "SELECT count(*) FROM ledger WHERE tenant=? AND business=? AND state='recorded'", (tenant, business)
        )
        return int(rows[0][0])


class EffectLedger(PassThrough):
    """The layer. provider_replay: answer a model request of a resumed delegation that was already paid for. probe:
    ask boundaries about effects in doubt; without it every doubt waits for a person."""

    def __init__(self, ctx: ArmContext, *, probe: bool = True, provider_replay: bool = True) -> None:
        self._ctx, self._probe, self._replay = ctx, probe, provider_replay
        self._ledger = Ledger(ctx)
        self._tokens: dict[str, int] = {}
        self._tenants: dict[str, str] = {}
        self._taken: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        self._turns: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting: dict[str, str] = {}

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        d = attempt.delegation
        self._tokens[d.id] = self._ledger.lease(d.tenant, d.id)
        self._tenants[d.id] = d.tenant
        outcome = await next(attempt)
        if d.id in self._waiting and outcome.status != "done":
            because = self._waiting[d.id]
            return DelegationOutcome(
                status="stopped", code="awaiting-waiver", because=because, verdict=Verdict.AWAITING_WAIVER
            )
        return outcome

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        waiting = self._waiting.get(call.site.delegation)
        if waiting is not None and call.tool == "run_check":
            return Refused(verdict=Verdict.AWAITING_WAIVER, because=waiting)
        return await next(call)

    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome:
        if not self._replay:
            return await next(call)
        request = msgspec.json.encode(call.request, order="sorted").decode()
        key = self._key(call, "model", fingerprint(f"{call.attempt}|{call.site.phase}|{request}"), 0)
        entry = self._ledger.find(key)
        if entry is not None and entry.state == "recorded":
            return Ok(value=json.loads(entry.value or ""), receipt=entry.receipt, verdict=Verdict.SUPPRESSED)
        outcome = await next(call)
        if isinstance(outcome, Ok) and not self._record(key, "", outcome):
            return _fenced(call.site.delegation)
        return outcome

    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome:
        """The occurrence is the first one that no equal effect of this tool call has or is about to have: a client
        that tries again after an error means the same effect."""
        print_ = fingerprint(canonical(self._ctx, call))
        taken = self._taken[call.cause, print_]
        occurrence = min(set(range(len(taken) + 1)) - taken)
        taken.add(occurrence)
        outcome = await self._once(call, self._key(call, call.boundary, print_, occurrence), next)
        if not isinstance(outcome, Ok):
            taken.discard(occurrence)
        return outcome

    async def _once(self, call: EffectCall, key: Key, next: NextEffect) -> Outcome:
        """Effects of one business key take turns: the boundary counts them all, and while one is in doubt another
        would be taken for it."""
        business = business_key(self._ctx, call)
        async with self._turns[key.tenant, business]:
            entry = self._ledger.find(key)
            if entry is None:
                return await self._execute(call, key, business, next, executions=0)
            if entry.state != "recorded":
                return await self._doubt(call, key, business, next, executions=0)
            return Ok(value=json.loads(entry.value or "null"), receipt=entry.receipt, verdict=Verdict.SUPPRESSED)

    def _key(self, call: EffectCall | ModelCall, boundary: str, print_: str, occurrence: int) -> Key:
        d = call.site.delegation
        return Key(self._tenants.get(d, ""), d, boundary, print_, occurrence)

    def _record(self, key: Key, business: str, outcome: Ok) -> bool:
        entry = Entry("recorded", json.dumps(outcome.value), outcome.receipt)
        return self._ledger.write(key, self._tokens.get(key.delegation, 0), business, entry)

    async def _execute(
        self, call: EffectCall, key: Key, business: str, next: NextEffect, *, executions: int
    ) -> Outcome:
        token = self._tokens.get(key.delegation, 0)
        if not self._ledger.write(key, token, business, Entry("reserved", None, None)):
            return _fenced(key.delegation)
        outcome = await next(call)
        if isinstance(outcome, Ok):
            return outcome if self._record(key, business, outcome) else _fenced(key.delegation)
        if isinstance(outcome, Err) and not outcome.definite:
            return await self._doubt(call, key, business, next, executions=executions + 1, failed=outcome)
        self._ledger.release(key, token)
        return outcome

    async def _doubt(
        self,
        call: EffectCall,
        key: Key,
        business: str,
        next: NextEffect,
        *,
        executions: int,
        failed: Err | None = None,
    ) -> Outcome:
        """Reserved and not recorded: ask the boundary, patiently, and act on what it says; never guess.

        An effect that is there but whose content was lost on the way is had again, since the work cannot go on without
        it: that is a duplicate, and known to be one.
        """
        known = self._ledger.recorded(key.tenant, business)
        declared = declaration(self._ctx, call)
        content = declared is not None and declared.content
        answer, says = Probe(count=None), "unknown"
        for attempt in range(PROBES_MAX if self._probe else 0):
            answer = await self._ctx.probe(call)
            says = resolve(known, answer, content)
            if says != "unknown":
                break
            await self._ctx.sleep_ms(PROBE_PAUSE_MS * (attempt + 1))
        self._ctx.note("in-doubt", {"boundary": call.boundary, "says": says, "known": known, "count": answer.count})
        if says == "present":
            receipt = answer.receipts[known] if known < len(answer.receipts) else None
            found = Ok(value=answer.value, receipt=receipt, verdict=Verdict.RECONCILED)
            return found if self._record(key, business, found) else _fenced(key.delegation)
        if says in ("absent", "lost") and executions < EXECUTIONS_MAX:
            return await self._execute(call, key, business, next, executions=executions)
        if says in ("absent", "lost") and failed is not None:
            return failed
        self._waiting[key.delegation] = f"{call.boundary} {call.operation} {call.target}: cannot tell if it happened"
        return Refused(verdict=Verdict.AWAITING_WAIVER, because=self._waiting[key.delegation])


def _fenced(delegation: str) -> Refused:
    return Refused(verdict=Verdict.FENCED, because=f"another process holds {delegation}")
