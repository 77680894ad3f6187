"""Canonical form: spellings of one effect that must become one text, and effects that must never."""

from __future__ import annotations

import pytest

from arms.mesh.control.canonical import RULES, fingerprint, strip
from arms.mesh.identity import content
from harness.core import payload as payloads
from harness.core.types import DeclaredEffect, Json
from tests.unit.armbench import effect

EVENT = DeclaredEffect(
    boundary="transport", operation="XADD", target="orders", key=("event.subject",), volatile=("event.seen_by",)
)
ROWS = DeclaredEffect(
    boundary="database", operation="execute", target="orders", key=("row.order_ref",), volatile=("row.made_by",)
)


def text(payload: dict[str, Json], declared: DeclaredEffect = EVENT, **call: str) -> str:
    return content(effect(payload, declared, **call), declared)


def event(**fields: Json) -> dict[str, Json]:
    return {"event": {"type": "order.created", "subject": "A-1", "data": {"quantity": 2, "sku": "S"}, **fields}}


def row(sql: str, *params: Json) -> dict[str, Json]:
    return {"sql": sql, "params": list(params)}


SAME_EVENTS = {
    "key order": {"event": {"data": {"sku": "S", "quantity": 2}, "subject": "A-1", "type": "order.created"}},
    "a number as a float": event(data={"quantity": 2.0, "sku": "S"}),
    "a UUID": event(id="123e4567-e89b-42d3-a456-426614174000"),
    "a UUID in capitals": event(id="123E4567-E89B-42D3-A456-426614174000"),
    "a time": event(time="2026-01-01T00:00:00Z"),
    "a time with zone and fraction": event(time="2026-01-01 00:00:00.123+02:00"),
    "a time of another clock": event(time="2026-01-01T7:05Z"),
    "a trace": event(trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    "milliseconds since 1970": event(data={"quantity": 2, "sku": "S", "at": 1_760_000_000_123}),
    "a name of bookkeeping": event(data={"quantity": 2, "sku": "S", "request_id": "r-17"}),
    "a name of bookkeeping in capitals": event(Correlation_Id="c"),
    "a declared path": event(seen_by="worker 7"),
}


@pytest.mark.parametrize("spelling", SAME_EVENTS.values(), ids=SAME_EVENTS)
def test_another_spelling_of_an_event_is_the_same_effect(spelling: dict[str, Json]) -> None:
    assert text(spelling) == text(event())


OTHER_EVENTS = {
    "another order": event(subject="A-2"),
    "another type": event(type="order.accepted"),
    "another quantity": event(data={"quantity": 3, "sku": "S"}),
    "nearly the same quantity": event(data={"quantity": 2.5, "sku": "S"}),
    "a quantity in words": event(data={"quantity": "2", "sku": "S"}),
    "a truth value for a number": event(data={"quantity": True, "sku": "S"}),
    "a null for a number": event(data={"quantity": None, "sku": "S"}),
    "another article": event(data={"quantity": 2, "sku": "s"}),
    "a field more": event(data={"quantity": 2, "sku": "S", "gift": True}),
    "a field less": event(data={"quantity": 2}),
    "a large number that is no time": event(data={"quantity": 2, "sku": "S", "cents": 999_999_999_999}),
    "a date without a time": event(due="2026-01-01"),
    "an id of no usual shape": event(id="A-2026-01-01"),
    "a text around an id": event(note="order 123e4567-e89b-42d3-a456-426614174000"),
    "the undeclared path in another place": event(data={"quantity": 2, "sku": "S", "seen_by": "worker 7"}),
    "a list in another order": event(lines=[1, 2]),
}


@pytest.mark.parametrize("other", OTHER_EVENTS.values(), ids=OTHER_EVENTS)
def test_another_event_is_another_effect(other: dict[str, Json]) -> None:
    assert text(other) != text(event())
    assert text(event(lines=[2, 1])) != text(event(lines=[1, 2]))


def test_another_stream_or_operation_is_another_effect() -> None:
    assert len({text(event()), text(event(), target="stock"), text(event(), operation="XDEL")}) == 3


def test_no_two_of_the_other_events_are_one() -> None:
    texts = [text(other) for other in OTHER_EVENTS.values()]
    assert len({fingerprint(t) for t in texts}) == len(texts)


# --- SQL ----------------------------------------------------------------------------------------------------------

PLAIN = row("INSERT INTO orders (order_ref, quantity) VALUES (?, ?)", "A-1", 2)
SAME_ROWS = {
    "layout": row("insert  into orders(order_ref,quantity)\nvalues (?,?)", "A-1", 2),
    "columns in another order": row("INSERT INTO orders (quantity, order_ref) VALUES (?, ?)", 2, "A-1"),
    "a literal": row("INSERT INTO orders (order_ref, quantity) VALUES ('A-1', ?)", 2),
    "literals only": row("INSERT INTO orders (order_ref, quantity) VALUES ('A-1', 2)"),
    "a number as a float": row("INSERT INTO orders (order_ref, quantity) VALUES (?, ?)", "A-1", 2.0),
    "a time": row("INSERT INTO orders (order_ref, at, quantity) VALUES (?, ?, ?)", "A-1", "2026-01-01T00:00:00Z", 2),
    "a declared column": row("INSERT INTO orders (order_ref, quantity, made_by) VALUES (?, ?, ?)", "A-1", 2, "w7"),
    "a name of bookkeeping": row("INSERT INTO orders (order_ref, quantity, nonce) VALUES (?, ?, ?)", "A-1", 2, "n"),
}


@pytest.mark.parametrize("spelling", SAME_ROWS.values(), ids=SAME_ROWS)
def test_another_spelling_of_an_insert_is_the_same_effect(spelling: dict[str, Json]) -> None:
    assert text(spelling, ROWS) == text(PLAIN, ROWS)


OTHER_ROWS = {
    "another order": row("INSERT INTO orders (order_ref, quantity) VALUES (?, ?)", "A-2", 2),
    "another order in a literal": row("INSERT INTO orders (order_ref, quantity) VALUES ('A-2', ?)", 2),
    "another quantity": row("INSERT INTO orders (order_ref, quantity) VALUES (?, ?)", "A-1", 3),
    "values the other way round": row("INSERT INTO orders (order_ref, quantity) VALUES (?, ?)", 2, "A-1"),
    "another table": row("INSERT INTO audit (order_ref, quantity) VALUES (?, ?)", "A-1", 2),
    "a column more": row("INSERT INTO orders (order_ref, quantity, sku) VALUES (?, ?, ?)", "A-1", 2, "S"),
    "two rows": row("INSERT INTO orders (order_ref, quantity) VALUES (?, ?), (?, ?)", "A-1", 2, "A-2", 2),
    "two equal rows": row("INSERT INTO orders (order_ref, quantity) VALUES (?, ?), (?, ?)", "A-1", 2, "A-1", 2),
    "an update": row("UPDATE orders SET quantity = ? WHERE order_ref = ?", 2, "A-1"),
    "a deletion": row("DELETE FROM orders WHERE order_ref = ?", "A-1"),
    "no SQL": row("INSERT INTO orders (", "A-1", 2),
}


@pytest.mark.parametrize("other", OTHER_ROWS.values(), ids=OTHER_ROWS)
def test_another_statement_is_another_effect(other: dict[str, Json]) -> None:
    assert text(other, ROWS) != text(PLAIN, ROWS)


def test_no_two_of_the_other_statements_are_one_but_the_two_spellings_of_another_order() -> None:
    assert len({text(other, ROWS) for other in OTHER_ROWS.values()}) == len(OTHER_ROWS) - 1


TWO_ORDERS: dict[str, tuple[str, Json, Json]] = {
    "UPDATE": ("UPDATE orders SET quantity = 2 WHERE order_ref = ?", ["A-1"], ["A-2"]),
    "several rows": ("INSERT INTO orders (order_ref) VALUES (?), (?)", ["A-1", "A-3"], ["A-1", "A-2"]),
    "no columns": ("INSERT INTO orders VALUES (?, ?)", ["A-1", 2], ["A-2", 2]),
}
NOT_PLAIN: dict[str, tuple[str, Json, Json]] = {
    "a function": ("INSERT INTO orders (sku, order_ref) VALUES (lower(?), ?)", ["x", "A-1"], ["x", "A-2"]),
    "INSERT ... SELECT": ("INSERT INTO orders (order_ref) SELECT ?", ["A-1"], ["A-2"]),
    "names": ("INSERT INTO orders (order_ref) VALUES (:ref)", {"ref": "A-1"}, {"ref": "A-2"}),
}
"""Statements that are not a plain list of values: `harness.core.payload.rows_of` leaves them alone."""


@pytest.mark.parametrize(
    ("sql", "one", "two"),
    [
        *(pytest.param(*case, id=name) for name, case in TWO_ORDERS.items()),
        *(pytest.param(*case, id=name) for name, case in NOT_PLAIN.items()),
    ],
)
def test_two_orders_are_two_effects_in_whatever_statement(sql: str, one: Json, two: Json) -> None:
    """Merging them would lose the second order, so a statement that is not understood must be left as it is."""
    assert text({"sql": sql, "params": one}, ROWS) != text({"sql": sql, "params": two}, ROWS)


# --- the parts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "volatile", "kept"),
    [
        ({"a": {"b": 1, "c": 2}}, ["a.b"], {"a": {"c": 2}}),
        ({"a": {"b": 1}, "b": 2}, ["b"], {"a": {"b": 1}}),
        ({"a": [{"b": 1, "c": 2}]}, ["a.b"], {"a": [{"c": 2}]}),
        ({"row": {"x": 1, "y": 2}, "rows": [{"x": 1, "y": 2}]}, ["row.x"], {"row": {"y": 2}, "rows": [{"y": 2}]}),
        ([3.0, 3.5, -0.0, True], [], [3, 3.5, 0, True]),
        ({"nonce": 1, "NONCE": 2, "none": None}, [], {"none": None}),
        ("text", [], "text"),
    ],
)
def test_what_is_volatile_goes_and_everything_else_stays(value: Json, volatile: list[str], kept: Json) -> None:
    assert strip(value, volatile) == kept


def test_without_a_declaration_the_rules_still_hold() -> None:
    spelt = event(id="123e4567-e89b-42d3-a456-426614174000", time="2026-01-01T00:00:00Z")
    assert content(effect(spelt), None) == content(effect(event()), None)
    assert content(effect(event(seen_by="w")), None) != content(effect(event()), None)


def test_the_rules_know_no_word_of_the_workloads() -> None:
    """A good third of what a workload varies is undeclared, and then only a shape may give it away."""
    own = {"type", "subject", "source", "sku", "quantity", "cents", "note", "emitted_ms", "worker", "created_at"}
    assert own & set(RULES.names) == set()


def test_a_view_of_an_insert_names_its_first_row_and_keeps_all() -> None:
    two = row("INSERT INTO orders (order_ref) VALUES (?), ('A-2')", "A-1")
    view = payloads.view(effect(two, ROWS))
    assert view == {
        "table": "orders",
        "row": {"order_ref": "A-1"},
        "rows": [{"order_ref": "A-1"}, {"order_ref": "A-2"}],
    }
