"""What is true of one instance of the relay, drawn from the seed: names, amounts, defects, how its agent behaves."""

from __future__ import annotations

from msgspec import Struct

from harness.core import rng
from workloads.common.defects import Defect, drawn

COMPONENTS = ("intake", "pricing", "stock", "billing", "notices")

JOURNEYS = {"placed": ("intake", "pricing"), "priced": ("pricing", "billing"), "reserved": ("stock", "notices")}
"""The tests of the acceptance scenario, each with one correlation: who sends, and who receives. Together they go
through every component."""

SHOWN_IN = {"intake": "placed", "pricing": "placed", "billing": "priced", "stock": "reserved", "notices": "reserved"}
"""The journey in which a component's integration defect shows."""

TWO_DEFECTIVE = 0.8
"""Share of the instances in which two components fail together with the others, and not one."""

FLOW_FIRST = 0.2
"""Share of the instances in which `notices` is developed against its flow check, which publishes on every run and at
the end expects exactly one event; its five defects are then mended one by one."""

DRIFT = 0.04
"""Chance that a turn of an implementation is the first of a drift: a loop of successful calls that leads nowhere."""

DRIFT_STRONG = 0.004
"""The same for a model of any other name than `scripted`."""

LOOKALIKE = 0.04
"""Chance that such a turn is the first of a walk: other calls with equal answers, which leads somewhere."""

REREAD = 0.5
"""Chance that the agent reads a file again after it changed it."""

DRIFT_TURNS = (6, 12)
"""Fewest and most turns of a drift, unless it is refused before."""

WALK_TURNS = 3
"""Turns of a walk, two files each."""

SEARCH = 0.25
"""Chance that an agent that is told to repair what works looks for the mistake in files that it may not change, over
and over, until its turns are used up or it is refused; else it makes a speculative edit."""

REGRESSION = 0.5
"""Chance that a speculative edit breaks what worked, seen only by the next acceptance."""


class Facts(Struct, frozen=True, kw_only=True):
    """Everything that varies between two instances. hook_in: in which component's work a hooked file is written.
    defective: the components with an integration defect, which their own tests do not see. unit: the defects that
    these do see, by component."""

    order_ref: str
    sku: str
    cents: int
    hook_in: str
    defective: tuple[str, ...]
    flow_first: bool
    unit: dict[str, tuple[Defect, ...]]

    @property
    def queued_in(self) -> str:
        """The phase in which the one notice is queued."""
        return "implementation" if self.flow_first else "local_verification"

    def ref(self, kind: str) -> str:
        """The business key of this kind of thing, e.g. `Q-1234` for a quote."""
        return f"{kind}-{self.order_ref.partition('-')[2]}"


class Hidden(Defect, frozen=True, kw_only=True):
    """An integration defect: `stage` is the first checkpoint that is missing then."""

    stage: str
    test: str = ""


HIDDEN = {
    "intake": Hidden(wrong='command["quantity"] > 1 ', right='command["quantity"] >= 1 ', stage="event-published"),
    "pricing": Hidden(wrong='topic == "order.place"', right='topic == "order.placed"', stage="subscriber-received"),
    "billing": Hidden(wrong='event["cents"] > 10000', right='event["cents"] > 0', stage="state-committed"),
    "stock": Hidden(wrong='command["left"] > 0 ', right='command["left"] >= 0 ', stage="event-published"),
    "notices": Hidden(wrong='path == "/mails"', right='path == "/mail"', stage="route-read"),
}
"""By component: what stands in its source, and the first checkpoint that is missing then."""

UNIT = {
    "intake": (
        Defect(wrong="retrun n", right="return n", test=""),
        Defect(wrong='command["quantity"] >= 0', right='command["quantity"] > 0', test="test_accepts"),
        Defect(wrong='f"A{n}"', right='f"A-{n}"', test="test_label"),
    ),
    "pricing": (
        Defect(wrong="quantity + cents", right="quantity * cents", test="test_quote"),
        Defect(wrong='command["cents"] >= 0', right='command["cents"] > 0', test="test_accepts"),
        Defect(wrong='f"{cents / 100:.1f}"', right='f"{cents / 100:.2f}"', test="test_shown"),
    ),
    "billing": (
        Defect(wrong="cents // 4", right="cents // 5", test="test_tax"),
        Defect(wrong='f"I{n}"', right='f"I-{n}"', test="test_label"),
        Defect(wrong="cents - tax(cents)", right="cents + tax(cents)", test="test_total"),
    ),
    "stock": (
        Defect(wrong="stock - 2 * wanted", right="stock - wanted", test="test_left"),
        Defect(wrong='f"{sku}{n}"', right='f"{sku}-{n}"', test="test_label"),
        Defect(wrong="min(counts)", right="sum(counts)", test="test_counted"),
    ),
    "notices": (
        Defect(wrong='"Dear, "', right='"Dear "', test="test_greeting"),
        Defect(wrong="text.strip(1)", right="text.strip()", test="test_clean"),
        Defect(wrong="text[:20]", right="text[:40]", test="test_subject"),
        Defect(wrong='f"N{n}"', right='f"N-{n}"', test="test_label"),
        Defect(wrong="lines[1:]", right="lines[:]", test="test_lines"),
    ),
}
"""What a component's own tests see, by component; a defect without a test keeps the file from being read at all."""


def facts(seed: int) -> Facts:
    """The facts of the instance with this seed: pure."""
    number = rng.integer(seed, 1000, 9999, "facts", "order")
    flow_first = rng.draw(seed, "facts", "flow-first") < FLOW_FIRST
    unit = {c: drawn(seed, pool[:3], 2, c) for c, pool in UNIT.items()}
    return Facts(
        order_ref=f"A-{number}",
        sku=f"SKU-{rng.integer(seed, 100, 999, 'facts', 'sku')}",
        cents=rng.integer(seed, 100, 9900, "facts", "cents"),
        hook_in=rng.choice(seed, ("pricing", "billing"), "facts", "hook"),
        defective=_defective(seed),
        flow_first=flow_first,
        unit=unit | ({"notices": UNIT["notices"]} if flow_first else {}),
    )


def _defective(seed: int) -> tuple[str, ...]:
    """One or two components, two only where both show: in one journey the first would hide the other."""
    first = rng.choice(seed, COMPONENTS, "facts", "defective")
    others = [c for c in COMPONENTS if SHOWN_IN[c] != SHOWN_IN[first]]
    second = rng.choice(seed, others, "facts", "defective too")
    two = rng.draw(seed, "facts", "two defective") < TWO_DEFECTIVE
    return tuple(c for c in COMPONENTS if c == first or (two and c == second))
