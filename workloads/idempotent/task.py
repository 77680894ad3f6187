"""`idempotent`: the order system of `codegen`, where every write names its row and a repeat changes nothing.

Why: the harness must be able to say that the premise is weak. Here the sinks themselves make a repeat harmless, so a
service mesh's retries do what they were made for, and the kill criterion has to end in STOP. The same five delegations
and services, twelve effects, eleven of them at a primary boundary: rows under a unique key. Packages and completions
have no such key and are left out; the one hook run stays, which does repeat and is in no primary.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from harness.core.roles import Completion, SiteOffer, Task
from harness.core.types import CheckSpec, Delegation, EffectContract
from workloads.codegen.task import CODEGEN
from workloads.common import declare, kit
from workloads.common.agent import answer
from workloads.common.declare import check_site, effect_site, phase_sites
from workloads.idempotent import repository
from workloads.idempotent.facts import Facts, facts
from workloads.idempotent.script import FLOWS, next_actions

COMPONENTS = tuple(repository.SERVICES)

_PHASES = {
    "orders": ("test_design", "red_validation", "implementation", "local_verification", "oracle_qualification"),
    "inventory": ("test_design", "implementation", "local_verification"),
    "storefront": ("test_design", "implementation", "oracle_qualification"),
}


def _rows(service: str) -> Any:
    return declare.rows(service, *(f"row.{key}" for key in repository.KEYS[service]))


_CONTRACTS = {
    "orders": EffectContract(
        writable=("orders/**",),
        checks=("unit_orders", "flow_orders", "qualify_orders"),
        effects=(_rows("orders"), declare.HOOK),
    ),
    "inventory": EffectContract(
        writable=("inventory/**",), checks=("unit_inventory", "flow_inventory"), effects=(_rows("inventory"),)
    ),
    "storefront": EffectContract(
        writable=("storefront/**",),
        checks=("unit_storefront", "qualify_storefront"),
        effects=(_rows("storefront"), declare.HOOK),
    ),
    "orders/verifier": EffectContract(checks=("unit_orders",)),
    "acceptance": EffectContract(writable=("acceptance/**",), checks=("acceptance",), effects=(_rows("orders"),)),
}


def _delegations(mode: str) -> tuple[Delegation, ...]:
    """The plan of `codegen` without its installs."""
    return tuple(
        replace(
            one,
            phases=tuple(p for p in _PHASES.get(one.id, one.phases) if mode == "tdd" or p != "red_validation"),
            contract=_CONTRACTS[one.id],
        )
        for one in CODEGEN.task(0, 0, mode).delegations
    )


_CHECKS = (
    CheckSpec(name="unit_orders", kind="pytest", target="tests/test_orders_unit.py"),
    CheckSpec(name="unit_inventory", kind="pytest", target="tests/test_inventory_unit.py"),
    CheckSpec(name="unit_storefront", kind="node", target="storefront/price.test.mjs"),
    *(
        CheckSpec(name=check, kind="pytest", target="tests/test_flow.py", scenario=path)
        for path, check in FLOWS.values()
    ),
)


def _sites(delegations: tuple[Delegation, ...], what: Facts) -> tuple[SiteOffer, ...]:
    """Where faults may strike: only sites that every arm visits when nothing fails. Of checks one for each run."""
    rows = {"flow_orders": 3, "flow_inventory": 3, "qualify_orders": 1, "qualify_storefront": 2, "acceptance": 1}
    offers = phase_sites(delegations, (*COMPONENTS, "acceptance"))
    offers += [effect_site(*where, "database", check, visits=rows[check]) for where, (_, check) in FLOWS.items()]
    offers.append(effect_site(what.hook_in, "implementation", "hook", "publish_manifest"))
    runs = [check_site(*where, check) for where, (_, check) in FLOWS.items()]
    runs.append(check_site("orders/verifier", "local_verification", "unit_orders"))
    if any("red_validation" in d.phases for d in delegations):
        runs.append(check_site("orders", "red_validation", "unit_orders"))
    for component, defects in what.defects.items():
        run = check_site(component, "implementation", f"unit_{component}")
        runs += [replace(run, visits=nth + 1) for nth in range(len(defects) + 1)]
    return (*offers, *runs)


class Idempotent:
    """The workload as the harness sees it (see `harness.core.roles.Workload`)."""

    name = "idempotent"
    about = "The order system of codegen on tables with unique keys: a repeated write changes nothing."
    intended = {"database": 11, "hook": 1}  # noqa: RUF012

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
            packages=(),
            sites=_sites(delegations, facts(seed)),
        )

    def reply(self, task: Task, request: dict[str, Any], nth: int, stream: int) -> Completion:
        """See `workloads.common.agent.answer`."""
        return answer(task, request, nth, stream, partial(next_actions, facts(task.seed)))

    def unit_failures(self, check: CheckSpec, files: Mapping[str, str]) -> tuple[str, ...]:
        """Ids of the tests that fail on these files, as the real runners report them."""
        return CODEGEN.unit_failures(check, files)


IDEMPOTENT = Idempotent()
