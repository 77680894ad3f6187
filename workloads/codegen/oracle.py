"""The judge of the order system: its twelve intended effects, and which files are wanted.

How its effects are recognised stands in `workloads.common.keys`.
"""

from __future__ import annotations

from harness.core.records import Intent
from harness.core.types import Json
from workloads.codegen.facts import facts
from workloads.codegen.repository import SERVICES, SOURCE_PATH
from workloads.common.keys import natural_keys, sha256

SCENARIOS = (
    "orders/flow.json",
    "orders/qualify.json",
    "inventory/flow.json",
    "storefront/qualify.json",
    "acceptance/flow.json",
)
"""Files that must be there; what they say is the agent's choice, and shows in the effects."""


class CodegenOracle:
    """See `harness.core.records.Oracle`."""

    proofs: tuple[str, ...] = ("acceptance",)

    def intents(self, seed: int, variation: int) -> tuple[Intent, ...]:
        """The twelve effects of one instance; the two reservations are one key that is required twice."""
        f = facts(seed)
        qualified = "oracle_qualification"
        audit_phase = {"orders": "local_verification", "acceptance": "acceptance"}[f.audit_in]
        table = (
            ("transport", f"orders/order.created/{f.order_ref}", 1, "orders", "local_verification"),
            ("transport", f"stock/stock.reserved/{f.sku}", 2, "inventory", "local_verification"),
            ("transport", f"orders/order.accepted/{f.order_ref}", 1, "acceptance", "acceptance"),
            ("database", f"orders.orders/{f.order_ref}", 1, "orders", "local_verification"),
            ("database", f"inventory.reservations/{f.reservation_ref}", 1, "inventory", "local_verification"),
            ("database", f"orders.audit/{f.entry_ref}", 1, f.audit_in, audit_phase),
            ("registry", "meshmoney==1.2.0", 1, "orders", "test_preflight"),
            ("registry", "meshunits==2.0.1", 1, "inventory", "test_preflight"),
            ("provider", f"describe:{f.order_ref}", 1, "orders", qualified),
            ("provider", f"blurb:{f.sku}", 1, "storefront", qualified),
            ("hook", f"publish_manifest/{f.hook_in}/manifest.json", 1, f.hook_in, "implementation"),
        )
        return tuple(
            Intent(boundary=boundary, key=key, required=required, delegation=delegation, phase=phase)
            for boundary, key, required, delegation, phase in table
        )

    def natural_keys(self, effect: dict[str, Json]) -> tuple[str, ...]:
        """The keys that an effect carries, one per occurrence; none when it cannot be recognised."""
        return natural_keys(effect)

    def accepted(self, seed: int, variation: int, files: dict[str, str]) -> bool:
        """Whether every component has its wanted source, and the files that its effects came from are there."""
        wanted = {SOURCE_PATH[component]: sha256(source) for component, source in SERVICES.items()}
        present = {*SCENARIOS, f"{facts(seed).hook_in}/manifest.json"}
        return wanted.items() <= files.items() and present <= files.keys()


ORACLE = CodegenOracle()
