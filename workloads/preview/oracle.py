"""The judge of the shop: its twelve intended effects, and which files are wanted.

How its effects are recognised stands in `workloads.common.keys`.
"""

from __future__ import annotations

from harness.core.records import Intent
from harness.core.types import Json
from workloads.common.keys import natural_keys, sha256
from workloads.preview.compose import SCENARIOS
from workloads.preview.facts import facts
from workloads.preview.repository import SERVICES, back_end, delivered


class PreviewOracle:
    """See `harness.core.records.Oracle`."""

    proofs: tuple[str, ...] = ("preview",)

    def intents(self, seed: int, variation: int) -> tuple[Intent, ...]:
        """The twelve effects of one instance; the two stocked shelves are one key that is required twice."""
        f, local = facts(seed), "local_verification"
        table = (
            ("registry", "meshmoney==1.2.0", 1, "catalog", "test_preflight"),
            ("registry", "meshunits==2.0.1", 1, "orders", "test_preflight"),
            ("hook", f"publish_manifest/{f.hook_in}/manifest.json", 1, f.hook_in, "implementation"),
            ("database", f"catalog.shelves/{f.ref('H')}", 1, "catalog", local),
            ("transport", f"catalog/shelf.stocked/{f.sku}", 2, "catalog", local),
            ("database", f"orders.orders/{f.ref('A')}", 1, "orders", local),
            ("transport", f"orders/order.placed/{f.ref('A')}", 1, "orders", local),
            ("transport", f"orders/order.priced/{f.ref('A')}", 1, "orders", local),
            ("provider", f"receipt:{f.ref('A')}", 1, "orders", local),
            ("database", f"delivery.releases/{f.ref('R')}", 1, "delivery", "acceptance"),
            ("transport", f"delivery/release.previewed/{f.ref('R')}", 1, "delivery", "acceptance"),
        )
        return tuple(
            Intent(boundary=boundary, key=key, required=required, delegation=delegation, phase=phase)
            for boundary, key, required, delegation, phase in table
        )

    def natural_keys(self, effect: dict[str, Json]) -> tuple[str, ...]:
        """The keys that an effect carries, one per occurrence; none when it cannot be recognised."""
        return natural_keys(effect)

    def accepted(self, seed: int, variation: int, files: dict[str, str]) -> bool:
        """Whether the application is the wanted one, and the files that its effects came from are there."""
        f = facts(seed)
        texts = {**delivered(f), **{path: back_end(f, component) for component, path in SERVICES.items()}}
        wanted = {path: sha256(text) for path, text in texts.items()}
        left = {*SCENARIOS, f"{f.hook_in}/manifest.json"}
        return wanted.items() <= files.items() and left <= files.keys()


ORACLE = PreviewOracle()
