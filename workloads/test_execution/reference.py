"""A trial of the test laboratory in which everything happened as it should, and trials in which one thing did not.

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
from workloads.test_execution.facts import COMPONENTS, Facts, facts
from workloads.test_execution.repository import SERVICES, SOURCE_PATH
from workloads.test_execution.task import TEST_EXECUTION

SEED = 20
LOCAL = "local_verification"


def effects(f: Facts) -> tuple[Effect, ...]:
    """The twelve of them, in the order of the delegations."""
    charge = {"charge_ref": f.ref("C"), "cents": f.cents}
    shelf = ("catalog", "shelf.seeded", f.sku, {"sku": f.sku, "quantity": 1})
    cart = {"cart_ref": f.ref("K"), "sku": f.sku, "cents": f.cents}
    return (
        fetch_of("payments", "test_preflight", "meshmoney", "1.2.0"),
        hook_of(f.hook_in, "implementation"),
        row_of("payments", LOCAL, "payments", "charges", charge),
        event_of("payments", LOCAL, "payments", "charge.captured", f.ref("C"), {"cents": f.cents}),
        event_of("mail", LOCAL, "mail", "letter.sent", f.ref("L"), {"sku": f.sku}),
        fetch_of("fixtures", LOCAL, "meshunits", "2.0.1"),
        row_of("fixtures", LOCAL, "catalog", "seeds", {"seed_ref": f.ref("S"), "sku": f.sku}),
        event_of("fixtures", LOCAL, *shelf),
        event_of("fixtures", LOCAL, *shelf),  # two shelves are seeded one by one: a legitimate repeat
        row_of("shop", LOCAL, "shop", "carts", cart),
        chat_of("shop", LOCAL, f"cart:{f.ref('K')}"),
        event_of("acceptance", "acceptance", "lab", "release.accepted", f.ref("R"), {"sku": f.sku}),
    )


def written(f: Facts) -> Files:
    """The files that each (delegation, phase) must leave, path to digest. What a scenario or manifest says is the
    agent's choice."""
    files: Files = {(component, LOCAL): texts(f"{component}/flow.json") for component in COMPONENTS}
    files["acceptance", "acceptance"] = texts("acceptance/flow.json")
    for component, source in SERVICES.items():
        manifest = texts(f"{component}/manifest.json") if component == f.hook_in else {}
        files[component, "implementation"] = {SOURCE_PATH[component]: sha256(source), **manifest}
    return files


def reference(seed: int = SEED) -> SealedTrial:
    """The trial in which everything happened as it should, of the instance with this seed."""
    f = facts(seed)
    return sealed(TEST_EXECUTION, seed, effects(f), written(f))


def mutants(seed: int = SEED) -> dict[str, SealedTrial]:
    """Trials that are the reference but for one thing, by what that is."""
    f = facts(seed)
    broken = [
        Broken(defect.wrong, (component, "implementation"), SOURCE_PATH[component], planted(source, [defect]))
        for component, source in SERVICES.items()
        for defect in f.defects[component]
    ]
    return mutants_of(TEST_EXECUTION, seed, effects(f), written(f), broken)
