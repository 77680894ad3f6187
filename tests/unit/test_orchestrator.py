"""The orchestrator: which delegations may start, what survives a kill, and what an agent is told."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.core.types import Delegation, EffectContract, Err, Ok, Refused, Verdict
from harness.orchestrator import plan
from harness.orchestrator.delegate import _shown, _tool_call
from harness.orchestrator.store import Journal, SqliteStore

ROOT = Path(__file__).resolve().parents[2]


def delegation(id: str, *needs: str, **more) -> Delegation:
    return Delegation(id=id, tenant="t", goal="g", phases=("p",), contract=EffectContract(), needs=needs, **more)


PLAN = (delegation("a"), delegation("b"), delegation("c", "a"), delegation("d", "b", "c"))


@pytest.mark.parametrize(
    ("ended", "running", "ready"),
    [
        ({}, set(), ["a", "b"]),
        ({}, {"a"}, ["b"]),
        ({"a": "done"}, {"b"}, ["c"]),
        ({"a": "failed", "b": "done"}, set(), []),
        ({"a": "done", "b": "done", "c": "done"}, set(), ["d"]),
    ],
)
def test_a_delegation_starts_when_all_it_needs_ended_well(ended, running, ready) -> None:
    assert [d.id for d in plan.ready(PLAN, ended, running)] == ready


@pytest.mark.parametrize(
    ("ended", "lost"),
    [({"a": "failed"}, ["c", "d"]), ({"b": "stopped"}, ["d"]), ({"a": "done"}, [])],
)
def test_a_failure_reaches_what_depends_on_it_and_nothing_else(ended, lost) -> None:
    assert [d.id for d in plan.unreachable(PLAN, ended)] == lost


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ((delegation("a"), delegation("a")), "appears twice"),
        ((delegation("a", "z"),), "names 'z'"),
        ((delegation("a", depth=4),), "depth 4"),
        ((delegation("a", "b"), delegation("b", "a")), "wait for each other"),
    ],
)
def test_a_broken_plan_is_refused(broken, message) -> None:
    with pytest.raises(ConfigError, match=message):
        plan.validate(broken)


def test_a_transaction_rolls_back_on_whatever_is_raised(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "state.db"))
    with store.transaction() as db:
        db.execute("CREATE TABLE t (x)")
    with pytest.raises(KeyboardInterrupt):
        _write_and_die(store)
    assert store.query("SELECT count(*) FROM t") == [(0,)]


def _write_and_die(store: SqliteStore) -> None:
    with store.transaction() as db:
        db.execute("INSERT INTO t VALUES (1)")
        raise KeyboardInterrupt


def test_a_nested_transaction_joins_the_outer_one(tmp_path: Path) -> None:
    commits: list[int] = []
    store = SqliteStore(str(tmp_path / "state.db"), lambda: commits.append(1))
    with store.transaction() as db:
        db.execute("CREATE TABLE t (x)")
        with store.transaction() as inner:
            inner.execute("INSERT INTO t VALUES (1)")
    assert commits == [1]


def test_progress_tells_the_interrupted_attempt_and_the_accepted_phases(tmp_path: Path) -> None:
    journal = Journal(SqliteStore(str(tmp_path / "state.db")))
    journal.open_attempt("a", 1)
    journal.close_attempt("a", 1, "failed")
    journal.open_attempt("a", 2)
    journal.checkpoint("a", "p", 2, {"f": "0" * 64})
    seen = journal.progress("a")
    assert (seen.open_attempt, seen.attempts, seen.phases, seen.end) == (2, 2, ("p",), None)


WRITER = """
import sys
from harness.orchestrator.store import SqliteStore
store = SqliteStore(sys.argv[1])
with store.transaction() as db:
    db.execute("CREATE TABLE IF NOT EXISTS pairs (a, b)")
n = 0
while True:
    with store.transaction() as db:
        db.execute("INSERT INTO pairs VALUES (?, 0)", (n,))
        db.execute("UPDATE pairs SET b = ? WHERE a = ?", (n, n))
    print(n, flush=True)
    n += 1
"""


def test_what_was_committed_survives_sigkill_and_what_was_not_is_gone(tmp_path: Path) -> None:
    for life in range(3):
        path = tmp_path / f"{life}.db"
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(50)]
        os.kill(process.pid, signal.SIGKILL)
        told += [int(line) for line in process.stdout.read().split()]
        process.wait()
        rows = sqlite3.connect(path).execute("SELECT a, b FROM pairs ORDER BY a").fetchall()
        assert [a for a, _ in rows][: len(told)] == told
        assert all(a == b for a, b in rows)


@pytest.mark.parametrize(
    "wanted",
    [
        {"id": "1", "name": "shell", "arguments": "{}"},
        {"id": "1", "name": "read", "arguments": "{}"},
        {"id": "1", "name": "read", "arguments": "[]"},
        {"id": "1", "name": "read", "arguments": "{not json"},
    ],
)
def test_a_tool_call_that_cannot_be_is_told_to_the_agent_and_crosses_no_seam(wanted) -> None:
    call = _tool_call(None, None, "p", 0, 0, wanted)  # type: ignore[arg-type]
    assert isinstance(call, Err)
    assert call.code == "bad-arguments"


def test_the_agent_sees_values_errors_and_refusals() -> None:
    assert _shown(Ok(value={"passed": True})) == {"passed": True}
    assert _shown(Err(code="timeout", definite=False)) == {"error": "timeout", "certain": False}
    refused = _shown(Refused(verdict=Verdict.STALLED, because="loop"))
    assert refused == {"error": "refused-as-stalled", "refused": True, "because": "loop"}
