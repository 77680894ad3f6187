"""`tenants`: two tenants do the same business at the same time, on three orchestrators that share one durable ledger.

Why: one orchestrator that runs alone never meets another one's leases, locks and half-done work, nor an effect of equal
content that is somebody else's. Each tenant has an intake and a billing, which needs the intake and runs on the other
tenant's host; a third host settles both. The plan is one, so a death delays who waits for the dead one, and nobody
else. The order is the same in both tenants: at the index and the provider, two effects of equal content are two.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from harness.core.roles import Completion, SiteOffer, Task
from harness.core.types import CheckSpec, Delegation, EffectContract
from workloads.common import declare, kit
from workloads.common.agent import answer
from workloads.common.declare import check_site, effect_site, phase_sites
from workloads.common.defects import failing
from workloads.tenants import repository
from workloads.tenants.facts import PACKAGE, TENANTS, VERSION, Facts, facts, pool, unit_tests
from workloads.tenants.script import next_actions

HOSTS = {
    "north": ("ash/intake", "birch/billing"),
    "south": ("birch/intake", "ash/billing"),
    "east": ("ops",),
}
"""Who runs what. North and south each work for both tenants, and each waits for the other."""

_INTAKE = ("test_design", "test_preflight", "implementation", "local_verification")
_BILLING = ("test_design", "oracle_qualification")


def _delegations() -> tuple[Delegation, ...]:
    plan = []
    for tenant in TENANTS:
        intake, billing = f"{tenant}/intake", f"{tenant}/billing"
        takes_in = EffectContract(
            writable=(f"{intake}/**",),
            checks=(f"install_{tenant}", f"unit_{tenant}", f"intake_{tenant}"),
            effects=(declare.events(tenant), declare.rows(tenant, "row.order_ref"), declare.FETCH, declare.HOOK),
        )
        bills = EffectContract(writable=(f"{billing}/**",), checks=(f"billing_{tenant}",), effects=(declare.CHAT,))
        plan += [
            Delegation(
                id=intake, tenant=tenant, goal="Take the order in.", phases=_INTAKE, contract=takes_in, component=intake
            ),
            Delegation(
                id=billing,
                tenant=tenant,
                goal="Bill the order.",
                phases=_BILLING,
                contract=bills,
                component=billing,
                needs=(intake,),
            ),
        ]
    settles = EffectContract(
        writable=("ops/**",), checks=("acceptance",), effects=(declare.rows("ops", "row.settlement_ref"),)
    )
    last = Delegation(
        id="ops",
        tenant="house",
        goal="Settle what both tenants did.",
        phases=("acceptance",),
        contract=settles,
        needs=tuple(f"{tenant}/billing" for tenant in TENANTS),
    )
    return (*plan, last)


def _flow(name: str, path: str) -> CheckSpec:
    return CheckSpec(name=name, kind="pytest", target="tests/test_flow.py", scenario=path)


_CHECKS = (
    *(
        check
        for tenant in TENANTS
        for check in (
            CheckSpec(name=f"install_{tenant}", kind="install", target=f"{tenant}/intake/requirements.lock"),
            CheckSpec(name=f"unit_{tenant}", kind="pytest", target=unit_tests(tenant)),
            _flow(f"intake_{tenant}", f"{tenant}/intake/flow.json"),
            _flow(f"billing_{tenant}", f"{tenant}/billing/flow.json"),
        )
    ),
    _flow("acceptance", "ops/flow.json"),
)


def _sites(delegations: tuple[Delegation, ...], what: Facts) -> tuple[SiteOffer, ...]:
    """Where faults may strike: only sites that every arm visits when nothing fails. Of checks one for each run."""
    offers = phase_sites(delegations, [d.id for d in delegations])
    offers.append(effect_site("ops", "acceptance", "database", "acceptance"))
    offers.append(check_site("ops", "acceptance", "acceptance"))
    offers.append(effect_site(f"{what.hook_in}/intake", "implementation", "hook", "publish_manifest"))
    for tenant in TENANTS:
        intake, billing = f"{tenant}/intake", f"{tenant}/billing"
        unit = check_site(intake, "implementation", f"unit_{tenant}")
        offers += [
            effect_site(intake, "test_preflight", "registry", f"install_{tenant}"),
            effect_site(intake, "local_verification", "transport", f"intake_{tenant}"),
            effect_site(intake, "local_verification", "database", f"intake_{tenant}"),
            effect_site(billing, "oracle_qualification", "provider", f"billing_{tenant}"),
            check_site(intake, "test_preflight", f"install_{tenant}"),
            check_site(intake, "local_verification", f"intake_{tenant}"),
            check_site(billing, "oracle_qualification", f"billing_{tenant}"),
            *(replace(unit, visits=nth + 1) for nth in range(len(what.defects[tenant]) + 1)),
        ]
    return tuple(offers)


class Tenants:
    """The workload as the harness sees it (see `harness.core.roles.Workload`)."""

    name = "tenants"
    about = "Two tenants do the same business at once, on three orchestrators that share one ledger."
    intended = {"transport": 4, "database": 3, "registry": 2, "provider": 2, "hook": 1}  # noqa: RUF012

    def task(self, seed: int, variation: int, mode: str = "tdd") -> Task:
        delegations = _delegations()
        return Task(
            workload=self.name,
            seed=seed,
            variation=variation,
            delegations=delegations,
            files=repository.files(facts(seed)),
            checks=_CHECKS,
            hooks=(replace(kit.HOOK, glob="*/*/manifest.json"),),
            tables=repository.TABLES,
            packages=(f"{PACKAGE}=={VERSION}",),
            sites=_sites(delegations, facts(seed)),
            streams=TENANTS,
            hosts=HOSTS,
        )

    def reply(self, task: Task, request: dict[str, Any], nth: int, stream: int) -> Completion:
        """See `workloads.common.agent.answer`."""
        return answer(task, request, nth, stream, partial(next_actions, facts(task.seed)))

    def unit_failures(self, check: CheckSpec, files: Mapping[str, str]) -> tuple[str, ...]:
        """Ids of the tests that fail on these files, as the real runners report them."""
        tenant = check.name.partition("_")[2]
        if not check.name.startswith("unit_"):
            return ()
        return failing(files.get(repository.source_path(tenant)), pool(tenant), check.target)


SHARED_HOUSE = Tenants()
