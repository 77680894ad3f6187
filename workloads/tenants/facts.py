"""What is true of one instance of the shared house: one order that both tenants have, and the mistakes of each."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from harness.core import rng
from workloads.common.defects import Defect, drawn

TENANTS = ("ash", "birch")
PACKAGE, VERSION = "meshmoney", "1.2.0"


class Facts(Struct, frozen=True, kw_only=True):
    """Everything that varies between two instances. The order is the same in both tenants, by chance as it were:
    nothing but the place tells their work apart. hook_in: whose intake writes the hooked file."""

    order_ref: str
    settlement_ref: str
    sku: str
    quantity: int
    unit_cents: int
    hook_in: str
    defects: dict[str, tuple[Defect, ...]]


POOL = (
    Defect(wrong="retrun sum(", right="return sum(", test=""),
    Defect(wrong="quantity + cents for", right="quantity * cents for", test="::test_total"),
    Defect(wrong="total > floor", right="total >= floor", test="::test_floor"),
    Defect(wrong='f"{ref}{n}"', right='f"{ref}-{n}"', test="::test_label"),
)
"""Mistakes in the source of an intake; `test` follows the file of its tests."""


def unit_tests(tenant: str) -> str:
    """The file of an intake's tests."""
    return f"tests/test_{tenant}_unit.py"


def pool(tenant: str) -> tuple[Defect, ...]:
    """All mistakes that this tenant's intake can have."""
    return tuple(replace(one, test=unit_tests(tenant) + one.test) for one in POOL)


def facts(seed: int) -> Facts:
    """The facts of the instance with this seed: pure."""
    number = rng.integer(seed, 1000, 9999, "facts", "order")
    return Facts(
        order_ref=f"A-{number}",
        settlement_ref=f"S-{number}",
        sku=f"SKU-{rng.integer(seed, 100, 999, 'facts', 'sku')}",
        quantity=rng.integer(seed, 1, 9, "facts", "quantity"),
        unit_cents=rng.integer(seed, 100, 9900, "facts", "cents"),
        hook_in=rng.choice(seed, TENANTS, "facts", "hook"),
        defects={tenant: drawn(seed, pool(tenant), 2, tenant) for tenant in TENANTS},
    )
