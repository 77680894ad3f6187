"""What the scripted agents of the shared house compose: the scenarios of their checks, in the words of each voice."""

from __future__ import annotations

from typing import Any

from workloads.common.voice import Voice, completion_request, event, insert
from workloads.tenants.facts import TENANTS, Facts

KIND = "order.line"


def invoice_ref(facts: Facts) -> str:
    """The business key of the invoice that is bought at the provider, which no tenant's name is part of."""
    return f"invoice:{facts.order_ref}"


def intake(voice: Voice, f: Facts, tenant: str) -> str:
    """An order and its two equal lines, as scenario text: a row, and two events of equal content."""
    amount = {"quantity": f.quantity, "cents": f.unit_cents}
    row = {"order_ref": f.order_ref, "sku": f.sku, **amount}
    data = {"sku": f.sku, "quantity": 1}
    if voice.pick((False, True), "batch", level=5):
        items = [{"type": KIND, "subject": f.order_ref, **data} for _ in range(2)]
        events = [event(voice, f"{KIND}.batch", f.order_ref, {"items": items}, "batch")]
    else:
        events = [event(voice, KIND, f.order_ref, data, "line", n) for n in range(2)]
    published = [{"do": "publish", "stream": tenant, "event": one} for one in events]
    return _text(voice, [insert(voice, tenant, "orders", row), *published], tenant)


def billing(voice: Voice, f: Facts) -> str:
    """The words of an invoice, bought at the provider."""
    return voice.text(
        {"steps": [{"do": "complete", "request": completion_request(voice, invoice_ref(f), "an invoice")}]}
    )


def settlement(voice: Voice, f: Facts) -> str:
    """What both tenants must have done, and the row that settles it."""
    found: list[dict[str, Any]] = []
    for tenant in TENANTS:
        row = {"service": tenant, "table": "orders", "column": "order_ref", "value": f.order_ref}
        found += [{"do": "expect_rows", **row}, {"do": "expect_events", "stream": tenant, "least": 1}]
    settled = insert(voice, "ops", "settlements", {"settlement_ref": f.settlement_ref, "orders": len(TENANTS)})
    return voice.text({"steps": [*found, settled]})


def _text(voice: Voice, steps: list[dict[str, Any]], stream: str) -> str:
    steps = voice.shuffle(steps, "steps", level=3)
    steps[1:1] = [{"do": "count", "stream": stream}] * int(voice.pick((0, 1, 2), "reads", level=3))
    return voice.text({"steps": steps})
