"""The durable memory of repairs: which round a delegation is in, what ran in it, and which attempt numbers are taken.

A crash between two writes must neither repeat a repair that had ended nor reuse the number of an attempt.
"""

from __future__ import annotations

import json

import msgspec
from msgspec import Struct

from arms.common.evidence import Choice
from harness.core.roles import Store
from harness.core.types import Attempt, DelegationOutcome

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS repair_rounds (delegation TEXT, round INTEGER, choice TEXT, outcome TEXT, notes TEXT,"
    " handed INTEGER, state TEXT, PRIMARY KEY (delegation, round))",
    "CREATE TABLE IF NOT EXISTS repair_runs (delegation TEXT, round INTEGER, component TEXT, number INTEGER,"
    " status TEXT, PRIMARY KEY (delegation, round, component))",
    "CREATE TABLE IF NOT EXISTS repair_numbers (delegation TEXT PRIMARY KEY, highest INTEGER)",
)


class RepairRound(Struct, frozen=True, kw_only=True):
    """One time that a delegation failed and components were woken for it. notes: those of the failed attempt."""

    delegation: str
    number: int
    choice: Choice
    outcome: DelegationOutcome
    notes: tuple[str, ...]
    handed: int | None = None

    @property
    def told(self) -> str:
        """What the next attempt of the failed delegation is told."""
        woken = ", ".join(self.choice.components)
        return f"{self.outcome.code or 'failed'}; then repaired: {woken}"


class RepairBook:
    """The durable rounds of one trial, and the highest attempt number of each delegation that takes part in one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        with store.transaction() as db:
            for statement in _SCHEMA:
                db.execute(statement)

    def last(self, delegation: str) -> RepairRound | None:
        rows = self._store.query(
            "SELECT round, choice, outcome, notes, handed FROM repair_rounds WHERE delegation=?"
            " ORDER BY round DESC LIMIT 1",
            (delegation,),
        )
        if not rows:
            return None
        number, choice, outcome, notes, handed = rows[0]
        return RepairRound(
            delegation=delegation,
            number=number,
            choice=msgspec.json.decode(choice, type=Choice),
            outcome=msgspec.json.decode(outcome, type=DelegationOutcome),
            notes=tuple(json.loads(notes)),
            handed=handed,
        )

    def open(self, one: RepairRound) -> None:
        texts = (msgspec.json.encode(one.choice).decode(), msgspec.json.encode(one.outcome).decode())
        row = (one.delegation, one.number, *texts, json.dumps(one.notes), None, "waking")
        with self._store.transaction() as db:
            db.execute("INSERT INTO repair_rounds VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def close(self, one: RepairRound, handed: int | None) -> None:
        """The round is over: the failed delegation is handed on as this attempt, or, with None, not at all."""
        with self._store.transaction() as db:
            row = (handed, "over", one.delegation, one.number)
            db.execute("UPDATE repair_rounds SET handed=?, state=? WHERE delegation=? AND round=?", row)

    def waking(self, delegation: str) -> RepairRound | None:
        """The round that a crash interrupted, if any."""
        rows = self._store.query("SELECT 1 FROM repair_rounds WHERE delegation=? AND state='waking'", (delegation,))
        return self.last(delegation) if rows else None

    def run(self, one: RepairRound, component: str) -> tuple[int, str] | None:
        """Number and status of this component's repair in this round, None before it began."""
        where = (one.delegation, one.number, component)
        rows = self._store.query(
            "SELECT number, status FROM repair_runs WHERE delegation=? AND round=? AND component=?", where
        )
        return rows[0] if rows else None

    def note_run(self, one: RepairRound, component: str, repair: Attempt, status: str) -> None:
        with self._store.transaction() as db:
            row = (one.delegation, one.number, component, repair.number, status)
            db.execute("INSERT OR REPLACE INTO repair_runs VALUES (?, ?, ?, ?, ?)", row)
            self.rise(repair.delegation.id, repair.number)

    def highest(self, delegation: str) -> int:
        rows = self._store.query("SELECT highest FROM repair_numbers WHERE delegation=?", (delegation,))
        return int(rows[0][0]) if rows else 0

    def rise(self, delegation: str, number: int) -> None:
        """An attempt of this number has begun; layers further in may have counted on by themselves."""
        if number > self.highest(delegation):
            with self._store.transaction() as db:
                db.execute("INSERT OR REPLACE INTO repair_numbers VALUES (?, ?)", (delegation, number))
