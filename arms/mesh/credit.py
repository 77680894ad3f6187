"""The durable book of rounds: what each attempt of a delegation was paid with, and the credits that were granted.

A round and the credit that pays for it are one record, so that a crash at any instant leaves both or neither.
"""

from __future__ import annotations

import json

from msgspec import Struct

from arms.mesh.control.breaker import POLICY, GradedPolicy
from harness.core.roles import ArmContext

_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS rounds (delegation TEXT, number INTEGER, kind TEXT, counted INTEGER, model TEXT,
    draft INTEGER, notes TEXT, PRIMARY KEY (delegation, number))""",
    """CREATE TABLE IF NOT EXISTS credits (component TEXT, delegation TEXT, number INTEGER,
    PRIMARY KEY (delegation, number))""",
)


def affordable(component_grants: int, run_grants: int, run_stops: int, policy: GradedPolicy = POLICY.graded) -> str:
    """Which scope has no credit left for another round: `component`, `run`, or "" when there is some."""
    if component_grants >= policy.component_grants_max:
        return "component"
    return "run" if run_grants >= policy.run_grants_max or run_stops >= policy.run_stops_max else ""


class Row(Struct, frozen=True, kw_only=True):
    """A round as it was paid for. kind: first, again, refund or granted; counted: it has used up an attempt."""

    delegation: str
    number: int
    kind: str
    counted: bool = True
    model: str = ""
    draft: int | None = None
    notes: tuple[str, ...] = ()


class Book:
    """Rounds and credits of one run, durable. A round is written down before it begins, with what pays for it."""

    def __init__(self, ctx: ArmContext) -> None:
        self._store = ctx.store
        with self._store.transaction() as db:
            for statement in _SCHEMA:
                db.execute(statement)

    def find(self, delegation: str, number: int) -> Row | None:
        rows = self._store.query(
            "SELECT kind, counted, model, draft, notes FROM rounds WHERE delegation=? AND number=?",
            (delegation, number),
        )
        if not rows:
            return None
        kind, counted, model, draft, notes = rows[0]
        return Row(
            delegation=delegation,
            number=number,
            kind=kind,
            counted=bool(counted),
            model=model,
            draft=draft,
            notes=tuple(json.loads(notes)),
        )

    def counted(self, delegation: str) -> int:
        """Rounds that used up an attempt."""
        rows = self._store.query("SELECT coalesce(sum(counted), 0) FROM rounds WHERE delegation=?", (delegation,))
        return int(rows[0][0])

    def total(self, delegation: str) -> int:
        """Rounds in all, those that were paid back or granted included."""
        return int(self._store.query("SELECT count(*) FROM rounds WHERE delegation=?", (delegation,))[0][0])

    def spend(self, row: Row, *, paid_back: bool = False) -> Row:
        """Write the next round down; what is there already stays. paid_back: the round before it does not count."""
        with self._store.transaction() as db:
            if paid_back:
                before = (row.delegation, row.number - 1)
                db.execute("UPDATE rounds SET counted=0 WHERE delegation=? AND number=?", before)
            _insert(db, row)
        return self.find(row.delegation, row.number) or row

    def grant(self, row: Row, component: str, run_stops: int) -> str:
        """Write a round on credit down, and in the same transaction the credit that pays for it, so that neither is
        ever there without the other. The name of the scope without credit, "" when it was granted."""
        with self._store.transaction() as db:
            of_component = "SELECT count(*) FROM credits WHERE component=?"
            (grants,) = db.execute(of_component, (component,)).fetchone()
            (total,) = db.execute("SELECT count(*) FROM credits").fetchone()
            short = affordable(grants, total, run_stops)
            if not short and _insert(db, row):
                db.execute("INSERT INTO credits VALUES (?, ?, ?)", (component, row.delegation, row.number))
        return short


def _insert(db: object, row: Row) -> bool:
    """Whether the row is new."""
    values = (row.delegation, row.number, row.kind, int(row.counted), row.model, row.draft, json.dumps(row.notes))
    sql = "INSERT OR IGNORE INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?)"
    return bool(db.execute(sql, values).rowcount)  # type: ignore[attr-defined]
