"""A trial of the relay in which everything happened as it should, and trials in which one thing did not.

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
    event_of,
    fetch_of,
    hook_of,
    mutants_of,
    row_of,
    sealed,
    texts,
)
from workloads.relay.facts import HIDDEN, Facts, facts
from workloads.relay.sources import SERVICES, SOURCE_PATH
from workloads.relay.task import RELAY

SEED = 20
LOCAL = "local_verification"


def effects(f: Facts) -> tuple[Effect, ...]:
    """The twelve of them, in the order of the delegations."""
    accept = ("acceptance", "acceptance")
    counted = ("stock", "stock.counted", f.sku, {"sku": f.sku, "quantity": 1})
    data = {"sku": f.sku, "cents": f.cents}
    return (
        fetch_of("intake", LOCAL, "meshmoney", "1.2.0"),
        hook_of(f.hook_in, "implementation"),
        event_of("stock", LOCAL, *counted),
        event_of("stock", LOCAL, *counted),  # two shelves are counted one by one: a legitimate repeat
        row_of("billing", LOCAL, "billing", "entries", {"entry_ref": f.ref("E"), "cents": f.cents}),
        event_of("notices", f.queued_in, "mail", "notice.queued", f.ref("N"), {"sku": f.sku}),
        event_of(*accept, "relay", "order.placed", f.order_ref, data),
        event_of(*accept, "relay", "order.priced", f.order_ref, data),
        event_of(*accept, "relay", "stock.reserved", f.sku, data),
        row_of(*accept, "pricing", "quotes", {"quote_ref": f.ref("Q"), "sku": f.sku}),
        row_of(*accept, "billing", "invoices", {"invoice_ref": f.ref("I"), "cents": f.cents}),
        row_of(*accept, "notices", "mail", {"mail_ref": f.ref("M"), "sku": f.sku}),
    )


def written(f: Facts) -> Files:
    """The files that each (delegation, phase) must leave, path to digest. Scenarios are worded freely."""
    files: Files = {
        ("stock", LOCAL): texts("stock/flow.json"),
        ("billing", LOCAL): texts("billing/flow.json"),
        ("acceptance", "acceptance"): texts("acceptance/flow.json"),
    }
    for component, source in SERVICES.items():
        files[component, "implementation"] = {SOURCE_PATH[component]: sha256(source)}
    files[f.hook_in, "implementation"] |= texts(f"{f.hook_in}/manifest.json")
    files.setdefault(("notices", f.queued_in), {}).update(texts("notices/flow.json"))
    return files


def reference(seed: int = SEED) -> SealedTrial:
    """The trial in which everything happened as it should, of the instance with this seed."""
    f = facts(seed)
    return sealed(RELAY, seed, effects(f), written(f))


def mutants(seed: int = SEED) -> dict[str, SealedTrial]:
    """Trials that are the reference but for one thing, by what that is."""
    f = facts(seed)
    broken = [
        Broken(defect.wrong, (component, "implementation"), SOURCE_PATH[component], planted(source, [defect]))
        for component, source in SERVICES.items()
        for defect in (*f.unit[component], HIDDEN[component])
    ]
    return mutants_of(RELAY, seed, effects(f), written(f), broken)
