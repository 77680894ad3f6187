"""What the scripted agent of the laboratory composes: what its suites put the services through, in its own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workloads.common.voice import Voice, completion_request, event, insert
from workloads.test_execution.facts import Facts
from workloads.test_execution.repository import LOCKS

Steps = list[dict[str, Any]]
ONCE = "mail/flow.json"
ACCEPTANCE = "acceptance/flow.json"


def scenario(voice: Voice, f: Facts, name: str) -> str:
    """The scenario file of a check, as JSON text. The suite that asserts on exactly-once has its order, and so has the
    acceptance, which first looks at the work of the others."""
    steps = _SCENARIOS[name](voice, f)
    if name not in (ONCE, ACCEPTANCE):
        steps = voice.shuffle(steps, name, "steps", level=3)
    if name in ("payments/flow.json", "fixtures/flow.json"):
        reads = [{"do": "count", "stream": stream} for stream in ("payments", "catalog")]
        steps[1:1] = reads[: int(voice.pick((0, 1, 2), name, "reads", level=3))]
    return voice.text({"steps": steps}, name)


def _payments(voice: Voice, f: Facts) -> Steps:
    captured = event(voice, "charge.captured", f.ref("C"), {"cents": f.cents}, "captured")
    row = {"charge_ref": f.ref("C"), "cents": f.cents}
    return [insert(voice, "payments", "charges", row), _publish("payments", captured)]


def _mail(voice: Voice, f: Facts) -> Steps:
    """One letter goes out, and the suite's last word is that it was one."""
    sent = event(voice, "letter.sent", f.ref("L"), {"sku": f.sku}, "sent")
    once = {"do": "expect_events", "stream": "mail", "type": "letter.sent", "subject": f.ref("L"), "exactly": 1}
    return [_publish("mail", sent), once]


def _fixtures(voice: Voice, f: Facts) -> Steps:
    """Two shelves are seeded by two events of equal content, a legitimate repeat, while the service installs what it
    needs."""
    data = {"sku": f.sku, "quantity": 1}
    if voice.pick((False, True), "batch", level=5):
        items = [{"type": "shelf.seeded", "subject": f.sku, **data} for _ in range(2)]
        seeded = [event(voice, "shelf.seeded.batch", f.sku, {"items": items}, "batch")]
    else:
        seeded = [event(voice, "shelf.seeded", f.sku, data, "seeded", i) for i in range(2)]
    row = {"seed_ref": f.ref("S"), "sku": f.sku}
    install = {"do": "install", "lock": LOCKS["fixtures"]}
    return [install, insert(voice, "catalog", "seeds", row), *(_publish("catalog", one) for one in seeded)]


def _shop(voice: Voice, f: Facts) -> Steps:
    row = {"cart_ref": f.ref("K"), "sku": f.sku, "cents": f.cents}
    request = completion_request(voice, f"cart:{f.ref('K')}", f"cart {f.ref('K')}")
    return [insert(voice, "shop", "carts", row), {"do": "complete", "request": request}]


def _acceptance(voice: Voice, f: Facts) -> Steps:
    """At least so much of the others' work must be there; then comes the acceptance's own."""
    rows = (
        ("payments", "charges", "charge_ref", f.ref("C")),
        ("catalog", "seeds", "seed_ref", f.ref("S")),
        ("shop", "carts", "cart_ref", f.ref("K")),
    )
    data = {"sku": f.sku, "worker": voice.fresh("$worker", "released")}  # volatile, of no usual shape, undeclared
    released = event(voice, "release.accepted", f.ref("R"), data, "released")
    return [
        *(
            {"do": "expect_rows", "service": service, "table": table, "column": column, "value": value}
            for service, table, column, value in rows
        ),
        *({"do": "expect_events", "stream": stream, "least": 1} for stream in ("payments", "mail", "catalog")),
        _publish("lab", released),
    ]


def _publish(stream: str, what: dict[str, Any]) -> dict[str, Any]:
    return {"do": "publish", "stream": stream, "event": what}


_SCENARIOS: dict[str, Callable[[Voice, Facts], Steps]] = {
    "payments/flow.json": _payments,
    ONCE: _mail,
    "fixtures/flow.json": _fixtures,
    "shop/flow.json": _shop,
    ACCEPTANCE: _acceptance,
}
SCENARIOS = tuple(_SCENARIOS)
