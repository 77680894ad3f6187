"""A trial of the order system in which everything happened as it should, and trials in which one thing did not.

Written down from the facts and not taken from a run, so that what the oracle is held against owes nothing to the
harness: `reference` it must accept exactly, each of `mutants` it must not.
"""

from __future__ import annotations

from harness.core.records import SealedTrial
from workloads.codegen.facts import Facts, facts
from workloads.codegen.repository import SERVICES, SOURCE_PATH
from workloads.codegen.task import CODEGEN
from workloads.common.defects import planted
from workloads.common.keys import sha256
from workloads.common.reference import (
    Broken,
    Effect,
    Files,
    chat_of,
    event_of,
    fetch_of,
    hook_of,
    mutants_of,
    row_of,
    sealed,
    texts,
)

SEED = 20


def effects(f: Facts) -> tuple[Effect, ...]:
    """The twelve of them, in the order of the delegations."""
    amount = {"quantity": f.quantity, "cents": f.unit_cents}
    audit_phase = "local_verification" if f.audit_in == "orders" else "acceptance"
    local = "local_verification"
    reserved = ("stock", "stock.reserved", f.sku, {"sku": f.sku, "quantity": 1})
    return (
        fetch_of("orders", "test_preflight", "meshmoney", "1.2.0"),
        fetch_of("inventory", "test_preflight", "meshunits", "2.0.1"),
        hook_of(f.hook_in, "implementation"),
        row_of("orders", local, "orders", "orders", {"order_ref": f.order_ref, "sku": f.sku, **amount}),
        event_of("orders", local, "orders", "order.created", f.order_ref, {"sku": f.sku, **amount}),
        row_of(f.audit_in, audit_phase, "orders", "audit", {"entry_ref": f.entry_ref, "action": "checked"}),
        row_of("inventory", local, "inventory", "reservations", {"reservation_ref": f.reservation_ref, "sku": f.sku}),
        event_of("inventory", local, *reserved),
        event_of("inventory", local, *reserved),  # two units are reserved one by one: a legitimate repeat
        chat_of("orders", "oracle_qualification", f"describe:{f.order_ref}"),
        chat_of("storefront", "oracle_qualification", f"blurb:{f.sku}"),
        event_of("acceptance", "acceptance", "orders", "order.accepted", f.order_ref, {"sku": f.sku}),
    )


def written(f: Facts) -> Files:
    """The files that each (delegation, phase) must leave, path to digest. What a scenario or manifest says is the
    agent's choice."""
    files: Files = {
        ("orders", "local_verification"): texts("orders/flow.json"),
        ("orders", "oracle_qualification"): texts("orders/qualify.json"),
        ("inventory", "local_verification"): texts("inventory/flow.json"),
        ("storefront", "oracle_qualification"): texts("storefront/qualify.json"),
        ("acceptance", "acceptance"): texts("acceptance/flow.json"),
    }
    for component, source in SERVICES.items():
        manifest = texts(f"{component}/manifest.json") if component == f.hook_in else {}
        files[component, "implementation"] = {SOURCE_PATH[component]: sha256(source), **manifest}
    return files


def reference(seed: int = SEED) -> SealedTrial:
    """The trial in which everything happened as it should, of the instance with this seed."""
    f = facts(seed)
    return sealed(CODEGEN, seed, effects(f), written(f))


def mutants(seed: int = SEED) -> dict[str, SealedTrial]:
    """Trials that are the reference but for one thing, by what that is."""
    f = facts(seed)
    broken = [
        Broken(defect.wrong, (component, "implementation"), SOURCE_PATH[component], planted(source, [defect]))
        for component, source in SERVICES.items()
        for defect in f.defects[component]
    ]
    return mutants_of(CODEGEN, seed, effects(f), written(f), broken)
