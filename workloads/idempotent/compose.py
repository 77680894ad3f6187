"""What the scripted agent of the keyed order system composes: the scenarios of its checks, in the words of its voice.

Every step puts a row under its own name. Said again, in other words or by another attempt, it changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workloads.common.voice import Voice, insert
from workloads.idempotent.facts import Facts


def scenario(voice: Voice, facts: Facts, name: str) -> str:
    """The scenario file of a check, as JSON text."""
    steps = voice.shuffle(_SCENARIOS[name](voice, facts), name, "steps", level=3)
    return voice.text({"steps": [*_expectations(facts, name), *steps]}, name)


def _put(voice: Voice, service: str, table: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row under its name. A row of that name that is there already stays as it is."""
    step = insert(voice, service, table, row)
    return {**step, "sql": f"{step['sql']} ON CONFLICT DO NOTHING"}


def _expectations(f: Facts, name: str) -> list[dict[str, Any]]:
    """What acceptance finds of the components' work before it adds its own."""
    if name != "acceptance/flow.json":
        return []
    found = (
        ("orders", "orders", "order_ref", f.order_ref),
        ("inventory", "reservations", "reservation_ref", f.reservation_ref),
        ("storefront", "prices", "price_ref", f.sku),
    )
    names = ("service", "table", "column", "value")
    return [{"do": "expect_rows", **dict(zip(names, row, strict=True))} for row in found]


def _orders(voice: Voice, f: Facts) -> list[dict[str, Any]]:
    amount = {"quantity": f.quantity, "cents": f.unit_cents}
    lines = [{"line_ref": f"{f.order_ref}-{n}", **amount} for n in (1, 2)]
    order = _put(voice, "orders", "orders", {"order_ref": f.order_ref, "sku": f.sku, **amount})
    steps = [order, *(_put(voice, "orders", "lines", line) for line in lines)]
    return steps + (_audit(voice, f) if f.audit_in == "orders" else [])


def _audit(voice: Voice, f: Facts) -> list[dict[str, Any]]:
    return [_put(voice, "orders", "audit", {"entry_ref": f.entry_ref, "action": "checked"})]


def _inventory(voice: Voice, f: Facts) -> list[dict[str, Any]]:
    moved = [{"movement_ref": f"{f.reservation_ref}-{n}", "sku": f.sku, "quantity": 1} for n in (1, 2)]
    reserved = {"reservation_ref": f.reservation_ref, "sku": f.sku, "quantity": 2}
    return [
        _put(voice, "inventory", "reservations", reserved),
        *(_put(voice, "inventory", "movements", row) for row in moved),
    ]


def _acceptance(voice: Voice, f: Facts) -> list[dict[str, Any]]:
    steps = [_put(voice, "orders", "acceptances", {"acceptance_ref": f.order_ref, "sku": f.sku})]
    return steps + (_audit(voice, f) if f.audit_in == "acceptance" else [])


def _describe(voice: Voice, f: Facts) -> list[dict[str, Any]]:
    body = voice.pick(("One order, as placed.", "An order, just as it was placed."), "describe", level=4)
    return [_put(voice, "orders", "descriptions", {"description_ref": f.order_ref, "body": body})]


def _blurb(voice: Voice, f: Facts) -> list[dict[str, Any]]:
    body = voice.pick(("Good value.", "Well worth it."), "blurb", level=4)
    return [
        _put(voice, "storefront", "blurbs", {"blurb_ref": f.sku, "body": body}),
        _put(voice, "storefront", "prices", {"price_ref": f.sku, "cents": f.unit_cents}),
    ]


_SCENARIOS: dict[str, Callable[[Voice, Facts], list[dict[str, Any]]]] = {
    "orders/flow.json": _orders,
    "inventory/flow.json": _inventory,
    "acceptance/flow.json": _acceptance,
    "orders/qualify.json": _describe,
    "storefront/qualify.json": _blurb,
}
SCENARIOS = tuple(_SCENARIOS)
