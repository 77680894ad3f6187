"""The judge of the keyed order system: its twelve intended effects, and which files are wanted.

It counts rows as it does in every workload. That repeats leave none is the doing of the databases, not of this file.
"""

from __future__ import annotations

from harness.core.records import Intent
from harness.core.types import Json
from workloads.common.keys import natural_keys, sha256
from workloads.idempotent.compose import SCENARIOS
from workloads.idempotent.facts import facts
from workloads.idempotent.repository import SERVICES, SOURCE_PATH


class IdempotentOracle:
    """See `harness.core.records.Oracle`."""

    proofs: tuple[str, ...] = ("acceptance",)

    def intents(self, seed: int, variation: int) -> tuple[Intent, ...]:
        """The twelve effects of one instance: eleven rows, each under its own name, and one hook."""
        f = facts(seed)
        local, qualified = "local_verification", "oracle_qualification"
        audit_phase = {"orders": local, "acceptance": "acceptance"}[f.audit_in]
        table = (
            ("database", f"orders.orders/{f.order_ref}", "orders", local),
            ("database", f"orders.lines/{f.order_ref}-1", "orders", local),
            ("database", f"orders.lines/{f.order_ref}-2", "orders", local),
            ("database", f"orders.audit/{f.entry_ref}", f.audit_in, audit_phase),
            ("database", f"orders.descriptions/{f.order_ref}", "orders", qualified),
            ("database", f"inventory.reservations/{f.reservation_ref}", "inventory", local),
            ("database", f"inventory.movements/{f.reservation_ref}-1", "inventory", local),
            ("database", f"inventory.movements/{f.reservation_ref}-2", "inventory", local),
            ("database", f"storefront.blurbs/{f.sku}", "storefront", qualified),
            ("database", f"storefront.prices/{f.sku}", "storefront", qualified),
            ("database", f"orders.acceptances/{f.order_ref}", "acceptance", "acceptance"),
            ("hook", f"publish_manifest/{f.hook_in}/manifest.json", f.hook_in, "implementation"),
        )
        return tuple(
            Intent(boundary=boundary, key=key, required=1, delegation=delegation, phase=phase)
            for boundary, key, delegation, phase in table
        )

    def natural_keys(self, effect: dict[str, Json]) -> tuple[str, ...]:
        """The keys that an effect carries, one per occurrence; none when it cannot be recognised."""
        return natural_keys(effect)

    def accepted(self, seed: int, variation: int, files: dict[str, str]) -> bool:
        """Whether every component has its wanted source, and the files that its effects came from are there."""
        wanted = {SOURCE_PATH[component]: sha256(source) for component, source in SERVICES.items()}
        return wanted.items() <= files.items() and {*SCENARIOS, f"{facts(seed).hook_in}/manifest.json"} <= files.keys()


ORACLE = IdempotentOracle()
