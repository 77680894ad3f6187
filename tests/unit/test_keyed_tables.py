"""Tables with unique keys in the sim world: SQLite decides what a repeat is."""

from __future__ import annotations

from harness.core.types import EffectCall, Err, Ok, Seam, Site
from harness.world.sim.tables import KeyedTables

KEYED = "CREATE TABLE orders (id INTEGER PRIMARY KEY, order_ref TEXT UNIQUE, cents INTEGER)"
PUT = "INSERT INTO orders (order_ref, cents) VALUES (?, ?) ON CONFLICT DO NOTHING"


def call(sql: str, *params: object, target: str = "orders") -> EffectCall:
    return EffectCall(
        site=Site(delegation="orders", phase="local_verification", seam=Seam.TOOL, name="database"),
        call_id="e1",
        attempt=1,
        turn=0,
        index=0,
        ordinal=0,
        cause="t1",
        origin="flow_orders",
        boundary="database",
        operation="execute",
        target=target,
        payload={"sql": sql, "params": list(params)},
    )


def test_a_row_is_kept_once_and_its_repeat_changes_nothing() -> None:
    tables = KeyedTables({"orders": (KEYED,)})
    assert tables.without_row(call(PUT, "A-1", 100)) is None
    repeated = tables.without_row(call(PUT, "A-1", 200))
    assert isinstance(repeated, Ok)
    assert repeated.value["rowcount"] == 0
    assert tables.without_row(call(PUT, "A-2", 100)) is None


def test_an_insert_that_does_not_say_what_to_do_is_refused_the_second_time_as_the_live_service_refuses_it() -> None:
    tables = KeyedTables({"orders": (KEYED,)})
    plain = "INSERT INTO orders (order_ref, cents) VALUES (?, ?)"
    assert tables.without_row(call(plain, "A-1", 100)) is None
    refused = tables.without_row(call(plain, "A-1", 100))
    assert isinstance(refused, Err)
    assert refused.definite
    assert refused.code == "sql-error"
    assert refused.detail.startswith("SQLITE_CONSTRAINT_UNIQUE: UNIQUE constraint failed: orders.order_ref")


def test_a_service_without_a_unique_key_takes_every_row() -> None:
    tables = KeyedTables({"orders": (KEYED.replace(" UNIQUE", ""),)})
    assert tables.without_row(call(PUT, "A-1", 100)) is None
    assert tables.without_row(call(PUT, "A-1", 100)) is None
    assert tables.without_row(call(PUT, "A-1", 100, target="elsewhere")) is None
