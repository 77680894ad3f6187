"""What is true of one instance of the order system: names, amounts, defects and placements, drawn from the seed."""

from __future__ import annotations

from msgspec import Struct

from harness.core import rng
from workloads.common.defects import Defect, drawn


class Facts(Struct, frozen=True, kw_only=True):
    """Everything that varies between two instances. `audit_in`, `hook_in`: in which component's work the third
    database row and the hooked file are placed."""

    order_ref: str
    sku: str
    reservation_ref: str
    entry_ref: str
    quantity: int
    unit_cents: int
    audit_in: str
    hook_in: str
    defects: dict[str, tuple[Defect, ...]]


ORDERS_DEFECTS = (
    Defect(wrong="retrun sum(", right="return sum(", test="tests/test_orders_unit.py"),
    Defect(
        wrong="quantity + unit_cents for",
        right="quantity * unit_cents for",
        test="tests/test_orders_unit.py::test_total",
    ),
    Defect(wrong='return "draft"', right='return "created"', test="tests/test_orders_unit.py::test_status"),
)
INVENTORY_DEFECTS = (
    Defect(wrong="stock - 2 * wanted", right="stock - wanted", test="tests/test_inventory_unit.py::test_left"),
    Defect(wrong="stock > wanted", right="stock >= wanted", test="tests/test_inventory_unit.py::test_exact"),
    Defect(wrong='f"{sku}{n}"', right='f"{sku}-{n}"', test="tests/test_inventory_unit.py::test_label"),
)
STOREFRONT_DEFECTS = (
    Defect(wrong="toFixed(1)", right="toFixed(2)", test="storefront/price.test.mjs::price"),
    Defect(wrong='"$ "', right='"$"', test="storefront/price.test.mjs::symbol"),
)


def facts(seed: int) -> Facts:
    """The facts of the instance with this seed: pure."""

    number = rng.integer(seed, 1000, 9999, "facts", "order")
    return Facts(
        order_ref=f"A-{number}",
        sku=f"SKU-{rng.integer(seed, 100, 999, 'facts', 'sku')}",
        reservation_ref=f"R-{number}",
        entry_ref=f"E-{number}",
        quantity=rng.integer(seed, 1, 9, "facts", "quantity"),
        unit_cents=rng.integer(seed, 100, 9900, "facts", "cents"),
        audit_in=rng.choice(seed, ("orders", "acceptance"), "facts", "audit"),
        hook_in=rng.choice(seed, ("orders", "storefront"), "facts", "hook"),
        defects={
            "orders": drawn(seed, ORDERS_DEFECTS, 2, "orders"),
            "inventory": drawn(seed, INVENTORY_DEFECTS, 2, "inventory"),
            "storefront": drawn(seed, STOREFRONT_DEFECTS, 1, "storefront"),
        },
    )
