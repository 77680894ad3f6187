"""What the scripted agent of the shop composes: the scenarios of its checks, in the words of its voice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workloads.common.voice import Voice, completion_request, event, insert
from workloads.preview.facts import Facts

Steps = list[dict[str, Any]]
STOCKED = "shelf.stocked"


def scenario(voice: Voice, f: Facts, name: str) -> str:
    """The scenario file of a check, as JSON text: what is expected of the others' work comes first."""
    expected, steps = _SCENARIOS[name](voice, f)
    steps = voice.shuffle(steps, name, "steps", level=3)
    reads: Steps = [{"do": "count", "stream": stream} for stream in ("catalog", "orders")]
    steps[1:1] = reads[: int(voice.pick((0, 1, 2), name, "reads", level=3))]
    return voice.text({"steps": [*expected, *steps]}, name)


def _catalog(voice: Voice, f: Facts) -> tuple[Steps, Steps]:
    """Two equal events about a shelf are a legitimate repeat."""
    data = {"sku": f.sku, "quantity": 1}
    if voice.pick((False, True), "batch", level=5):
        items = [{"type": STOCKED, "subject": f.sku, **data} for _ in range(2)]
        stocked = [event(voice, f"{STOCKED}.batch", f.sku, {"items": items}, "batch")]
    else:
        stocked = [event(voice, STOCKED, f.sku, data, "stocked", n) for n in range(2)]
    row = {"shelf_ref": f.ref("H"), "sku": f.sku}
    return [], [insert(voice, "catalog", "shelves", row), *(_publish("catalog", one) for one in stocked)]


def _orders(voice: Voice, f: Facts) -> tuple[Steps, Steps]:
    cents = f.items[f.sku]
    row = {"order_ref": f.ref("A"), "sku": f.sku, "cents": cents}
    placed = event(voice, "order.placed", f.ref("A"), {"sku": f.sku}, "placed")
    priced = event(voice, "order.priced", f.ref("A"), {"cents": cents}, "priced")
    request = completion_request(voice, f"receipt:{f.ref('A')}", f"order {f.ref('A')}")
    published = [_publish("orders", one) for one in (placed, priced)]
    return [], [insert(voice, "orders", "orders", row), *published, {"do": "complete", "request": request}]


def _delivery(voice: Voice, f: Facts) -> tuple[Steps, Steps]:
    rows = (("catalog", "shelves", "shelf_ref", f.ref("H")), ("orders", "orders", "order_ref", f.ref("A")))
    expected: Steps = [
        *(
            {"do": "expect_rows", "service": service, "table": table, "column": column, "value": value}
            for service, table, column, value in rows
        ),
        *({"do": "expect_events", "stream": stream, "least": 1} for stream in ("catalog", "orders")),
    ]
    row = {"release_ref": f.ref("R"), "components": 3}
    data = {"components": 3, "worker": voice.fresh("$worker", "previewed")}  # volatile, of no usual shape, undeclared
    previewed = event(voice, "release.previewed", f.ref("R"), data, "previewed")
    return expected, [insert(voice, "delivery", "releases", row), _publish("delivery", previewed)]


def _publish(stream: str, what: dict[str, Any]) -> dict[str, Any]:
    return {"do": "publish", "stream": stream, "event": what}


_SCENARIOS: dict[str, Callable[[Voice, Facts], tuple[Steps, Steps]]] = {
    "catalog/flow.json": _catalog,
    "orders/flow.json": _orders,
    "delivery/flow.json": _delivery,
}
SCENARIOS = tuple(_SCENARIOS)
