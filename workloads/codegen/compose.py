"""What the scripted agent of the order system composes: the scenarios of its checks, in the words of its voice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workloads.codegen.facts import Facts
from workloads.common.voice import Voice, completion_request, event, insert


def scenario(voice: Voice, facts: Facts, name: str) -> str:
    """The scenario file of a check, as JSON text."""
    steps = voice.shuffle(_SCENARIOS[name](voice, facts), name, "steps", level=3)
    reads = [{"do": "count", "stream": s} for s in ("orders", "stock")]
    steps[1:1] = reads[: int(voice.pick((0, 1, 2), name, "reads", level=3))]
    return voice.text({"steps": [*_expectations(facts, name), *steps]}, name)


def _expectations(f: Facts, name: str) -> list[dict[str, Any]]:
    """What acceptance finds of the components' work before it adds its own: at least this much must be there."""
    if name != "acceptance/flow.json":
        return []
    return [
        {"do": "expect_rows", "service": "orders", "table": "orders", "column": "order_ref", "value": f.order_ref},
        {
            "do": "expect_rows",
            "service": "inventory",
            "table": "reservations",
            "column": "reservation_ref",
            "value": f.reservation_ref,
        },
        {"do": "expect_events", "stream": "orders", "least": 1},
        {"do": "expect_events", "stream": "stock", "least": 1},
    ]


def _orders(voice: Voice, f: Facts) -> list[dict[str, Any]]:
    amount = {"quantity": f.quantity, "cents": f.unit_cents}
    row = {"order_ref": f.order_ref, "sku": f.sku, **amount}
    created = event(voice, "order.created", f.order_ref, {"sku": f.sku, **amount}, "created")
    steps = [insert(voice, "orders", "orders", row), {"do": "publish", "stream": "orders", "event": created}]
    return steps + (_audit(voice, f) if f.audit_in == "orders" else [])


def _audit(voice: Voice, f: Facts) -> list[dict[str, Any]]:
    return [insert(voice, "orders", "audit", {"entry_ref": f.entry_ref, "action": "checked"})]


def _inventory(voice: Voice, f: Facts) -> list[dict[str, Any]]:
    """Two units are reserved by two events of equal content: a legitimate repeat."""
    data = {"sku": f.sku, "quantity": 1}
    row = {"reservation_ref": f.reservation_ref, "sku": f.sku, "quantity": 2}
    if voice.pick((False, True), "batch", level=5):
        items = [{"type": "stock.reserved", "subject": f.sku, **data} for _ in range(2)]
        published = [event(voice, "stock.reserved.batch", f.sku, {"items": items}, "batch")]
    else:
        published = [event(voice, "stock.reserved", f.sku, data, "reserved", i) for i in range(2)]
    steps = [{"do": "publish", "stream": "stock", "event": e} for e in published]
    return [insert(voice, "inventory", "reservations", row), *steps]


def _acceptance(voice: Voice, f: Facts) -> list[dict[str, Any]]:
    data = {"sku": f.sku, "worker": voice.fresh("$worker", "accepted")}  # volatile, of no usual shape, undeclared
    accepted = event(voice, "order.accepted", f.order_ref, data, "accepted")
    steps = [{"do": "publish", "stream": "orders", "event": accepted}]
    return steps + (_audit(voice, f) if f.audit_in == "acceptance" else [])


def _describe(voice: Voice, f: Facts) -> list[dict[str, Any]]:
    ref = f"describe:{f.order_ref}"
    return [{"do": "complete", "request": completion_request(voice, ref, f"order {f.order_ref}")}]


def _blurb(voice: Voice, f: Facts) -> list[dict[str, Any]]:
    return [{"do": "complete", "request": completion_request(voice, f"blurb:{f.sku}", f"article {f.sku}")}]


_SCENARIOS: dict[str, Callable[[Voice, Facts], list[dict[str, Any]]]] = {
    "orders/flow.json": _orders,
    "inventory/flow.json": _inventory,
    "acceptance/flow.json": _acceptance,
    "orders/qualify.json": _describe,
    "storefront/qualify.json": _blurb,
}
