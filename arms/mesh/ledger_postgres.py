"""The ledger on a PostgreSQL server that several hosts share.

Why the server's clock: hosts disagree about the time, and the end of a lease must be one moment for all of them. Every
write is one statement that locks the lease it relies on, so that a taker and a zombie cannot both get through.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, LiteralString
from urllib.parse import unquote

import psycopg
from psycopg import sql

from arms.mesh.ledger import LEASE_MS, Books, Entry, Grant, Key, Write
from harness.core.errors import ConfigError

SCHEMA = "agentmesh_ledger"
KEY_MAX_BYTES = 400
"""A longer part of a key is kept by its digest: a row of an index has room for some 2,700 bytes."""

_CREATING = 0x6D657368
"""Advisory lock: two hosts that start at once make the tables once."""

_TABLES = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {ledger} (
    tenant text, delegation text, boundary text, fingerprint text, occurrence integer,
    business text NOT NULL, state text NOT NULL, token bigint NOT NULL, value text, receipt text,
    PRIMARY KEY (tenant, delegation, boundary, fingerprint, occurrence));
CREATE INDEX IF NOT EXISTS ledger_business_digest ON {ledger} (tenant, md5(business)) WHERE business <> '';
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
_VOUCHES = (
    "SELECT 1 FROM {leases} WHERE tenant=%s AND delegation=%s AND token=%s"
    " AND (holder='local' OR expires_at >= clock_timestamp() + make_interval(secs => length_s / 2))"
)
_WRITE = (
    "WITH held AS (" + _RENEW + ") INSERT INTO {ledger} SELECT %s, %s, %s, %s, %s, %s, %s, %s, %s, %s FROM held"
    " ON CONFLICT (tenant, delegation, boundary, fingerprint, occurrence) DO UPDATE SET business=excluded.business,"
    " state=excluded.state, token=excluded.token, value=excluded.value, receipt=excluded.receipt RETURNING 1"
)
_ENTRY = " WHERE tenant=%s AND delegation=%s AND boundary=%s AND fingerprint=%s AND occurrence=%s"
_BUSINESS = "l.tenant=%s AND md5(l.business)=md5(%s) AND l.business=%s AND l.business <> ''"
_BOOKS = (
    "SELECT count(*) FILTER (WHERE l.state='recorded'), count(*) FILTER (WHERE l.state='reserved'"
    " AND held.holder <> %s AND held.expires_at > clock_timestamp())"
    " FROM {ledger} l LEFT JOIN {leases} held USING (tenant, delegation) WHERE " + _BUSINESS
)
_OPEN = (
    "SELECT tenant, delegation FROM {leases} WHERE (tenant, delegation) IN"
    " (SELECT l.tenant, l.delegation FROM {ledger} l WHERE l.state <> 'recorded' AND " + _BUSINESS + ")"
)


def _row(key: Key) -> tuple[str, str, str, str, int]:
    parts = (key.tenant, key.delegation, key.boundary, key.fingerprint)
    tenant, delegation, boundary, fingerprint = map(_short, parts)
    return tenant, delegation, boundary, fingerprint, key.occurrence


def _short(text: str) -> str:
    """A part of a key as it is kept: a short one as it is, a long one by its digest."""
    raw = text.encode()
    return text if len(raw) <= KEY_MAX_BYTES else f"sha256:{hashlib.sha256(raw).hexdigest()}"


def _shown(dsn: str) -> str:
    """A data source name without what is secret in it."""
    return re.sub(r"(password=)[^&\s]*", r"\1...", re.sub(r"//.*@", "//...@", dsn, flags=re.DOTALL))


def _said(error: Exception, dsn: str) -> str:
    """What an error says, on one line and without any piece of the password: a driver repeats a name that it cannot
    read, and a password with an @ in it is half of a host's name."""
    said = " ".join(str(error).split()) or type(error).__name__
    told = re.findall(r"//[^:]*:(.*)@", dsn, re.DOTALL) + re.findall(r"password=([^&\s]*)", dsn)
    pieces = {piece for one in told for text in (one, unquote(one)) for piece in (text, *re.split(r"[@:/?#]", text))}
    for piece in sorted(filter(None, pieces), key=len, reverse=True):
        said = re.sub(rf"(?<!\w){re.escape(piece)}(?!\w)", "...", said)
    return said


class LedgerError(Exception):
    """The server of the ledger failed or refused; the message names no password."""


class PostgresBackend:
    """See `arms.mesh.ledger.Backend`. dsn: `postgresql://...`. schema: made when it is not there.
    time_scale: real milliseconds per nominal one. One connection, opened when it is first needed and again after it
    broke: a statement that is a transaction of its own is then sent once more, since each of them may be made twice.
    Raises ConfigError when the server cannot be reached or used, LedgerError when it refuses a statement."""

    def __init__(self, dsn: str, *, schema: str = SCHEMA, time_scale: float = 1.0) -> None:
        if not re.fullmatch(r"[a-z_][a-z0-9_]*", schema):
            raise ConfigError(f"bad schema name {schema!r}", where="ledger", allowed="lower-case letters, digits and _")
        self._dsn, self._scale = dsn, time_scale
        names = {name: sql.Identifier(schema, name) for name in ("ledger", "leases")}
        self._names = {"schema": sql.Identifier(schema), **names}
        self._texts: dict[str, str] = {}
        self._within = False
        self._connection: psycopg.Connection[Any] | None = None
        try:
            with self._transaction():
                self._run("SELECT pg_advisory_xact_lock(%s)", (_CREATING,))
                for statement in _TABLES.split(";"):
                    if statement.strip():
                        self._run(statement)
        except LedgerError as error:
            self.close()
            hint = f"may this user create tables in the schema {schema!r}, and are those there the ledger's?"
            raise ConfigError(str(error), where=_shown(dsn), hint=hint) from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            try:
                options = "-c synchronous_commit=on"
                self._connection = psycopg.connect(self._dsn, autocommit=True, options=options, connect_timeout=10)
            except (psycopg.Error, ValueError) as error:
                hint = "is the server running, and does it let this user in?"
                problem = f"no ledger to be had: {_said(error, self._dsn)}"
                raise ConfigError(problem, where=_shown(self._dsn), hint=hint) from None
        return self._connection

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """A transaction, begun on a new connection when the old one turns out to be dead. Raises LedgerError."""
        with self._told():
            begun = self._connected().transaction()
            try:
                begun.__enter__()
            except psycopg.OperationalError:
                if not self._connected_anew():
                    raise
                begun = self._connected().transaction()
                begun.__enter__()
        self._within = True
        try:
            yield
        except BaseException as error:
            with self._told():
                begun.__exit__(type(error), error, error.__traceback__)
            raise
        else:
            with self._told():
                begun.__exit__(None, None, None)
        finally:
            self._within = False

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What the driver raises as one error whose text names no password."""
        try:
            yield
        except (psycopg.Error, ValueError) as error:
            raise LedgerError(f"the ledger on the server failed: {_said(error, self._dsn)}") from None

    def _connected_anew(self) -> bool:
        """Whether the connection was dead, and there is a new one."""
        if self._connection is None or not self._connection.closed:
            return False
        self._connected()
        return True

    def _run(self, text: LiteralString, params: tuple[Any, ...] | dict[str, Any] = ()) -> psycopg.Cursor[Any]:
        """Run one statement, on tables whose names are filled in; by itself it is a transaction of its own."""
        with self._told():
            connection = self._connected()
            if text not in self._texts:
                self._texts[text] = sql.SQL(text).format(**self._names).as_string(connection)
            try:
                return connection.execute(self._texts[text].encode(), params)
            except psycopg.OperationalError:
                if self._within or not self._connected_anew():
                    raise
                return self._connected().execute(self._texts[text].encode(), params)

    def lease(self, tenant: str, delegation: str, holder: str, length_ms: float = LEASE_MS) -> Grant:
        tenant, delegation = _short(tenant), _short(delegation)
        held = self._run(_HELD, (tenant, delegation)).fetchone()
        wanted = {"tenant": tenant, "delegation": delegation, "holder": holder}
        taken = self._run(_LEASE, {**wanted, "length_s": length_ms * self._scale / 1000}).fetchone()
        if taken is not None:
            return Grant(taken[0], 0.0, held[0] if held else "")
        by, left_s = self._run(_HELD, (tenant, delegation)).fetchone() or ("", 0.0)
        return Grant(0, left_s * 1000 / self._scale, by)

    def renew(self, tenant: str, delegation: str, token: int) -> bool:
        return self._run(_RENEW, (_short(tenant), _short(delegation), token)).fetchone() is not None

    def vouches(self, tenant: str, delegation: str, token: int) -> bool:
        return self._run(_VOUCHES, (_short(tenant), _short(delegation), token)).fetchone() is not None

    def release(self, tenant: str, delegation: str, token: int) -> None:
        where = (_short(tenant), _short(delegation), token)
        self._run("UPDATE {leases} SET expires_at='-infinity' WHERE tenant=%s AND delegation=%s AND token=%s", where)

    def find(self, key: Key) -> Entry | None:
        row = self._run("SELECT state, value, receipt FROM {ledger}" + _ENTRY, _row(key)).fetchone()
        return Entry(*row) if row else None

    def write(self, writes: Sequence[Write]) -> list[bool]:
        if len(writes) == 1:
            return [self._written(writes[0])]
        with self._transaction():
            return [self._written(w) for w in writes]

    def _written(self, w: Write) -> bool:
        held = (_short(w.key.tenant), _short(w.key.delegation), w.token)
        row = (*_row(w.key), w.business, w.entry.state, w.token, w.entry.value, w.entry.receipt)
        return self._run(_WRITE, (*held, *row)).fetchone() is not None

    def claim(self, write: Write, known: int) -> Literal["written", "fenced", "overtaken"]:
        with self._transaction():
            turn = f"{write.key.tenant}|{write.business}"
            self._run("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (turn,))
            equal = (_short(write.key.tenant), write.business, write.business)
            leases = self._run(_OPEN, equal).fetchall()
            if len(self._run(_OPEN + " FOR UPDATE SKIP LOCKED", equal).fetchall()) < len(leases):
                return "overtaken"  # one of them is just being recorded, under a lease that may be over by now
            if self.books(write.key.tenant, write.business, "").recorded != known:
                return "overtaken"
            return "written" if self._written(write) else "fenced"

    def forget(self, key: Key, token: int) -> None:
        self._run("DELETE FROM {ledger}" + _ENTRY + " AND state='reserved' AND token=%s", (*_row(key), token))

    def books(self, tenant: str, business: str, holder: str) -> Books:
        row = self._run(_BOOKS, (holder, _short(tenant), business, business)).fetchone()
        return Books(*row) if row else Books(0)

    def pending(self, tenant: str, delegation: str) -> list[Key]:
        rows = self._run(
            "SELECT tenant, delegation, boundary, fingerprint, occurrence FROM {ledger}"
            " WHERE tenant=%s AND delegation=%s AND state<>'recorded'",
            (_short(tenant), _short(delegation)),
        )
        return [Key(*row) for row in rows]

    def accounted(self, tenant: str, delegation: str) -> set[str]:
        where = (_short(tenant), _short(delegation))
        rows = self._run(
            "SELECT DISTINCT business FROM {ledger} WHERE tenant=%s AND delegation=%s AND business <> ''", where
        )
        return {business for (business,) in rows}
