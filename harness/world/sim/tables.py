"""Tables with unique keys in the sim world: what SQLite makes of a statement, asked of SQLite itself.

Why not decided here: whether a repeated write is a second row, nothing, or an error is the database's to say, and the
live world has the same one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from harness.core.types import EffectCall, Err, Ok


class KeyedTables:
    """The services of a trial whose DDL has a unique key, each an SQLite database in memory. All other tables take
    every row, and need no database to say so."""

    def __init__(self, tables: Mapping[str, Sequence[str]]) -> None:
        self._services: dict[str, sqlite3.Connection] = {}
        for service, statements in tables.items():
            if any("UNIQUE" in statement.upper() for statement in statements):
                self._services[service] = sqlite3.connect(":memory:", isolation_level=None)
                for statement in statements:
                    self._services[service].execute(statement)

    def without_row(self, call: EffectCall) -> Ok | Err | None:
        """Execute a write. None when it left a row; else what the client is told of one that changed nothing (a key
        that is there already, `ON CONFLICT DO NOTHING`) or was refused."""
        if call.target not in self._services:
            return None
        try:
            cursor = self._services[call.target].execute(call.payload["sql"], call.payload.get("params") or [])
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorname", "PROGRAMMING")
            return Err(code="sql-error", definite=True, detail=f"{code}: {error}")
        if cursor.rowcount:
            return None
        value = {"columns": [], "rows": [], "rowcount": 0, "lastrowid": cursor.lastrowid}
        return Ok(value=value, receipt=f"{call.target}/{cursor.lastrowid}")
