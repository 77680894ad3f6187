"""Durable state of one trial: SQLite in WAL mode, one file for the orchestrator and its arm.

Everything that must survive SIGKILL at any instant goes through `transaction`. A callback sees each commit coming, so
that a fault can strike exactly between an acknowledgement and its record.
"""

from __future__ import annotations

import copy
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from msgspec import Struct

_SCHEMA = """
CREATE TABLE IF NOT EXISTS attempts (delegation TEXT, number INTEGER, status TEXT, code TEXT,
    PRIMARY KEY (delegation, number));
CREATE TABLE IF NOT EXISTS checkpoints (delegation TEXT, phase TEXT, attempt INTEGER, files TEXT,
    PRIMARY KEY (delegation, phase));
CREATE TABLE IF NOT EXISTS ends (delegation TEXT PRIMARY KEY, status TEXT);
"""


LOCK_S = 120.0
"""Real seconds that a transaction waits for those of other processes. They take turns without a queue, so that on a
busy machine one of them may be passed over for longer than the library's own limit of five."""

OURS = ("attempts", "checkpoints", "ends")
"""The orchestrator's own tables; all others are the arm's."""


def held(connection: sqlite3.Connection) -> dict[str, dict]:
    """What an arm's tables hold: {tables: {table: [rows, bytes]}, tenants: {tenant: bytes}}, empty tables left out.

    Bytes are those of the values, indexes and free pages aside, so that the same content counts the same on every
    machine. What stands in a table without a column `tenant` belongs to no tenant.
    """
    tables: dict[str, list[int]] = {}
    tenants: dict[str, int] = {}
    names = connection.execute("SELECT name FROM sqlite_master WHERE type='table' ORDER BY name").fetchall()
    for (table,) in names:
        if table in OURS or table.startswith("sqlite_"):
            continue
        columns = [name for _, name, *_ in connection.execute(f'PRAGMA table_info("{table}")')]
        size = " + ".join(f'coalesce(length(CAST("{name}" AS BLOB)), 0)' for name in columns)
        who = "tenant" if "tenant" in columns else "NULL"
        counted = f'SELECT {who}, count(*), sum({size}) FROM "{table}" GROUP BY 1 ORDER BY 1'
        for tenant, rows, held_bytes in connection.execute(counted).fetchall():
            before = tables.get(table, [0, 0])
            tables[table] = [before[0] + rows, before[1] + held_bytes]
            if tenant is not None:
                tenants[tenant] = tenants.get(tenant, 0) + held_bytes
    return {"tables": tables, "tenants": tenants}


def held_in(path: str) -> dict[str, dict]:
    """See `held`; of the file that a process left behind which is gone. An absent or damaged file holds nothing that
    can be told, which raises sqlite3.Error."""
    with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as connection:
        return held(connection)


class SqliteStore:
    """See `harness.core.roles.Store`. path: a file, which the processes of several hosts may open, or ":memory:" where
    the connection itself outlives the crash. before_commit: called before each commit of this process."""

    def __init__(self, path: str, before_commit: Callable[[], None] = lambda: None) -> None:
        self._connection = sqlite3.connect(path, timeout=LOCK_S, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.executescript(_SCHEMA)
        self.before_commit = before_commit

    def seen_by(self, before_commit: Callable[[], None]) -> SqliteStore:
        """The same store in the hands of another process that only pretends to be one."""
        other = copy.copy(self)
        other.before_commit = before_commit
        return other

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """BEGIN IMMEDIATE ... COMMIT. Nested use joins the outer transaction, so one commit can serve two tables."""
        if self._connection.in_transaction:
            yield self._connection
            return
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
            self.before_commit()
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def query(self, sql: str, params: tuple = ()) -> list[tuple]:
        return self._connection.execute(sql, params).fetchall()

    def held(self) -> dict[str, dict]:
        """What the arm's tables hold now (see `held`)."""
        return held(self._connection)

    def close(self) -> None:
        self._connection.close()


class Progress(Struct, frozen=True):
    """What durable state says about one delegation: its interrupted attempt, if any, and its accepted phases. notes:
    what its failed attempts failed with, in order."""

    open_attempt: int | None
    attempts: int
    notes: tuple[str, ...]
    phases: tuple[str, ...]
    end: str | None


class Journal:
    """The orchestrator's own tables. Finer memory than phases is an arm's business."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def progress(self, delegation: str) -> Progress:
        attempts = self._store.query(
            "SELECT number, status, code FROM attempts WHERE delegation=? ORDER BY number", (delegation,)
        )
        opened = [number for number, status, _ in attempts if status == "open"]
        phases = self._store.query("SELECT phase FROM checkpoints WHERE delegation=? ORDER BY rowid", (delegation,))
        end = self._store.query("SELECT status FROM ends WHERE delegation=?", (delegation,))
        return Progress(
            max(opened) if opened else None,
            max((number for number, _, _ in attempts), default=0),
            tuple(code for _, status, code in attempts if status == "failed"),
            tuple(p for (p,) in phases),
            end[0][0] if end else None,
        )

    def reopen(self, delegation: str, number: int) -> None:
        """Forget the phases that were accepted before attempt `number`, if an attempt before it had ended well: the
        delegation is woken once more. What attempt `number` itself got accepted before a crash stays accepted."""
        before = "SELECT max(number) FROM attempts WHERE delegation=? AND status='done' AND number<?"
        with self._store.transaction() as db:
            where = (delegation, delegation, number)
            db.execute(f"DELETE FROM checkpoints WHERE delegation=? AND attempt<=({before})", where)

    def open_attempt(self, delegation: str, number: int) -> None:
        with self._store.transaction() as db:
            db.execute("INSERT OR REPLACE INTO attempts VALUES (?, ?, 'open', '')", (delegation, number))

    def close_attempt(self, delegation: str, number: int, status: str, code: str = "") -> None:
        with self._store.transaction() as db:
            row = (status, code, delegation, number)
            db.execute("UPDATE attempts SET status=?, code=? WHERE delegation=? AND number=?", row)

    def checkpoint(self, delegation: str, phase: str, attempt: int, files: dict[str, str]) -> None:
        with self._store.transaction() as db:
            row = (delegation, phase, attempt, json.dumps(files, sort_keys=True))
            db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)", row)

    def end(self, delegation: str, status: str) -> None:
        with self._store.transaction() as db:
            db.execute("INSERT OR REPLACE INTO ends VALUES (?, ?)", (delegation, status))
