"""What the scripted agent of the relay composes: the scenarios of its checks, in the words of its voice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from workloads.common.voice import Voice, event, insert
from workloads.relay.facts import JOURNEYS, Facts
from workloads.relay.repository import ACCEPTANCE_TEST

STREAM = "relay"
Steps = list[dict[str, Any]]


class Way:
    """The names on the way of a journey: command, event type, state and route, each owned by one of its two ends."""

    def __init__(self, command: str, topic: str, table: str, letter: str) -> None:
        self.command, self.topic, self.table, self.letter = command, topic, table, letter

    @property
    def column(self) -> str:
        return f"{self.table.removesuffix('s')}_ref"


WAYS = {
    "placed": Way("place_order", "order.placed", "quotes", "Q"),
    "priced": Way("price_order", "order.priced", "invoices", "I"),
    "reserved": Way("reserve_stock", "stock.reserved", "mail", "M"),
}


def correlation(f: Facts, journey: str) -> str:
    """The trace id of a journey, as in a W3C trace context: one for each test, the same on every run."""
    return hashlib.sha256(f"{journey}/{f.order_ref}".encode()).hexdigest()[:32]


def scenario(voice: Voice, f: Facts, name: str) -> str:
    """The scenario file of a check, as JSON text."""
    steps = _SCENARIOS[name](voice, f)
    reads = [{"do": "count", "stream": s} for s in ("stock", "mail")]
    if name != ACCEPTANCE:
        steps[1:1] = reads[: int(voice.pick((0, 1, 2), name, "reads", level=3))]
    return voice.text({"steps": steps}, name)


def _acceptance(voice: Voice, f: Facts) -> Steps:
    """Every journey, in the order of its tests, and no other: a message comes before what it leads to."""
    return [step for name in JOURNEYS for step in _journey(voice, f, name)]


def _journey(voice: Voice, f: Facts, name: str) -> Steps:
    """Command accepted and event published by the one end; event received, state written and route read by the other.
    The amounts are the smallest that are allowed, which the components' own tests do not try."""
    (sender, receiver), way = JOURNEYS[name], WAYS[name]
    subject = f.sku if sender == "stock" else f.order_ref
    command = {"quantity": 1, "cents": f.cents, "left": 0}
    data = {"sku": f.sku, "cents": f.cents}
    row = {way.column: f.ref(way.letter), **({"cents": f.cents} if way.table == "invoices" else {"sku": f.sku})}
    about = {"stream": STREAM, "type": way.topic, "subject": subject}
    sent = {
        "do": "publish",
        "stream": STREAM,
        "command": command,
        "event": event(voice, way.topic, subject, data, name),
    }
    found = {"service": receiver, "table": way.table, "column": way.column, "value": f.ref(way.letter)}
    steps: Steps = [
        {"do": "command", "by": sender, "name": way.command, "command": command},
        {**sent, "by": sender},
        {"do": "receive", "by": receiver, **about},
        {**insert(voice, receiver, way.table, row), "by": receiver, "table": way.table, "received": data},
        {"do": "read", "by": receiver, "path": f"/{way.table}", **found},
    ]
    common = {"test": f"{ACCEPTANCE_TEST}::test_{name}", "correlation": correlation(f, name)}
    return [{**step, **common} for step in steps]


def _stock(voice: Voice, f: Facts) -> Steps:
    """Two shelves are counted, by two events of equal content: a legitimate repeat."""
    data = {"sku": f.sku, "quantity": 1}
    if voice.pick((False, True), "batch", level=5):
        items = [{"type": "stock.counted", "subject": f.sku, **data} for _ in range(2)]
        published = [event(voice, "stock.counted.batch", f.sku, {"items": items}, "batch")]
    else:
        published = [event(voice, "stock.counted", f.sku, data, "counted", i) for i in range(2)]
    return [{"do": "publish", "stream": "stock", "event": e} for e in published]


def _billing(voice: Voice, f: Facts) -> Steps:
    worker = voice.fresh("$worker", "entry")  # volatile, of no usual shape, undeclared
    return [insert(voice, "billing", "entries", {"entry_ref": f.ref("E"), "cents": f.cents, "worker": worker})]


def _notices(voice: Voice, f: Facts) -> Steps:
    """One notice is queued, and the check's last word is that it was one."""
    queued = event(voice, "notice.queued", f.ref("N"), {"sku": f.sku}, "queued")
    once = {"do": "expect_events", "stream": "mail", "type": "notice.queued", "subject": f.ref("N"), "exactly": 1}
    return [{"do": "publish", "stream": "mail", "event": queued}, once]


ACCEPTANCE = "acceptance/flow.json"
_SCENARIOS: dict[str, Callable[[Voice, Facts], Steps]] = {
    ACCEPTANCE: _acceptance,
    "stock/flow.json": _stock,
    "billing/flow.json": _billing,
    "notices/flow.json": _notices,
}
SCENARIOS = tuple(_SCENARIOS)
