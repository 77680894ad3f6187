"""A trial of the shop in which everything happened as it should, and trials in which one thing did not.

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
from workloads.preview.facts import DEFECTS, Facts, facts
from workloads.preview.repository import SERVICES, back_end, delivered
from workloads.preview.task import PREVIEW

SEED = 20
LOCAL = "local_verification"


def effects(f: Facts) -> tuple[Effect, ...]:
    """The twelve of them, in the order of the delegations."""
    order, stocked = f.ref("A"), ("catalog", "shelf.stocked", f.sku, {"sku": f.sku, "quantity": 1})
    return (
        fetch_of("catalog", "test_preflight", "meshmoney", "1.2.0"),
        fetch_of("orders", "test_preflight", "meshunits", "2.0.1"),
        hook_of(f.hook_in, "implementation"),
        row_of("catalog", LOCAL, "catalog", "shelves", {"shelf_ref": f.ref("H"), "sku": f.sku}),
        event_of("catalog", LOCAL, *stocked),
        event_of("catalog", LOCAL, *stocked),  # two units are stocked one by one: a legitimate repeat
        row_of("orders", LOCAL, "orders", "orders", {"order_ref": order, "sku": f.sku, "cents": f.items[f.sku]}),
        event_of("orders", LOCAL, "orders", "order.placed", order, {"sku": f.sku}),
        event_of("orders", LOCAL, "orders", "order.priced", order, {"cents": f.items[f.sku]}),
        chat_of("orders", LOCAL, f"receipt:{order}"),
        row_of("delivery", "acceptance", "delivery", "releases", {"release_ref": f.ref("R"), "components": 3}),
        event_of("delivery", "acceptance", "delivery", "release.previewed", f.ref("R"), {"components": 3}),
    )


def written(f: Facts) -> Files:
    """The files that each (delegation, phase) must leave, path to digest. What a scenario or manifest says is the
    agent's choice."""
    files: Files = {
        ("delivery", "implementation"): {path: sha256(text) for path, text in delivered(f).items()},
        ("delivery", "acceptance"): texts("delivery/flow.json"),
    }
    for component, path in SERVICES.items():
        manifest = texts(f"{component}/manifest.json") if component == f.hook_in else {}
        files[component, "implementation"] = {path: sha256(back_end(f, component)), **manifest}
        files[component, LOCAL] = texts(f"{component}/flow.json")
    return files


def reference(seed: int = SEED) -> SealedTrial:
    """The trial in which everything happened as it should, of the instance with this seed."""
    f = facts(seed)
    return sealed(PREVIEW, seed, effects(f), written(f))


def mutants(seed: int = SEED) -> dict[str, SealedTrial]:
    """Trials that are the reference but for one thing, by what that is: one of them for each of the four defects."""
    f = facts(seed)
    broken = [
        Broken(what, ("delivery", "implementation"), path, planted(delivered(f)[path], [defect]))
        for what, (path, defect) in DEFECTS.items()
    ]
    found = mutants_of(PREVIEW, seed, effects(f), written(f), broken)
    never = {"acceptance never green": sealed(PREVIEW, seed, effects(f), written(f), red="preview")}
    return found | never
