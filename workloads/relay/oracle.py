"""The judge of the relay: its twelve intended effects, and which files are wanted.

How its effects are recognised stands in `workloads.common.keys`.
"""

from __future__ import annotations

from harness.core.records import Intent
from harness.core.types import Json
from workloads.common.keys import natural_keys, sha256
from workloads.relay.compose import SCENARIOS
from workloads.relay.facts import facts
from workloads.relay.sources import SERVICES, SOURCE_PATH


class RelayOracle:
    """See `harness.core.records.Oracle`."""

    proofs: tuple[str, ...] = ("acceptance",)

    def intents(self, seed: int, variation: int) -> tuple[Intent, ...]:
        """The twelve effects of one instance; the two counted shelves are one key that is required twice."""
        f = facts(seed)
        local, accept = "local_verification", ("acceptance", "acceptance")
        table = (
            ("transport", f"relay/order.placed/{f.order_ref}", 1, *accept),
            ("transport", f"relay/order.priced/{f.order_ref}", 1, *accept),
            ("transport", f"relay/stock.reserved/{f.sku}", 1, *accept),
            ("database", f"pricing.quotes/{f.ref('Q')}", 1, *accept),
            ("database", f"billing.invoices/{f.ref('I')}", 1, *accept),
            ("database", f"notices.mail/{f.ref('M')}", 1, *accept),
            ("transport", f"stock/stock.counted/{f.sku}", 2, "stock", local),
            ("transport", f"mail/notice.queued/{f.ref('N')}", 1, "notices", f.queued_in),
            ("database", f"billing.entries/{f.ref('E')}", 1, "billing", local),
            ("registry", "meshmoney==1.2.0", 1, "intake", local),
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
        return wanted.items() <= files.items() and {*SCENARIOS, f"{facts(seed).hook_in}/manifest.json"} <= files.keys()


ORACLE = RelayOracle()
