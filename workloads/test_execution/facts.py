"""What is true of one instance of the test laboratory: names, defects, and what its suites are like to run."""

from __future__ import annotations

from msgspec import Struct

from harness.core import rng
from workloads.common.defects import Defect, drawn
from workloads.test_execution import temper
from workloads.test_execution.temper import Temper

COMPONENTS = ("payments", "mail", "fixtures", "shop")

SUITES = {
    "payments": "suites/test_payments.py",
    "mail": "suites/test_mail.py",
    "fixtures": "suites/test_fixtures.py",
    "shop": "suites/shop.test.mjs",
}
"""By component: the suite that has effects. Each of the four kinds of temper is that of one of them."""

UNITS = {"payments": "suites/test_payments_unit.py", "shop": "suites/shop_unit.test.mjs"}
"""By component: the suite of its own code, without effects; the first is order-dependent, the second flaky."""

DEFECTS = {
    "payments": (
        Defect(wrong="cents // 40", right="cents // 50", test="test_fee"),
        Defect(wrong='f"C{n}"', right='f"C-{n}"', test="test_label"),
    ),
    "shop": (
        Defect(wrong="toFixed(1)", right="toFixed(2)", test="price"),
        Defect(wrong="items.length + 1", right="items.length", test="size"),
    ),
}
"""By component: what its unit suite finds in every run."""

LATENT = Defect(wrong="    return None  # nothing is kept", right="    _CHARGES.clear()", test="test_empty")
"""State that one test leaves to the next, which only shows when the tests run in reverse: a suite that was never run
so is green with it, and no worse."""


class Facts(Struct, frozen=True, kw_only=True):
    """Everything that varies between two instances. hook_in: in which component's work the hooked file is written.
    tempers: by the file that is run."""

    number: int
    sku: str
    cents: int
    hook_in: str
    defects: dict[str, tuple[Defect, ...]]
    tempers: dict[str, Temper]

    def ref(self, kind: str) -> str:
        """The business key of this kind of thing, e.g. `C-1234` for a charge."""
        return f"{kind}-{self.number}"


def facts(seed: int, kinds: tuple[str, ...] = temper.KINDS) -> Facts:
    """The facts of the instance with this seed: pure. kinds: of the four suites that have effects, dealt by a draw; the
    last two are those that take no time, and one of them is that of the suite that installs a package, which does."""
    *slow, quick, other = kinds
    installs, left = rng.shuffled(seed, (quick, other), "facts", "kinds", "installs")
    rest = rng.shuffled(seed, (*slow, left), "facts", "kinds")
    dealt = {target: installs if c == "fixtures" else rest.pop() for c, target in SUITES.items()}
    dealt |= {UNITS["payments"]: "ordered", UNITS["shop"]: "flaky"}
    return Facts(
        number=rng.integer(seed, 1000, 9999, "facts", "number"),
        sku=f"SKU-{rng.integer(seed, 100, 999, 'facts', 'sku')}",
        cents=rng.integer(seed, 100, 9900, "facts", "cents"),
        hook_in=rng.choice(seed, ("payments", "shop"), "facts", "hook"),
        defects={component: drawn(seed, pool, 1, component) for component, pool in DEFECTS.items()},
        tempers={target: temper.drawn(seed, kind, target) for target, kind in dealt.items()},
    )
