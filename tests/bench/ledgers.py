"""The effect ledger by itself: what an effect costs alone and among others, and how that grows with what it holds."""

from __future__ import annotations

import asyncio
import itertools
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from arms.mesh.ledger import Entry, Key, SqliteBackend, Write
from arms.mesh.m3_effects import EffectLedger
from harness.core.clock import monotonic_s
from harness.core.types import Attempt, Delegation, DelegationOutcome, EffectCall, Ok, Outcome
from harness.orchestrator.store import SqliteStore
from tests.bench.limits import fresh, repeated
from tests.bench.speeds import calls_of, context_of
from workloads.codegen.task import CODEGEN

SIZES = (10**3, 10**4, 10**5, 10**6)
LARGE = 10**7
"""Takes minutes and some gigabytes to build: behind `--large`."""
TOGETHER = 8
VALUE, RECEIPT = '{"status": "accepted"}', "1760000000000-0"


def orders() -> Delegation:
    return next(d for d in CODEGEN.task(1, 3).delegations if d.id == "orders")


def key_of(n: int) -> Key:
    return Key("bench", "orders", "transport", f"{n:064x}", 0)


def business_of(n: int) -> str:
    return f'["transport", "orders", ["order.created", "A-{n}"]]'


def reserve_and_record(folder: Path, n: int) -> list[float]:
    """Seconds for the two durable writes of an effect."""
    store = SqliteStore(str(fresh(folder) / "ledger.db"))
    ledger = SqliteBackend(context_of(store, orders()))
    token, numbers = ledger.lease("bench", "orders", "local").token, itertools.count()

    def both() -> None:
        i = next(numbers)
        for entry in (Entry("reserved", None, None), Entry("recorded", VALUE, RECEIPT)):
            ledger.write([Write(key_of(i), token, business_of(i), entry)])

    try:
        return repeated(both, n)
    finally:
        store.close()


def effects(folder: Path, n: int, together: int) -> list[float]:
    """Seconds per effect through the ledger's layer, with so many under way at a time. The boundary answers in the
    next turn of the loop."""
    store = SqliteStore(str(fresh(folder) / "layer.db"))
    layer, seconds = EffectLedger(context_of(store, orders())), list[float]()

    async def answer(call: EffectCall) -> Outcome:
        await asyncio.sleep(0)
        return Ok(value={}, receipt=call.call_id)

    async def work(attempt: Attempt) -> DelegationOutcome:
        calls = calls_of("one")
        for _ in range(max(n // together, 1)):
            began = monotonic_s()
            await asyncio.gather(*(layer.on_effect(next(calls), answer) for _ in range(together)))
            seconds.append((monotonic_s() - began) / together)
        return DelegationOutcome(status="done")

    try:
        asyncio.run(layer.on_delegate(Attempt(delegation=orders()), work))  # type: ignore[arg-type]
        return seconds
    finally:
        store.close()


# --- size ---------------------------------------------------------------------------------------------------------


class Grown(Struct, frozen=True):
    """A ledger of `rows` entries: seconds of a look-up and of a reservation, bytes of its file, and bytes of what it
    was told."""

    rows: int
    lookups: list[float]
    reserves: list[float]
    file_bytes: int
    told_bytes: int


def grown(folder: Path, rows: int, n: int) -> Grown:
    """A ledger that holds so many entries, loaded in bulk, and then used at random places."""
    path = fresh(folder) / "grown.db"
    store = SqliteStore(str(path))
    ledger = SqliteBackend(context_of(store, orders()))
    told = _load(path, rows)
    chance = random.Random(rows)
    token = ledger.lease("bench", "orders", "local").token

    def reserve() -> None:
        i = chance.randrange(2 * rows) | 1
        ledger.write([Write(key_of(i), token, business_of(i), Entry("reserved", None, None))])

    try:
        lookups = repeated(lambda: ledger.find(key_of(2 * chance.randrange(rows))), n)
        size = store.query("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")[0][0]
        return Grown(rows, lookups, repeated(reserve, n), size, told)
    finally:
        store.close()
        path.unlink()


def _load(path: Path, rows: int) -> int:
    """Rows of even numbers, in the order of their keys; how many bytes they say."""
    told = 0

    def entries() -> Iterator[tuple[object, ...]]:
        nonlocal told
        for i in range(0, 2 * rows, 2):
            row = ("bench", "orders", "transport", f"{i:064x}", 0, business_of(i), "recorded", 1, VALUE, RECEIPT)
            told += sum(len(str(part)) for part in row)
            yield row

    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous=OFF")
        (index,) = connection.execute("SELECT sql FROM sqlite_master WHERE name='ledger_business'").fetchone()
        connection.execute("BEGIN")
        connection.execute("DROP INDEX ledger_business")
        connection.executemany("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", entries())
        connection.execute(index)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    return told
