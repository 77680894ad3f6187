"""What an arm's durable store holds, measured from outside: the orchestrator's own tables are none of it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from harness.orchestrator.store import OURS, Journal, SqliteStore, held_in

ROOT = Path(__file__).resolve().parents[2]


def test_values_are_counted_by_table_and_tenant() -> None:
    store = SqliteStore(":memory:")
    Journal(store).end("d", "done")
    Journal(store).checkpoint("d", "p", 1, {"a.py": "0" * 64})
    with store.transaction() as db:
        db.execute("CREATE TABLE ledger (tenant TEXT, key TEXT, value TEXT, token INTEGER)")
        db.execute("CREATE TABLE spend (scope TEXT, spent INTEGER)")
        db.execute("CREATE TABLE idle (a TEXT)")
        db.executemany(
            "INSERT INTO ledger VALUES (?, ?, ?, ?)",
            [("acme", "k1", "äö", 7), ("acme", "k2", None, 12), ("bolt", "k3", "xyz", 1)],
        )
        db.execute("INSERT INTO spend VALUES ('run', 1000)")
    # acme: 4 + 2 + 4 bytes of UTF-8 + 1, and 4 + 2 + 0 + 2; bolt: 4 + 2 + 3 + 1
    assert store.held() == {"tables": {"ledger": [3, 29], "spend": [1, 7]}, "tenants": {"acme": 19, "bolt": 10}}


def test_every_table_of_the_orchestrator_is_known_as_its_own() -> None:
    store = SqliteStore(":memory:")
    assert {name for (name,) in store.query("SELECT name FROM sqlite_master WHERE type='table'")} == set(OURS)
    assert store.held() == {"tables": {}, "tenants": {}}


def test_an_arm_that_keeps_more_shows() -> None:
    store = SqliteStore(":memory:")
    with store.transaction() as db:
        db.execute("CREATE TABLE hoard (value TEXT)")
    sizes = []
    for _ in range(3):
        with store.transaction() as db:
            db.execute("INSERT INTO hoard VALUES (?)", ("x" * 100,))
        sizes.append(store.held()["tables"]["hoard"])
    assert sizes == [[1, 100], [2, 200], [3, 300]]


KILLED = """
import os, signal, sys
from harness.orchestrator.store import SqliteStore
store = SqliteStore(sys.argv[1])
with store.transaction() as db:
    db.execute("CREATE TABLE ledger (tenant TEXT, value TEXT)")
    db.execute("INSERT INTO ledger VALUES ('t', 'kept')")
store._connection.execute("BEGIN IMMEDIATE")
store._connection.execute("INSERT INTO ledger VALUES ('t', 'never committed')")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_what_it_had_committed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=ROOT, check=False)
    assert done.returncode == -9
    assert held_in(str(path)) == {"tables": {"ledger": [1, 5]}, "tenants": {"t": 5}}


def test_a_store_that_was_never_made_tells_nothing(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.Error):
        held_in(str(tmp_path / "state.db"))
    assert list(tmp_path.iterdir()) == []
