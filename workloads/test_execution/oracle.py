"""The judge of the test laboratory: its twelve intended effects, and which files are wanted.

How its effects are recognised stands in `workloads.common.keys`.
"""

from __future__ import annotations

from harness.core.records import Intent
from harness.core.types import Json
from workloads.common.defects import planted
from workloads.common.keys import natural_keys, sha256
from workloads.test_execution.compose import SCENARIOS
from workloads.test_execution.facts import LATENT, facts
from workloads.test_execution.repository import SERVICES, SOURCE_PATH

GREEN = {sha256(SERVICES["payments"]), sha256(planted(SERVICES["payments"], [LATENT]))}
"""Digests of the ledgers with which the order-dependent suite is green: in every order, or in the one it was run in."""


class TestExecutionOracle:
    """See `harness.core.records.Oracle`."""

    __test__ = False
    proofs: tuple[str, ...] = ("acceptance",)

    def intents(self, seed: int, variation: int) -> tuple[Intent, ...]:
        """The twelve effects of one instance; the two seeded shelves are one key that is required twice."""
        f = facts(seed)
        local = "local_verification"
        table = (
            ("registry", "meshmoney==1.2.0", 1, "payments", "test_preflight"),
            ("hook", f"publish_manifest/{f.hook_in}/manifest.json", 1, f.hook_in, "implementation"),
            ("database", f"payments.charges/{f.ref('C')}", 1, "payments", local),
            ("transport", f"payments/charge.captured/{f.ref('C')}", 1, "payments", local),
            ("transport", f"mail/letter.sent/{f.ref('L')}", 1, "mail", local),
            ("registry", "meshunits==2.0.1", 1, "fixtures", local),
            ("database", f"catalog.seeds/{f.ref('S')}", 1, "fixtures", local),
            ("transport", f"catalog/shelf.seeded/{f.sku}", 2, "fixtures", local),
            ("database", f"shop.carts/{f.ref('K')}", 1, "shop", local),
            ("provider", f"cart:{f.ref('K')}", 1, "shop", local),
            ("transport", f"lab/release.accepted/{f.ref('R')}", 1, "acceptance", "acceptance"),
        )
        return tuple(
            Intent(boundary=boundary, key=key, required=required, delegation=delegation, phase=phase)
            for boundary, key, required, delegation, phase in table
        )

    def natural_keys(self, effect: dict[str, Json]) -> tuple[str, ...]:
        """The keys that an effect carries, one per occurrence; none when it cannot be recognised."""
        return natural_keys(effect)

    def accepted(self, seed: int, variation: int, files: dict[str, str]) -> bool:
        """Whether the shop has its wanted source and payments one of those that are green, and the files that the
        effects came from are there."""
        wanted = {SOURCE_PATH["shop"]: sha256(SERVICES["shop"])}
        present = {*SCENARIOS, f"{facts(seed).hook_in}/manifest.json"}
        green = files.get(SOURCE_PATH["payments"]) in GREEN
        return wanted.items() <= files.items() and green and present <= files.keys()


ORACLE = TestExecutionOracle()
