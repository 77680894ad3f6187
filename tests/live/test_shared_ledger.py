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

from arms.mesh.ledger_postgres import PostgresBackend
from tests.live.ledger_child import OUTSIDE, Host, delegation, subjects
from tests.postgres import running

pytestmark = pytest.mark.live

CRASHES = int(os.environ.get("AGENTMESH_CRASHES", "1000"))
HOSTS = ("north", "south")
LIMIT_S = 600.0


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
