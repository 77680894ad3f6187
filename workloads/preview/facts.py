"""What is true of one instance of the shop: what it sells, and what is wrong with how it is first put together."""

from __future__ import annotations

from msgspec import Struct

from harness.core import rng
from workloads.common.defects import Defect, drawn

TARGET = "tests/test_preview.py"
PAGE, BLUEPRINT = "site/index.html", "deploy/system.json"

DEFECTS: dict[str, tuple[str, Defect]] = {
    "unstyled page": (
        PAGE,
        Defect(wrong='href="/assets/main.css"', right='href="/assets/shop.css"', test=f"{TARGET}::test_styled"),
    ),
    "dead link": (PAGE, Defect(wrong='href="/order-list"', right='href="/orders"', test=f"{TARGET}::test_links")),
    "empty database": (
        BLUEPRINT,
        Defect(wrong='"SEED": null', right='"SEED": "deploy/seed.sql"', test=f"{TARGET}::test_rows"),
    ),
    "missing credential": (
        BLUEPRINT,
        Defect(wrong='"SERVICE_TOKEN": null', right='"SERVICE_TOKEN": "t-4711"', test=f"{TARGET}::test_credential"),
    ),
}
"""What a green build does not show: the file, and the mistake in it. No one of them hides another."""

POOL = tuple(defect for _, defect in DEFECTS.values())


class Facts(Struct, frozen=True, kw_only=True):
    """Everything that varies between two instances. items: price in cents by stock-keeping unit. hook_in: in which
    component's work the hooked file is written."""

    number: int
    items: dict[str, int]
    hook_in: str
    defects: tuple[Defect, ...]

    @property
    def sku(self) -> str:
        """The unit that is ordered."""
        return next(iter(self.items))

    def ref(self, kind: str) -> str:
        """The business key of this kind of thing, e.g. `A-1234` for an order."""
        return f"{kind}-{self.number}"


def facts(seed: int) -> Facts:
    """The facts of the instance with this seed: pure."""
    first = rng.integer(seed, 100, 900, "facts", "sku")
    return Facts(
        number=rng.integer(seed, 1000, 9999, "facts", "number"),
        items={f"SKU-{first + n}": rng.integer(seed, 100, 9900, "facts", "cents", n) for n in range(2)},
        hook_in=rng.choice(seed, ("catalog", "orders"), "facts", "hook"),
        defects=drawn(seed, POOL, 1, "delivery"),
    )
