"""A trial of the keyed order system in which everything happened as it should, and trials in which one thing did not.

Written down from the facts and not taken from a run, so that what the oracle is held against owes nothing to the
harness: `reference` it must accept exactly, each of `mutants` it must not.
"""

from __future__ import annotations

from harness.core.records import SealedTrial
from workloads.common.defects import planted
from workloads.common.keys import sha256
from workloads.common.reference import Broken, Effect, Files, hook_of, mutants_of, row_of, sealed, texts
from workloads.idempotent.facts import Facts, facts
from workloads.idempotent.repository import SERVICES, SOURCE_PATH
from workloads.idempotent.task import IDEMPOTENT

SEED = 20
LOCAL, QUALIFIED = "local_verification", "oracle_qualification"


def effects(f: Facts) -> tuple[Effect, ...]:
    """The twelve of them, in the order of the delegations."""
    amount = {"quantity": f.quantity, "cents": f.unit_cents}
    audit_phase = LOCAL if f.audit_in == "orders" else "acceptance"
    lines = [{"line_ref": f"{f.order_ref}-{n}", **amount} for n in (1, 2)]
    moved = [{"movement_ref": f"{f.reservation_ref}-{n}", "sku": f.sku, "quantity": 1} for n in (1, 2)]
    reserved = {"reservation_ref": f.reservation_ref, "sku": f.sku, "quantity": 2}
    return (
        hook_of(f.hook_in, "implementation"),
        row_of("orders", LOCAL, "orders", "orders", {"order_ref": f.order_ref, "sku": f.sku, **amount}),
        *(row_of("orders", LOCAL, "orders", "lines", line) for line in lines),
        row_of(f.audit_in, audit_phase, "orders", "audit", {"entry_ref": f.entry_ref, "action": "checked"}),
        row_of("orders", QUALIFIED, "orders", "descriptions", {"description_ref": f.order_ref, "body": "An order."}),
        row_of("inventory", LOCAL, "inventory", "reservations", reserved),
        *(row_of("inventory", LOCAL, "inventory", "movements", row) for row in moved),
        row_of("storefront", QUALIFIED, "storefront", "blurbs", {"blurb_ref": f.sku, "body": "Good."}),
        row_of("storefront", QUALIFIED, "storefront", "prices", {"price_ref": f.sku, "cents": f.unit_cents}),
        row_of("acceptance", "acceptance", "orders", "acceptances", {"acceptance_ref": f.order_ref, "sku": f.sku}),
    )


def written(f: Facts) -> Files:
    """The files that each (delegation, phase) must leave, path to digest. Scenarios are worded freely."""
    files: Files = {
        ("orders", LOCAL): texts("orders/flow.json"),
        ("orders", QUALIFIED): texts("orders/qualify.json"),
        ("inventory", LOCAL): texts("inventory/flow.json"),
        ("storefront", QUALIFIED): texts("storefront/qualify.json"),
        ("acceptance", "acceptance"): texts("acceptance/flow.json"),
    }
    for component, source in SERVICES.items():
        manifest = texts(f"{component}/manifest.json") if component == f.hook_in else {}
        files[component, "implementation"] = {SOURCE_PATH[component]: sha256(source), **manifest}
    return files


def reference(seed: int = SEED) -> SealedTrial:
    """The trial in which everything happened as it should, of the instance with this seed."""
    f = facts(seed)
    return sealed(IDEMPOTENT, seed, effects(f), written(f))


def mutants(seed: int = SEED) -> dict[str, SealedTrial]:
    """Trials that are the reference but for one thing, by what that is. Two rows of one name cannot come about in these
    tables; that an oracle finds them all the same is what a mutant asks."""
    f = facts(seed)
    broken = [
        Broken(defect.wrong, (component, "implementation"), SOURCE_PATH[component], planted(source, [defect]))
        for component, source in SERVICES.items()
        for defect in f.defects[component]
    ]
    return mutants_of(IDEMPOTENT, seed, effects(f), written(f), broken)
