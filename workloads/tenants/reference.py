"""A trial of the shared house in which everything happened as it should, and trials in which one thing did not.

Written down from the facts and not taken from a run, so that what the oracle is held against owes nothing to the
harness: `reference` it must accept exactly, each of `mutants` it must not.
"""

from __future__ import annotations

from harness.core.records import SealedTrial
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
from workloads.tenants.facts import TENANTS, Facts, facts
from workloads.tenants.repository import SOURCE, source_path
from workloads.tenants.task import SHARED_HOUSE

SEED = 20


def effects(f: Facts) -> tuple[Effect, ...]:
    """The twelve of them, tenant by tenant. The two lines of an order are a legitimate repeat."""
    done: list[Effect] = []
    for tenant in TENANTS:
        intake, local = f"{tenant}/intake", "local_verification"
        line = event_of(intake, local, tenant, "order.line", f.order_ref, {"sku": f.sku, "quantity": 1})
        order = {"order_ref": f.order_ref, "sku": f.sku, "quantity": f.quantity, "cents": f.unit_cents}
        done += [
            fetch_of(intake, "test_preflight", "meshmoney", "1.2.0"),
            *([hook_of(intake, "implementation")] if f.hook_in == tenant else []),
            row_of(intake, local, tenant, "orders", order),
            line,
            line,
            chat_of(f"{tenant}/billing", "oracle_qualification", f"invoice:{f.order_ref}"),
        ]
    settled = {"settlement_ref": f.settlement_ref, "orders": 2}
    return (*done, row_of("ops", "acceptance", "ops", "settlements", settled))


def written(f: Facts) -> Files:
    """The files that each (delegation, phase) must leave, path to digest."""
    files: Files = {("ops", "acceptance"): texts("ops/flow.json")}
    for tenant in TENANTS:
        intake, billing = f"{tenant}/intake", f"{tenant}/billing"
        manifest = texts(f"{intake}/manifest.json") if f.hook_in == tenant else {}
        files[intake, "implementation"] = {source_path(tenant): sha256(SOURCE), **manifest}
        files[intake, "local_verification"] = texts(f"{intake}/flow.json")
        files[billing, "oracle_qualification"] = texts(f"{billing}/flow.json")
    return files


def reference(seed: int = SEED) -> SealedTrial:
    """The trial in which everything happened as it should, of the instance with this seed."""
    f = facts(seed)
    return sealed(SHARED_HOUSE, seed, effects(f), written(f))


def mutants(seed: int = SEED) -> dict[str, SealedTrial]:
    """Trials that are the reference but for one thing, by what that is."""
    f = facts(seed)
    broken = [
        Broken(defect.wrong, (f"{tenant}/intake", "implementation"), source_path(tenant), planted(SOURCE, [defect]))
        for tenant in TENANTS
        for defect in f.defects[tenant]
    ]
    return mutants_of(SHARED_HOUSE, seed, effects(f), written(f), broken)
