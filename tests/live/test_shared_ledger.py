"""Two hosts and their zombies share a ledger on a real server, and die a thousand times: nothing is doubled or lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psycopg
import pytest

from arms.mesh.ledger import Entry, Key, Write
from arms.mesh.ledger_postgres import LedgerError, PostgresBackend
from tests.live.ledger_child import OUTSIDE, Host, delegation, subjects
from tests.postgres import running

pytestmark = pytest.mark.live

CRASHES = int(os.environ.get("AGENTMESH_CRASHES", "1000"))
HOSTS = ("north", "south")
LIMIT_S = 1500.0


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with running() as found:
        yield found


def test_a_thousand_crashes_of_two_hosts_double_and_lose_nothing(dsn: str, tmp_path: Path) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("DROP SCHEMA IF EXISTS outside, agentmesh_ledger CASCADE")
        db.execute(OUTSIDE)
    PostgresBackend(dsn).close()
    hosts = [Host(name, dsn, str(tmp_path), 7, CRASHES // len(HOSTS)) for name in HOSTS]
    command = [sys.executable, "-m", "tests.live.ledger_child"]
    started = [
        subprocess.Popen([*command, msgspec.json.encode(h).decode()], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for h in hosts
    ]
    counts: Counter[str] = Counter()
    try:
        for process in started:
            out, err = process.communicate(timeout=LIMIT_S)
            assert process.returncode == 0, err.decode()
            assert not err, err.decode()
            counts.update(json.loads(out))
    finally:
        for process in started:
            process.kill()
    with psycopg.connect(dsn, autocommit=True) as db:
        ended = db.execute("SELECT tenant, delegation FROM outside.ended").fetchall()
        begun = db.execute("SELECT tenant, delegation FROM agentmesh_ledger.leases").fetchall()
        held = db.execute("SELECT tenant, subject, count(*) FROM outside.events GROUP BY 1, 2").fetchall()
        doubted = db.execute("SELECT count(*) FROM agentmesh_ledger.ledger WHERE state <> 'recorded'").fetchone()
    print(f"\n{len(ended)} delegations, {sum(n for *_, n in held)} effects; {dict(counts.most_common())}")

    assert sorted(ended) == sorted(begun), "something that was begun was not brought to its end"
    plan = {(d.tenant, d.id): d for d in map(delegation, range(2 * len(ended) + 16))}
    wanted = Counter((tenant, subject) for tenant, name in ended for subject in subjects(plan[tenant, name]))
    assert Counter({(tenant, subject): n for tenant, subject, n in held}) == wanted
    assert doubted == (0,)
    assert counts["crashes"] >= CRASHES
    assert counts["broken"] == 0
    assert counts["zombies"] >= CRASHES // 100
    for seen in ("zombies fenced", "took over", "reconciled", "suppressed-as-duplicate", "executed", "doubt absent"):
        assert counts[seen], f"never seen: {seen}"


def test_a_connection_that_died_is_opened_again_and_nothing_is_lost(dsn: str) -> None:
    backend = PostgresBackend(dsn, schema="reopened")
    token = backend.lease("t", "d", "h").token
    key, done = Key("t", "d", "b", "f" * 20_000, 0), Entry("recorded", "v", "r")
    one = Write(key, token, "long business " * 2_000, done)
    with psycopg.connect(dsn, autocommit=True) as db:

        def kill() -> None:
            others = "pid <> pg_backend_pid() AND backend_type = 'client backend'"
            db.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}")  # type: ignore[arg-type]

        kill()
        assert backend.write([one]) == [True]
        kill()
        assert backend.find(key) == done
        kill()
        assert backend.claim(one, 1) == "written"
        kill()
        assert backend.write([one, one]) == [True, True]
        assert backend.books("t", one.business, "").recorded == 1
        with pytest.raises(LedgerError, match="NUL"):
            backend.write([Write(Key("t", "d", "b", "\0", 0), token, "x", done)])
        db.execute("DROP SCHEMA reopened CASCADE")
        with pytest.raises(LedgerError, match="does not exist"):
            backend.claim(one, 1)
    backend.close()
