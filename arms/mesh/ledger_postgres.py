"""The ledger on a PostgreSQL server that several hosts share.

Why the server's clock: hosts disagree about the time, and the end of a lease must be one moment for all of them. Every
write is one statement that locks the lease it relies on, so that a taker and a zombie cannot both get through.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, LiteralString

import psycopg
from msgspec.structs import astuple
from psycopg import sql

from arms.mesh.ledger import LEASE_MS, Books, Entry, Grant, Key, Write
from harness.core.errors import ConfigError

SCHEMA = "agentmesh_ledger"
_CREATING = 0x6D657368
"""Advisory lock: two hosts that start at once make the tables once."""

_TABLES = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {ledger} (
    tenant text, delegation text, boundary text, fingerprint text, occurrence integer,
    business text NOT NULL, state text NOT NULL, token bigint NOT NULL, value text, receipt text,
    PRIMARY KEY (tenant, delegation, boundary, fingerprint, occurrence));
CREATE INDEX IF NOT EXISTS ledger_business ON {ledger} (tenant, business) WHERE business <> '';
CREATE TABLE IF NOT EXISTS {leases} (
    tenant text, delegation text, token bigint NOT NULL, holder text NOT NULL, expires_at timestamptz NOT NULL,
    length_s float8 NOT NULL,
    PRIMARY KEY (tenant, delegation));
"""
_FOR = "clock_timestamp() + make_interval(secs => "
_LEASE = (
    "INSERT INTO {leases} AS held VALUES (%(tenant)s, %(delegation)s, 1, %(holder)s, " + _FOR + "%(length_s)s),"
    " %(length_s)s) ON CONFLICT (tenant, delegation) DO UPDATE SET token=held.token + 1, holder=excluded.holder,"
    " expires_at=excluded.expires_at, length_s=excluded.length_s"
    " WHERE held.holder=excluded.holder OR held.expires_at <= clock_timestamp() RETURNING token"
)
_HELD = (
    "SELECT CASE expires_at WHEN '-infinity' THEN '' ELSE holder END,"
    " greatest(0, extract(epoch FROM expires_at) - extract(epoch FROM clock_timestamp()))::float8"
    " FROM {leases} WHERE tenant=%s AND delegation=%s"
)
_RENEW = (
    "UPDATE {leases} SET expires_at=" + _FOR + "length_s) WHERE tenant=%s AND delegation=%s AND token=%s"
    " AND (holder='local' OR expires_at > clock_timestamp()) RETURNING 1"
)
_WRITE = (
    "WITH held AS (" + _RENEW + ") INSERT INTO {ledger} SELECT %s, %s, %s, %s, %s, %s, %s, %s, %s, %s FROM held"
    " ON CONFLICT (tenant, delegation, boundary, fingerprint, occurrence) DO UPDATE SET business=excluded.business,"
    " state=excluded.state, token=excluded.token, value=excluded.value, receipt=excluded.receipt RETURNING 1"
)
_ENTRY = " WHERE tenant=%s AND delegation=%s AND boundary=%s AND fingerprint=%s AND occurrence=%s"
_BUSINESS = "l.tenant=%s AND l.business=%s AND l.business <> ''"
_BOOKS = (
    "SELECT count(*) FILTER (WHERE l.state='recorded'), count(*) FILTER (WHERE l.state='reserved'"
    " AND held.holder <> %s AND held.expires_at > clock_timestamp())"
    " FROM {ledger} l LEFT JOIN {leases} held USING (tenant, delegation) WHERE " + _BUSINESS
)


class PostgresBackend:
    """See `arms.mesh.ledger.Backend`. dsn: `postgresql://...`. schema: made when it is not there.
    time_scale: real milliseconds per nominal one. One connection, opened when it is first needed and again after it
    broke. Raises ConfigError when the server cannot be reached."""

    def __init__(self, dsn: str, *, schema: str = SCHEMA, time_scale: float = 1.0) -> None:
        if not re.fullmatch(r"[a-z_][a-z0-9_]*", schema):
            raise ConfigError(f"bad schema name {schema!r}", where="ledger", allowed="lower-case letters, digits and _")
        self._dsn, self._scale = dsn, time_scale
        names = {name: sql.Identifier(schema, name) for name in ("ledger", "leases")}
        self._names = {"schema": sql.Identifier(schema), **names}
        self._texts: dict[str, str] = {}
        self._connection: psycopg.Connection[Any] | None = None
        with self._connected().transaction():
            self._run("SELECT pg_advisory_xact_lock(%s)", (_CREATING,))
            for statement in _TABLES.split(";"):
                if statement.strip():
                    self._run(statement)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            try:
                options = "-c synchronous_commit=on"
                self._connection = psycopg.connect(self._dsn, autocommit=True, options=options, connect_timeout=10)
            except psycopg.OperationalError as error:
                where = re.sub(r"//[^@/]*@", "//...@", self._dsn)
                hint = "is the server running, and does it let this user in?"
                raise ConfigError(f"no ledger to be had: {error}".strip(), where=where, hint=hint) from error
        return self._connection

    def _run(self, text: LiteralString, params: tuple[Any, ...] | dict[str, Any] = ()) -> psycopg.Cursor[Any]:
        """Run one statement, on tables whose names are filled in; by itself it is a transaction of its own."""
        connection = self._connected()
        if text not in self._texts:
            self._texts[text] = sql.SQL(text).format(**self._names).as_string(connection)
        return connection.execute(self._texts[text].encode(), params)

    def lease(self, tenant: str, delegation: str, holder: str, length_ms: float = LEASE_MS) -> Grant:
        held = self._run(_HELD, (tenant, delegation)).fetchone()
        wanted = {"tenant": tenant, "delegation": delegation, "holder": holder}
        taken = self._run(_LEASE, {**wanted, "length_s": length_ms * self._scale / 1000}).fetchone()
        if taken is not None:
            return Grant(taken[0], 0.0, held[0] if held else "")
        by, left_s = self._run(_HELD, (tenant, delegation)).fetchone() or ("", 0.0)
        return Grant(0, left_s * 1000 / self._scale, by)

    def renew(self, tenant: str, delegation: str, token: int) -> bool:
        return self._run(_RENEW, (tenant, delegation, token)).fetchone() is not None

    def release(self, tenant: str, delegation: str, token: int) -> None:
        where = (tenant, delegation, token)
        self._run("UPDATE {leases} SET expires_at='-infinity' WHERE tenant=%s AND delegation=%s AND token=%s", where)

    def find(self, key: Key) -> Entry | None:
        row = self._run("SELECT state, value, receipt FROM {ledger}" + _ENTRY, astuple(key)).fetchone()
        return Entry(*row) if row else None

    def write(self, writes: Sequence[Write]) -> list[bool]:
        if len(writes) == 1:
            return [self._written(writes[0])]
        with self._connected().transaction():
            return [self._written(w) for w in writes]

    def _written(self, w: Write) -> bool:
        held = (w.key.tenant, w.key.delegation, w.token)
        row = (*astuple(w.key), w.business, w.entry.state, w.token, w.entry.value, w.entry.receipt)
        return self._run(_WRITE, (*held, *row)).fetchone() is not None

    def claim(self, write: Write, known: int) -> Literal["written", "fenced", "overtaken"]:
        with self._connected().transaction():
            turn = f"{write.key.tenant}|{write.business}"
            self._run("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (turn,))
            if self.books(write.key.tenant, write.business, "").recorded != known:
                return "overtaken"
            return "written" if self._written(write) else "fenced"

    def forget(self, key: Key, token: int) -> None:
        self._run("DELETE FROM {ledger}" + _ENTRY + " AND state='reserved' AND token=%s", (*astuple(key), token))

    def books(self, tenant: str, business: str, holder: str) -> Books:
        row = self._run(_BOOKS, (holder, tenant, business)).fetchone()
        return Books(*row) if row else Books(0)

    def pending(self, tenant: str, delegation: str) -> list[Key]:
        rows = self._run(
            "SELECT tenant, delegation, boundary, fingerprint, occurrence FROM {ledger}"
            " WHERE tenant=%s AND delegation=%s AND state<>'recorded'",
            (tenant, delegation),
        )
        return [Key(*row) for row in rows]

    def accounted(self, tenant: str, delegation: str) -> set[str]:
        where = (tenant, delegation)
        rows = self._run(
            "SELECT DISTINCT business FROM {ledger} WHERE tenant=%s AND delegation=%s AND business <> ''", where
        )
        return {business for (business,) in rows}
