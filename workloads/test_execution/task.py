"""`test_execution`: five delegations whose work is to run suites, some of which are slow, flaky or hang.

What the others do not have: suites with a temper of their own (see `temper`), so that a guard meets slowness that is
healthy and failures that mean nothing even where no fault was injected; a suite that installs a package while it runs;
one that accepts exactly one event; writes of a JavaScript suite; and a hook that leaves a file behind. Twelve effects
are intended; which ones stands in the oracle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from harness.core.roles import Completion, Manner, SiteOffer, Task
from harness.core.types import CheckSpec, Delegation, EffectContract, Json
from workloads.common import declare, kit
from workloads.common.agent import answer
from workloads.common.declare import check_site, effect_site, phase_sites
from workloads.common.defects import failing
from workloads.test_execution import repository, temper
from workloads.test_execution.facts import COMPONENTS, DEFECTS, LATENT, SUITES, UNITS, Facts, facts
from workloads.test_execution.script import next_actions

TENANT = "acme"
LOCAL = "local_verification"

_PHASES = {
    "payments": ("test_design", "test_preflight", "implementation", LOCAL),
    "mail": ("test_design", LOCAL),
    "fixtures": ("test_design", LOCAL),
    "shop": ("test_design", "implementation", LOCAL),
}

_CONTRACTS = {
    "payments": EffectContract(
        writable=("payments/**",),
        checks=("install_payments", "unit_payments", "suite_payments"),
        effects=(declare.events("payments"), declare.rows("payments", "row.charge_ref"), declare.FETCH, declare.HOOK),
    ),
    "mail": EffectContract(writable=("mail/**",), checks=("suite_mail",), effects=(declare.events("mail"),)),
    "fixtures": EffectContract(
        writable=("fixtures/**",),
        checks=("suite_fixtures",),
        effects=(declare.events("catalog"), declare.rows("catalog", "row.seed_ref"), declare.FETCH),
    ),
    "shop": EffectContract(
        writable=("shop/**",),
        checks=("unit_shop", "suite_shop"),
        effects=(declare.rows("shop", "row.cart_ref"), declare.CHAT, declare.HOOK),
    ),
    "acceptance": EffectContract(writable=("acceptance/**",), checks=("acceptance",), effects=(declare.events("lab"),)),
}

_PLAN = (
    *(
        Delegation(
            id=c,
            tenant=TENANT,
            goal=f"Run the suites of {c} until they are green.",
            phases=_PHASES[c],
            contract=_CONTRACTS[c],
            component=c,
        )
        for c in COMPONENTS
    ),
    Delegation(
        id="acceptance",
        tenant=TENANT,
        goal="Accept the services together.",
        phases=("acceptance",),
        contract=_CONTRACTS["acceptance"],
        needs=COMPONENTS,
    ),
)

_CHECKS = (
    CheckSpec(name="install_payments", kind="install", target=repository.LOCKS["payments"]),
    CheckSpec(name="unit_payments", kind="pytest", target=UNITS["payments"]),
    CheckSpec(name="unit_shop", kind="node", target=UNITS["shop"]),
    *(
        CheckSpec(
            name=f"suite_{c}",
            kind="node" if target.endswith(".mjs") else "pytest",
            target=target,
            scenario=f"{c}/flow.json",
        )
        for c, target in SUITES.items()
    ),
    CheckSpec(name="acceptance", kind="pytest", target=repository.ACCEPTANCE_TEST, scenario="acceptance/flow.json"),
)


def _sites(what: Facts) -> tuple[SiteOffer, ...]:
    """Where faults may strike: only sites that every arm visits when nothing fails."""
    return (
        *phase_sites(_PLAN, [d.id for d in _PLAN]),
        effect_site("payments", "test_preflight", "registry", "install_payments"),
        effect_site("fixtures", LOCAL, "registry", "suite_fixtures"),
        effect_site("payments", LOCAL, "transport", "suite_payments"),
        effect_site("payments", LOCAL, "database", "suite_payments"),
        effect_site("mail", LOCAL, "transport", "suite_mail"),
        effect_site("fixtures", LOCAL, "transport", "suite_fixtures", visits=2),
        effect_site("fixtures", LOCAL, "database", "suite_fixtures"),
        effect_site("shop", LOCAL, "database", "suite_shop"),
        effect_site("shop", LOCAL, "provider", "suite_shop"),
        effect_site("acceptance", "acceptance", "transport", "acceptance"),
        effect_site(what.hook_in, "implementation", "hook", "publish_manifest"),
        *_check_runs(what),
    )


def _check_runs(what: Facts) -> list[SiteOffer]:
    """One offer for each run of a check that every arm makes when nothing fails, whatever its suite's luck."""
    runs = [
        check_site("payments", "test_preflight", "install_payments"),
        *(check_site(c, LOCAL, f"suite_{c}") for c in COMPONENTS),
        check_site("acceptance", "acceptance", "acceptance"),
    ]
    for component, defects in what.defects.items():
        run = check_site(component, "implementation", f"unit_{component}")
        runs += [replace(run, visits=nth + 1) for nth in range(len(defects) + 1)]
    return runs


class TestExecution:
    """The workload as the harness sees it (see `harness.core.roles.Workload`). kinds: tempers of its four suites with
    effects, in an order that is drawn."""

    __test__ = False  # for pytest, which takes the name for that of a test
    about = "Suites of three Python services and a JavaScript shop, run until they are green: slow, flaky, hanging."
    intended = {"transport": 5, "database": 3, "registry": 2, "provider": 1, "hook": 1}  # noqa: RUF012
    oracle = "workloads.test_execution.oracle:ORACLE"

    def __init__(self, name: str = "test_execution", kinds: tuple[str, ...] = temper.KINDS) -> None:
        self.name, self._kinds = name, kinds

    def facts(self, seed: int) -> Facts:
        return facts(seed, self._kinds)

    def task(self, seed: int, variation: int, mode: str = "tdd") -> Task:
        what = self.facts(seed)
        return Task(
            workload=self.name,
            seed=seed,
            variation=variation,
            delegations=_PLAN,
            files=repository.files(what),
            checks=_CHECKS,
            hooks=(kit.HOOK,),
            tables=repository.TABLES,
            packages=("meshmoney==1.2.0", "meshunits==2.0.1"),
            sites=_sites(what),
            streams=("payments", "mail", "catalog", "lab"),
        )

    def reply(self, task: Task, request: dict[str, Any], nth: int, stream: int) -> Completion:
        """See `workloads.common.agent.answer`."""
        return answer(task, request, nth, stream, partial(next_actions, self.facts(task.seed)))

    def unit_failures(self, check: CheckSpec, files: Mapping[str, str]) -> tuple[str, ...]:
        """Ids of the tests that fail on these files in every run, as the real runners report them."""
        kind, _, component = check.name.partition("_")
        if kind != "unit":
            return ()
        found = failing(files.get(repository.SOURCE_PATH[component]), DEFECTS[component], check.target)
        return tuple(check.target if test == check.target else f"{check.target}::{test}" for test in found)

    def manner(self, check: CheckSpec, files: Mapping[str, str], run: int) -> Manner:
        """How a suite behaves in its `run`-th run: as what stands beside it says."""
        how = temper.read(files, check.target)
        manner = how.manner(run, f"{check.target}::{'boot' if check.target == UNITS['shop'] else _flow(check)}")
        latent = LATENT.wrong in files.get(repository.SOURCE_PATH["payments"], "")
        if check.target == UNITS["payments"] and run in how.reversed_on and latent:
            return replace(manner, failing=(*manner.failing, f"{check.target}::{LATENT.test}"))
        return manner

    def steps(self, check: CheckSpec, files: Mapping[str, str], steps: list[Json]) -> list[Json]:
        """The steps of a scenario as the processes of a suite do them: an install is a fetch of each line."""
        test = f"{check.target}::{_flow(check)}"
        really = [plain for step in steps for plain in _fetches(step, files)]
        return [{**step, "test": test} for step in really]

    def leaves(self, hook: str, path: str, files: Mapping[str, str]) -> dict[str, str]:
        """The checksum that the hook leaves beside a manifest."""
        checksum = hashlib.sha256(files[path].encode()).hexdigest()
        return {f"{path.removesuffix('.json')}.sha256": f"{checksum}\n"}


def _flow(check: CheckSpec) -> str:
    return "flow" if check.kind == "node" else "test_flow"


def _fetches(step: Json, files: Mapping[str, str]) -> list[Json]:
    if step["do"] != "install":
        return [step]
    return [{"do": "install", "requirement": line} for line in files[step["lock"]].split()]


TEST_EXECUTION = TestExecution()

UNTIL_KILLED = TestExecution("test_execution_until_killed", ("stuck", "slow", "flaky", "steady"))
"""The same where the first run of one suite never returns by itself. Not for arms that wait for ever."""
