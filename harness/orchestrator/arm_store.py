"""The durable store as an arm is handed it: the same transactions, without the orchestrator's own tables.

Why a narrow door: an arm that could commit by itself would step around the faults that strike at a record, and one that
could write the orchestrator's tables would accept its own work.
"""

from __future__ import annotations

import functools
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from harness.orchestrator.store import OURS


class ArmStore:
    """The durable store as an arm sees it: statements on tables of its own, inside transactions that are not its to
    end. This guards against mistakes, not against malice: Python in one process is no security boundary."""

    def __init__(
        self,
        transaction: Callable[[], AbstractContextManager[sqlite3.Connection]],
        query: Callable[[str, tuple], list[tuple]],
    ) -> None:
        self.query: Callable[..., list[tuple]] = lambda sql, params=(): query(_allowed(sql), params)
        self._transaction = transaction

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with self._transaction() as connection:
            yield _ArmTables(
                lambda sql, params=(): connection.execute(_allowed(sql), params),
                lambda sql, rows: connection.executemany(_allowed(sql), rows),
            )


class _ArmTables:
    """A connection with `execute` and `executemany` and nothing else."""

    def __init__(self, execute: Callable[..., sqlite3.Cursor], executemany: Callable[..., sqlite3.Cursor]) -> None:
        self.execute, self.executemany = execute, executemany


_OURS = re.compile(rf"\b({'|'.join(OURS)})\b", re.IGNORECASE)
_STATEMENTS = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "REPLACE", "WITH")


@functools.lru_cache(maxsize=512)
def _allowed(sql: str) -> str:
    """The statement, if an arm may run it; raises PermissionError otherwise."""
    words = sql.split(None, 1)
    if words and (words[0].upper() not in _STATEMENTS or _OURS.search(sql)):
        raise PermissionError(f"an arm may not run: {sql[:80]}")
    return sql
