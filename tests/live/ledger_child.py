"""A host of the shared-ledger test: `python -m tests.live.ledger_child '{...}'`, which prints its counts as JSON.

The host itself never touches the ledger; it forks one orchestrator process after the other, each with its own
connections and its own durable store, lets it die at a seeded step, and starts the next. Some are stopped instead, for
longer than their lease, and go on when another host has taken their delegation.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from msgspec import Struct

from arms.mesh.ledger import Write
from arms.mesh.ledger_postgres import PostgresBackend
from arms.mesh.m3_effects import EffectLedger
from harness.core import rng
from harness.core.clock import Clock
from harness.core.roles import ArmContext
from harness.core.types import (
    Attempt,
    DeclaredEffect,
    Delegation,
    DelegationOutcome,
    EffectCall,
    EffectContract,
    Err,
    Json,
    Ok,
    Outcome,
    Probe,
    Seam,
    Site,
)
from harness.orchestrator.store import SqliteStore

OPEN_MAX = 3
"""Delegations of a host's interest at a time."""
SHARED_BY = 3
"""So many neighbouring delegations of a tenant each have one effect of an equal business key."""
TENANTS = ("red", "blue")

OUTSIDE = """
CREATE SCHEMA IF NOT EXISTS outside;
CREATE TABLE IF NOT EXISTS outside.events (
    id bigserial PRIMARY KEY, tenant text, subject text, cause text);
CREATE INDEX IF NOT EXISTS events_subject ON outside.events (tenant, subject);
CREATE TABLE IF NOT EXISTS outside.ended (tenant text, delegation text, host text, PRIMARY KEY (tenant, delegation));
CREATE TABLE IF NOT EXISTS outside.crashes (host text, life integer, PRIMARY KEY (host, life));
"""
EVENT = DeclaredEffect(
    boundary="transport", operation="XADD", target="orders", key=("event.subject",), volatile=("event.id",)
)
LEASE_MS = 250.0
ARRIVES_MS = 0.4 * LEASE_MS
"""An effect that has not arrived so long after the last look at its lease is refused by the outside world: the ledger
relies on it that a holder's calls are over when its lease is, and a busy machine can stop a process at any moment."""
CONTRACT = EffectContract(effects=(EVENT,), terms={"lease_ms": LEASE_MS})


class Host(Struct, frozen=True):
    """What a host is told. crashes: how many of its processes are to die before they may live."""

    name: str
    dsn: str
    folder: str
    seed: int
    crashes: int


class Step(Struct):
    """Counts the steps of one process around its effects, and ends or stops it at one of them. kill_at, stop_at: 0 for
    never."""

    kill_at: int
    stop_at: int
    seen: int = 0

    def __call__(self) -> None:
        self.seen += 1
        if self.seen == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.seen == self.stop_at:
            os.kill(os.getpid(), signal.SIGSTOP)


class Stepping(PostgresBackend):
    """A ledger whose writes are preceded and followed by a step."""

    step: Step
    vouched: float = 0.0

    def vouches(self, tenant: str, delegation: str, token: int) -> bool:
        self.vouched = _epoch_s(self._connected())
        return super().vouches(tenant, delegation, token)

    def renew(self, tenant: str, delegation: str, token: int) -> bool:
        self.vouched = _epoch_s(self._connected())
        return super().renew(tenant, delegation, token)

    def write(self, writes: Sequence[Write]) -> list[bool]:
        self.step()
        written = super().write(writes)
        self.step()
        return written


def _epoch_s(db: psycopg.Connection[Any]) -> float:
    """The server's clock."""
    row = db.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    assert row is not None
    return float(row[0])


# --- the work -----------------------------------------------------------------------------------------------------


def delegation(n: int) -> Delegation:
    """The n-th delegation of both hosts' plan: two tenants have delegations of equal names."""
    name, tenant = f"d{n // len(TENANTS)}", TENANTS[n % len(TENANTS)]
    return Delegation(id=name, tenant=tenant, goal="g", phases=("p",), contract=CONTRACT)


def subjects(d: Delegation) -> tuple[str, ...]:
    """What its effects are about, in order; the second `a` is a legitimate repeat."""
    n = int(d.id[1:])
    return f"{d.id}-a", f"{d.id}-b", f"{d.id}-a", f"shared-{n // SHARED_BY}"


def _call(d: Delegation, place: int, subject: str, cause: str) -> EffectCall:
    site = Site(delegation=d.id, phase="p", seam=Seam.TOOL, name="transport")
    event = {"id": f"{cause}-{place}", "subject": subject, "owner": d.id}
    where: dict[str, Any] = {"attempt": 1, "turn": 0, "index": 0, "ordinal": place, "cause": cause, "origin": "flow"}
    what: dict[str, Any] = {"boundary": "transport", "operation": "XADD", "target": "orders"}
    return EffectCall(site=site, call_id=f"{cause}.{place}", payload={"event": event}, **where, **what)


class Worker:
    """One orchestrator process. counts: what it met, kept on a pipe that outlives it."""

    def __init__(self, host: Host, life: int, holder: str, step: Step, counts: int) -> None:
        self._host, self._step, self._counts = host, step, counts
        self._outside = psycopg.connect(host.dsn, autocommit=True)
        self._ledger = Stepping(host.dsn)
        self._ledger.step = step
        self._cause = f"{host.name}.{life}"
        self._life, self._holder = life, holder

    def met(self, what: str, **data: Json) -> None:
        os.write(self._counts, json.dumps({"what": what, **data}).encode() + b"\n")

    async def work(self, todo: Sequence[Delegation]) -> None:
        clock = Clock()
        context = ArmContext(
            now_ms=lambda: time.monotonic() * 1000,
            sleep_ms=clock.sleep_ms,
            draw=lambda *name: rng.draw(self._host.seed, *name),
            note=self._note,
            store=SqliteStore(str(Path(self._host.folder) / f"{self._host.name}.db")),
            probe=self._probe,
            progress=lambda call_id: 0,
            contracts={d.id: CONTRACT for d in todo},
            epoch=self._life,
        )
        layer = EffectLedger(context, backend=self._ledger, holder=self._holder)
        for d in todo:
            await self._delegate(layer, d)

    async def _delegate(self, layer: EffectLedger, d: Delegation) -> None:
        async def attempt(attempt: Attempt) -> DelegationOutcome:
            self.met("began", tenant=d.tenant, delegation=d.id, token=layer._leases.token(d.id))
            for place, subject in enumerate(subjects(d)):
                outcome = await layer.on_effect(
                    _call(d, place, subject, f"{self._cause}.{d.tenant}.{d.id}"), self._effect(d)
                )
                verdict = outcome.code if isinstance(outcome, Err) else outcome.verdict.value
                self.met(verdict)
                if not isinstance(outcome, Ok):
                    return DelegationOutcome(status="failed", code=verdict)
            return DelegationOutcome(status="done")

        ended = await layer.on_delegate(Attempt(delegation=d), attempt)
        if ended.status == "done":
            row = (d.tenant, d.id, self._host.name)
            self._outside.execute("INSERT INTO outside.ended VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", row)
        elif ended.verdict is not None:
            self.met("gave up")

    def _effect(self, d: Delegation) -> Any:
        async def effect(call: EffectCall) -> Outcome:
            self._step()
            row = (d.tenant, call.payload["event"]["subject"], call.call_id, self._ledger.vouched + ARRIVES_MS / 1000)
            insert = "INSERT INTO outside.events (tenant, subject, cause) SELECT %s, %s, %s WHERE"
            in_time = " extract(epoch FROM clock_timestamp()) < %s RETURNING id"
            told = self._outside.execute(insert + in_time, row).fetchone()
            self._step()
            return Ok(value={}, receipt=str(told[0])) if told else Err(code="late", definite=True)

        self._tenant = d.tenant
        return effect

    async def _probe(self, call: EffectCall) -> Probe:
        where = (self._tenant, call.payload["event"]["subject"])
        rows = self._outside.execute("SELECT id FROM outside.events WHERE tenant=%s AND subject=%s ORDER BY id", where)
        found = tuple(str(id) for (id,) in rows)
        return Probe(count=len(found), receipts=found, value={} if found else None)

    def _note(self, kind: str, data: Mapping[str, Json]) -> None:
        if kind == "in-doubt":
            self.met(f"doubt {data['says']}")
        elif kind == "lease" and data["from"] not in ("", self._holder):
            self.met("took over" if data["waited_ms"] else "took over without waiting")


# --- the host -----------------------------------------------------------------------------------------------------


class Zombie(Struct, frozen=True):
    """A stopped process, what it held when it stopped, and its pipe."""

    pid: int
    held: tuple[str, str]
    token: int
    counts: int


class Told(Struct):
    """What the processes of a host met."""

    counts: Counter[str]
    held: tuple[str, str, int] = ("", "", 0)

    def read(self, pipe: int) -> None:
        """Everything that is in the pipe by now."""
        text = b""
        while chunk := _read(pipe):
            text += chunk
        for line in text.splitlines():
            data = json.loads(line)
            self.counts[data["what"]] += 1
            if data["what"] == "began":
                self.held = (data["tenant"], data["delegation"], data["token"])


def _read(pipe: int) -> bytes:
    try:
        return os.read(pipe, 65536)
    except BlockingIOError:
        return b""


def run(host: Host) -> Counter[str]:
    """Processes until enough of them died and everything that was begun is done."""
    told, zombies, life = Told(Counter()), list[Zombie](), 0
    while True:
        life += 1
        calm = told.counts["crashes"] >= host.crashes
        todo = _todo(host, life, calm, [z.held for z in zombies])
        if not todo and not zombies:
            return told.counts
        # a process that was stopped is not dead: who comes after it is no restart of it, and waits for its lease
        holder = f"{host.name}.{told.counts['stopped']}"
        pid, pipe = _start(host, life, holder, todo, calm)
        _, status = os.waitpid(pid, os.WUNTRACED)
        told.read(pipe)
        if os.WIFSTOPPED(status):
            told.counts["stopped"] += 1
            zombies.append(Zombie(pid, told.held[:2], told.held[2], pipe))
        else:
            os.close(pipe)
            _count_end(told, status)
        zombies = [z for z in zombies if not _woken(host, z, told)]


def _count_end(told: Told, status: int) -> None:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        told.counts["crashes"] += 1
    elif status:
        told.counts["broken"] += 1


def _todo(host: Host, life: int, calm: bool, stopped: Sequence[tuple[str, str]]) -> list[Delegation]:
    """Delegations that are not done yet, in an order of this life's own. A calm host begins none that nobody
    began, and takes those of its own stopped processes too: the other host may be through by now."""
    with psycopg.connect(host.dsn, autocommit=True) as db:
        done = set(db.execute("SELECT tenant, delegation FROM outside.ended").fetchall())
        begun = set(db.execute("SELECT tenant, delegation FROM agentmesh_ledger.leases").fetchall())
    found: list[Delegation] = []
    for n in range(1_000_000):
        d = delegation(n)
        if (calm and (d.tenant, d.id) not in begun and n > 2 * len(begun) + 8) or (not calm and len(found) >= OPEN_MAX):
            break
        wanted = (d.tenant, d.id) not in done and (calm or (d.tenant, d.id) not in stopped)
        if wanted and not (calm and (d.tenant, d.id) not in begun):
            found.append(d)
    return sorted(found, key=lambda d: rng.draw(host.seed, host.name, life, d.tenant, d.id))


def _start(host: Host, life: int, holder: str, todo: list[Delegation], calm: bool) -> tuple[int, int]:
    """Fork an orchestrator process; its number, and the pipe that it tells its counts through."""
    kill_at = 0 if calm else 1 + rng.integer(host.seed, 0, 13, host.name, "kill", life)
    stops = not calm and rng.draw(host.seed, host.name, "stop", life) < 0.06
    step = Step(kill_at=0 if stops else kill_at, stop_at=1 + rng.integer(host.seed, 0, 13, life) if stops else 0)
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    pid = os.fork()
    if pid:
        os.close(writes)
        return pid, reads
    code = 1
    try:
        asyncio.run(Worker(host, life, holder, step, writes).work(todo))
        code = 0
    except BaseException as error:
        print(f"{host.name} life {life}: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def _woken(host: Host, zombie: Zombie, told: Told) -> bool:
    """Let a stopped process go on to its end when somebody else has its delegation; whether that is so."""
    with psycopg.connect(host.dsn, autocommit=True) as db:
        sql = "SELECT token FROM agentmesh_ledger.leases WHERE tenant=%s AND delegation=%s"
        row = db.execute(sql, zombie.held).fetchone()
    if row is None or row[0] <= zombie.token:
        time.sleep(0.02)
        return False
    os.kill(zombie.pid, signal.SIGCONT)
    _, status = os.waitpid(zombie.pid, 0)
    before = told.counts["fenced"]
    told.read(zombie.counts)
    os.close(zombie.counts)
    told.counts["zombies"] += 1
    told.counts["zombies fenced"] += told.counts["fenced"] > before
    _count_end(told, status)
    return True


if __name__ == "__main__":
    print(json.dumps(run(msgspec.json.decode(sys.argv[1].encode(), type=Host))))
