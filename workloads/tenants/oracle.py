"""The judge of the shared house: its twelve intended effects, and which files are wanted.

Rows and events of the tenants lie apart. A wheel and an invoice are the same for both, and what sinks hold of them
names no tenant: both are required twice, and one tenant's loss beside the other's duplicate would not be seen there.
"""

from __future__ import annotations

from harness.core.records import Intent
from harness.core.types import Json
from workloads.common.keys import natural_keys, sha256
from workloads.tenants.compose import KIND, invoice_ref
from workloads.tenants.facts import PACKAGE, TENANTS, VERSION, facts
from workloads.tenants.repository import SOURCE, source_path


class TenantsOracle:
    """See `harness.core.records.Oracle`."""

    proofs: tuple[str, ...] = ("acceptance",)

    def intents(self, seed: int, variation: int) -> tuple[Intent, ...]:
        """The twelve effects of one instance."""
        f, local, qualified = facts(seed), "local_verification", "oracle_qualification"
        first, hooked = TENANTS[0], f"{f.hook_in}/intake"
        table = [
            ("registry", f"{PACKAGE}=={VERSION}", 2, f"{first}/intake", "test_preflight"),
            ("provider", invoice_ref(f), 2, f"{first}/billing", qualified),
            ("database", f"ops.settlements/{f.settlement_ref}", 1, "ops", "acceptance"),
            ("hook", f"publish_manifest/{hooked}/manifest.json", 1, hooked, "implementation"),
        ]
        for tenant in TENANTS:
            table += [
                ("database", f"{tenant}.orders/{f.order_ref}", 1, f"{tenant}/intake", local),
                ("transport", f"{tenant}/{KIND}/{f.order_ref}", 2, f"{tenant}/intake", local),
            ]
        return tuple(
            Intent(boundary=boundary, key=key, required=required, delegation=delegation, phase=phase)
            for boundary, key, required, delegation, phase in table
        )

    def natural_keys(self, effect: dict[str, Json]) -> tuple[str, ...]:
        """The keys that an effect carries, one per occurrence; none when it cannot be recognised."""
        return natural_keys(effect)

    def accepted(self, seed: int, variation: int, files: dict[str, str]) -> bool:
        """Whether each intake has its wanted source, and the files that its effects came from are there."""
        wanted = {source_path(tenant): sha256(SOURCE) for tenant in TENANTS}
        flows = {f"{tenant}/{part}/flow.json" for tenant in TENANTS for part in ("intake", "billing")}
        left = {*flows, "ops/flow.json", f"{facts(seed).hook_in}/intake/manifest.json"}
        return wanted.items() <= files.items() and left <= files.keys()


ORACLE = TenantsOracle()
