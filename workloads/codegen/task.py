"""`codegen`: a small order system is generated, tested and accepted by five delegations.

Three components (two Python services, a JavaScript storefront), a verifier sub-agent of the first, and an acceptance
delegation that needs them all. Twelve effects are intended over five boundaries; which ones stands in the oracle.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from harness.core.roles import Completion, SiteOffer, Task
from harness.core.types import CheckSpec, Delegation, EffectContract
from workloads.codegen import repository
from workloads.codegen.facts import INVENTORY_DEFECTS, ORDERS_DEFECTS, STOREFRONT_DEFECTS, Facts, facts
from workloads.codegen.script import next_actions
from workloads.common import declare, kit
from workloads.common.agent import answer
from workloads.common.declare import check_site, effect_site, phase_sites
from workloads.common.defects import failing

PYTHON = ("orders", "inventory")
COMPONENTS = (*PYTHON, "storefront")

_PHASES = {
    "orders": (
        "test_design",
        "test_preflight",
        "red_validation",
        "implementation",
        "local_verification",
        "oracle_qualification",
    ),
    "inventory": ("test_design", "test_preflight", "implementation", "local_verification"),
    "storefront": ("test_design", "implementation", "oracle_qualification"),
}


_CONTRACTS = {
    "orders": EffectContract(
        writable=("orders/**",),
        checks=("install_orders", "unit_orders", "flow_orders", "qualify_orders"),
        effects=(
            declare.events("orders"),
            declare.rows("orders", "row.order_ref", "row.entry_ref"),
            declare.FETCH,
            declare.CHAT,
            declare.HOOK,
        ),
    ),
    "inventory": EffectContract(
        writable=("inventory/**",),
        checks=("install_inventory", "unit_inventory", "flow_inventory"),
        effects=(declare.events("stock"), declare.rows("inventory", "row.reservation_ref"), declare.FETCH),
    ),
    "storefront": EffectContract(
        writable=("storefront/**",),
        checks=("unit_storefront", "qualify_storefront"),
        effects=(declare.CHAT, declare.HOOK),
    ),
    "orders/verifier": EffectContract(checks=("unit_orders",)),
    "acceptance": EffectContract(
        writable=("acceptance/**",),
        checks=("acceptance",),
        effects=(declare.events("orders"), declare.rows("orders", "row.entry_ref")),
    ),
}


def _delegations(mode: str) -> tuple[Delegation, ...]:
    """The DAG. In the direct mode the test-driven rung `red_validation` is left out."""

    def make(id: str, goal: str, phases: tuple[str, ...], **more: Any) -> Delegation:
        kept = tuple(p for p in phases if mode == "tdd" or p != "red_validation")
        return Delegation(id=id, tenant="acme", goal=goal, phases=kept, contract=_CONTRACTS[id], **more)

    components = [make(c, f"Build the {c} component.", _PHASES[c], component=c) for c in COMPONENTS]
    verifier = make(
        "orders/verifier",
        "Verify the orders component.",
        ("local_verification",),
        component="orders",
        parent="orders",
        needs=("orders",),
        depth=2,
    )
    acceptance = make(
        "acceptance",
        "Accept the services together.",
        ("acceptance",),
        needs=(*COMPONENTS, "orders/verifier"),
    )
    return (*components, verifier, acceptance)


_CHECKS = (
    CheckSpec(name="install_orders", kind="install", target="orders/requirements.lock"),
    CheckSpec(name="install_inventory", kind="install", target="inventory/requirements.lock"),
    CheckSpec(name="unit_orders", kind="pytest", target="tests/test_orders_unit.py"),
    CheckSpec(name="unit_inventory", kind="pytest", target="tests/test_inventory_unit.py"),
    CheckSpec(name="unit_storefront", kind="node", target="storefront/price.test.mjs"),
    CheckSpec(name="flow_orders", kind="pytest", target="tests/test_flow.py", scenario="orders/flow.json"),
    CheckSpec(name="flow_inventory", kind="pytest", target="tests/test_flow.py", scenario="inventory/flow.json"),
    CheckSpec(name="qualify_orders", kind="pytest", target="tests/test_flow.py", scenario="orders/qualify.json"),
    CheckSpec(
        name="qualify_storefront",
        kind="node",
        target="storefront/blurb.test.mjs",
        scenario="storefront/qualify.json",
    ),
    CheckSpec(name="acceptance", kind="pytest", target="tests/test_flow.py", scenario="acceptance/flow.json"),
)


def _sites(delegations: tuple[Delegation, ...], what: Facts) -> tuple[SiteOffer, ...]:
    """Where faults may strike: only sites that every arm visits when nothing fails."""
    offers = phase_sites(delegations, (*COMPONENTS, "acceptance"))
    offers += [
        effect_site("orders", "local_verification", "transport", "flow_orders"),
        effect_site("orders", "local_verification", "database", "flow_orders"),
        effect_site("inventory", "local_verification", "transport", "flow_inventory", visits=2),
        effect_site("inventory", "local_verification", "database", "flow_inventory"),
        effect_site("acceptance", "acceptance", "transport", "acceptance"),
        effect_site("orders", "test_preflight", "registry", "install_orders"),
        effect_site("inventory", "test_preflight", "registry", "install_inventory"),
        effect_site("orders", "oracle_qualification", "provider", "qualify_orders"),
        effect_site("storefront", "oracle_qualification", "provider", "qualify_storefront"),
        effect_site(what.hook_in, "implementation", "hook", "publish_manifest"),
    ]
    return (*offers, *_check_runs(delegations, what))


def _check_runs(delegations: tuple[Delegation, ...], what: Facts) -> list[SiteOffer]:
    """One offer for each run of a check in a fault-free trial, so that faults of checks strike effectful and pure ones
    as often as they are run: rates of real check failures are per run, too."""
    runs = [
        check_site("orders", "test_preflight", "install_orders"),
        check_site("inventory", "test_preflight", "install_inventory"),
        check_site("orders", "local_verification", "flow_orders"),
        check_site("inventory", "local_verification", "flow_inventory"),
        check_site("orders", "oracle_qualification", "qualify_orders"),
        check_site("storefront", "oracle_qualification", "qualify_storefront"),
        check_site("orders/verifier", "local_verification", "unit_orders"),
        check_site("acceptance", "acceptance", "acceptance"),
    ]
    if any("red_validation" in d.phases for d in delegations):
        runs.append(check_site("orders", "red_validation", "unit_orders"))
    for component, defects in what.defects.items():
        run = check_site(component, "implementation", f"unit_{component}")
        runs += [replace(run, visits=nth + 1) for nth in range(len(defects) + 1)]
    return runs


class Codegen:
    """The workload as the harness sees it (see `harness.core.roles.Workload`)."""

    name = "codegen"
    about = "An order system of two Python services and a JavaScript front end: generate, test, accept."
    intended = {"transport": 4, "database": 3, "registry": 2, "provider": 2, "hook": 1}  # noqa: RUF012

    def task(self, seed: int, variation: int, mode: str = "tdd") -> Task:
        delegations = _delegations(mode)
        return Task(
            workload=self.name,
            seed=seed,
            variation=variation,
            delegations=delegations,
            files=repository.files(facts(seed)),
            checks=_CHECKS,
            hooks=(kit.HOOK,),
            tables=repository.TABLES,
            packages=("meshmoney==1.2.0", "meshunits==2.0.1"),
            sites=_sites(delegations, facts(seed)),
            streams=("orders", "stock"),
        )

    def reply(self, task: Task, request: dict[str, Any], nth: int, stream: int) -> Completion:
        """See `workloads.common.agent.answer`."""
        return answer(task, request, nth, stream, partial(next_actions, facts(task.seed)))

    def unit_failures(self, check: CheckSpec, files: Mapping[str, str]) -> tuple[str, ...]:
        """Ids of the tests that fail on these files, as the real runners report them."""
        component = check.name.partition("_")[2]
        if not check.name.startswith("unit_"):
            return ()
        return failing(files.get(repository.SOURCE_PATH[component]), _ALL_DEFECTS[component], check.target)


_ALL_DEFECTS = {"orders": ORDERS_DEFECTS, "inventory": INVENTORY_DEFECTS, "storefront": STOREFRONT_DEFECTS}
CODEGEN = Codegen()
