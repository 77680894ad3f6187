"""The ledger's durable side: entries, leases and fencing tokens, behind one protocol with an SQLite implementation.

Why a protocol: one orchestrator keeps its ledger in its own durable store, several hosts must share one. The decisions
are pure and the same for both; only tokens protect, the expiry of a lease only decides who may try.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import astuple

from harness.core.errors import ConfigError
from harness.core.roles import ArmContext
from harness.core.types import Err, Probe, Verdict

LEASE_MS = 60_000.0
"""Longer than any client's own time limit: what a holder had under way has arrived or failed when its lease ends."""

SETTLE_MS = 10_000.0
"""After a caller's timeout the request may still be under way; the clients' own limit is about as long."""

LOCAL = "local"
"""The holder where there is one host: nobody else can take a delegation over."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS ledger (
    tenant TEXT, delegation TEXT, boundary TEXT, fingerprint TEXT, occurrence INTEGER,
    business TEXT, state TEXT, token INTEGER, value TEXT, receipt TEXT,
    PRIMARY KEY (tenant, delegation, boundary, fingerprint, occurrence)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ledger_business ON ledger (tenant, business) WHERE business <> '';
CREATE TABLE IF NOT EXISTS leases (
    tenant TEXT, delegation TEXT, token INTEGER, holder TEXT, expires_ms REAL, length_ms REAL,
    PRIMARY KEY (tenant, delegation)) WITHOUT ROWID;
"""
_LONG_AGO_MS = -1e18
_HELD = "SELECT token, holder, expires_ms, length_ms FROM leases WHERE tenant=? AND delegation=?"
_WHERE = "tenant=? AND delegation=? AND boundary=? AND fingerprint=? AND occurrence=?"


class Key(Struct, frozen=True):
    """Identity of an effect. No attempt, no transaction, no call id."""

    tenant: str
    delegation: str
    boundary: str
    fingerprint: str
    occurrence: int


class Entry(Struct, frozen=True):
    """A ledger row. state: `reserved`; `doubted`, while several hosts share the ledger and the holder asks what became
    of a reservation; or `recorded`. value: of a record what the boundary answered, else what was asked, where later
    wordings may differ; JSON text."""

    state: str
    value: str | None
    receipt: str | None


class Write(Struct, frozen=True):
    """An entry to be written under the token of a lease. business: what a boundary knows the effect by."""

    key: Key
    token: int
    business: str
    entry: Entry


class Lease(Struct, frozen=True):
    """Who holds a delegation, with the newest token. holder "": nobody ever held it."""

    token: int = 0
    holder: str = ""
    expires_ms: float = 0.0
    length_ms: float = LEASE_MS


class Grant(Struct, frozen=True):
    """Answer to somebody who wants a delegation. token 0: not yet, ask again when `wait_ms` have passed. before: who
    has it or held it until now, "" when it was free."""

    token: int
    wait_ms: float
    before: str


class Books(Struct, frozen=True):
    """What is known of a business key. recorded: effects that are accounted for, by whichever delegation. under_way:
    reservations of other hosts that may still become effects."""

    recorded: int
    under_way: int = 0


class Backend(Protocol):
    """Durable entries and leases. Every write proves that its token is still the newest of its delegation."""

    def lease(self, tenant: str, delegation: str, holder: str, length_ms: float = LEASE_MS) -> Grant:
        """Take the delegation over for so long, or learn how long to wait. Tokens strictly increase."""
        ...

    def renew(self, tenant: str, delegation: str, token: int) -> bool:
        """Prolong the lease by its length; False when a newer holder took it, or it ran out."""
        ...

    def vouches(self, tenant: str, delegation: str, token: int) -> bool:
        """Whether an effect may begin under this token, see `may_begin`; changes nothing."""
        ...

    def release(self, tenant: str, delegation: str, token: int) -> None:
        """Give the lease back, so that nobody needs to wait for its end."""
        ...

    def find(self, key: Key) -> Entry | None: ...

    def write(self, writes: Sequence[Write]) -> list[bool]:
        """Reserve or record, all in one durable transaction; False for each one that a newer holder has fenced off."""
        ...

    def claim(self, write: Write, known: int) -> Literal["written", "fenced", "overtaken"]:
        """Record an effect that the boundary told of, if just as many of its business key are recorded as when it was
        asked; otherwise another host has claimed that effect as its own."""
        ...

    def forget(self, key: Key, token: int) -> None:
        """Take a reservation back whose effect certainly did not happen; a newer holder's is left alone."""
        ...

    def books(self, tenant: str, business: str, holder: str) -> Books: ...

    def pending(self, tenant: str, delegation: str) -> list[Key]:
        """Reservations of the delegation without a record."""
        ...

    def accounted(self, tenant: str, delegation: str) -> set[str]:
        """Business keys of the delegation's entries."""
        ...


# --- decisions ----------------------------------------------------------------------------------------------------


def may_take(lease: Lease, holder: str, now_ms: float) -> bool:
    """Whether a delegation can be taken over: it is free, its holder was started again, or its time is up."""
    return lease.holder in ("", holder) or lease.expires_ms <= now_ms


def holds(lease: Lease, token: int, now_ms: float) -> bool:
    """Whether this token may write: nobody took the delegation over since. Where others can, a lease that ran out is
    dead even if nobody has come: they count what was under way as over."""
    return token == lease.token and (lease.holder == LOCAL or lease.expires_ms > now_ms)


def may_begin(lease: Lease, token: int, now_ms: float) -> bool:
    """Whether an effect may begin: nobody took the delegation over since, and half of the lease is left for the effect
    itself. Asked after the reservation is durable: a process that was stopped there finds a newer token, of another
    host, or of its own that was started again and waited for nothing."""
    return token == lease.token and (lease.holder == LOCAL or lease.expires_ms - now_ms >= lease.length_ms / 2)


def resolve(known: int, answer: Probe, content: bool) -> str:
    """What a reservation in doubt is, given how many effects of its business key are recorded and how many the
    boundary holds: `present`, `absent` or `unknown`; `lost` when it is there and the caller needs an answer that the
    boundary cannot give again (content)."""
    if answer.count is None:
        return "unknown"
    if answer.count <= known:
        return "absent"
    return "lost" if content and answer.value is None else "present"


def absence_counts(failed: Err | None, absent_before: bool) -> bool:
    """Whether `absent` may be believed. After a caller's timeout the request can still be under way, so it must have
    been said once before, a settle time ago."""
    late = failed is not None and not failed.definite and (failed.code == "timeout" or failed.verdict in _LATE)
    return absent_before or not late


_LATE = (Verdict.TIMED_OUT,)


def unmoved(before: Books, after: Books) -> bool:
    """Whether an answer given between these two looks counts no effect of another host: none was under way, and none
    was recorded meanwhile."""
    return before == after and not after.under_way


# --- SQLite -------------------------------------------------------------------------------------------------------


class SqliteBackend:
    """The ledger in the orchestrator's own durable store, on the clock of this host."""

    def __init__(self, ctx: ArmContext) -> None:
        self._ctx = ctx
        with ctx.store.transaction() as db:
            for statement in _SCHEMA.split(";"):
                db.execute(statement)

    def lease(self, tenant: str, delegation: str, holder: str, length_ms: float = LEASE_MS) -> Grant:
        now_ms = self._ctx.now_ms()
        with self._ctx.store.transaction() as db:
            held = self._held(db, tenant, delegation)
            if not may_take(held, holder, now_ms):
                return Grant(0, held.expires_ms - now_ms, held.holder)
            row = (tenant, delegation, held.token + 1, holder, now_ms + length_ms, length_ms)
            db.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?)", row)
        return Grant(held.token + 1, 0.0, held.holder if held.expires_ms != _LONG_AGO_MS else "")

    def _held(self, db: sqlite3.Connection, tenant: str, delegation: str) -> Lease:
        row = db.execute(_HELD, (tenant, delegation)).fetchone()
        return Lease(*row) if row else Lease()

    def renew(self, tenant: str, delegation: str, token: int) -> bool:
        with self._ctx.store.transaction() as db:
            return self._renewed(db, tenant, delegation, token)

    def vouches(self, tenant: str, delegation: str, token: int) -> bool:
        rows = self._ctx.store.query(_HELD, (tenant, delegation))
        return may_begin(Lease(*rows[0]) if rows else Lease(), token, self._ctx.now_ms())

    def _renewed(self, db: sqlite3.Connection, tenant: str, delegation: str, token: int) -> bool:
        now_ms = self._ctx.now_ms()
        held = self._held(db, tenant, delegation)
        if not holds(held, token, now_ms):
            return False
        until = (now_ms + held.length_ms, tenant, delegation)
        db.execute("UPDATE leases SET expires_ms=? WHERE tenant=? AND delegation=?", until)
        return True

    def release(self, tenant: str, delegation: str, token: int) -> None:
        with self._ctx.store.transaction() as db:
            where = (_LONG_AGO_MS, tenant, delegation, token)
            db.execute("UPDATE leases SET expires_ms=? WHERE tenant=? AND delegation=? AND token=?", where)

    def find(self, key: Key) -> Entry | None:
        rows = self._ctx.store.query(f"SELECT state, value, receipt FROM ledger WHERE {_WHERE}", astuple(key))
        return Entry(*rows[0]) if rows else None

    def write(self, writes: Sequence[Write]) -> list[bool]:
        with self._ctx.store.transaction() as db:
            return [self._written(db, w) for w in writes]

    def _written(self, db: sqlite3.Connection, w: Write) -> bool:
        if not self._renewed(db, w.key.tenant, w.key.delegation, w.token):
            return False
        row = (*astuple(w.key), w.business, w.entry.state, w.token, w.entry.value, w.entry.receipt)
        db.execute("INSERT OR REPLACE INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        return True

    def claim(self, write: Write, known: int) -> Literal["written", "fenced", "overtaken"]:
        with self._ctx.store.transaction() as db:
            if self.books(write.key.tenant, write.business, LOCAL).recorded != known:
                return "overtaken"
            return "written" if self._written(db, write) else "fenced"

    def forget(self, key: Key, token: int) -> None:
        with self._ctx.store.transaction() as db:
            db.execute(f"DELETE FROM ledger WHERE {_WHERE} AND state='reserved' AND token=?", (*astuple(key), token))

    def books(self, tenant: str, business: str, holder: str) -> Books:
        query, where = self._ctx.store.query, "tenant=? AND business=? AND business<>''"
        recorded = query(f"SELECT count(*) FROM ledger WHERE {where} AND state='recorded'", (tenant, business))
        if holder == LOCAL:
            return Books(recorded[0][0])
        others = query(
            f"SELECT count(*) FROM (SELECT delegation FROM ledger WHERE {where} AND state='reserved') JOIN leases"
            " USING (delegation) WHERE tenant=? AND holder<>? AND expires_ms>?",
            (tenant, business, tenant, holder, self._ctx.now_ms()),
        )
        return Books(recorded[0][0], others[0][0])

    def pending(self, tenant: str, delegation: str) -> list[Key]:
        rows = self._ctx.store.query(
            "SELECT tenant, delegation, boundary, fingerprint, occurrence FROM ledger WHERE tenant=? AND delegation=?"
            " AND state<>'recorded'",
            (tenant, delegation),
        )
        return [Key(*row) for row in rows]

    def accounted(self, tenant: str, delegation: str) -> set[str]:
        sql = "SELECT DISTINCT business FROM ledger WHERE tenant=? AND delegation=? AND business<>''"
        return {business for (business,) in self._ctx.store.query(sql, (tenant, delegation))}


def open_backend(ctx: ArmContext, dsn: str = "") -> Backend:
    """The ledger at a data source name: "" the orchestrator's own durable store, `postgresql://...` a server that
    several hosts share. Raises ConfigError for anything else."""
    if not dsn:
        return SqliteBackend(ctx)
    if dsn.startswith(("postgresql://", "postgres://")):
        from arms.mesh.ledger_postgres import PostgresBackend  # costs a tenth of a second, and few need it

        return PostgresBackend(dsn)
    raise ConfigError(
        f"unknown kind of ledger {dsn.split('://')[0]!r}",
        where="ledger",
        allowed="nothing (the orchestrator's own store), or postgresql://user@host/database",
    )
