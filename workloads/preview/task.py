"""`preview`: two back ends, a front end and a gateway are generated, built, and only then seen to run, or not.

What the others do not have: an acceptance that boots every back end as a process of its own, asks through the gateway
with and without its header, and looks at the pages in a browser. Four kinds of defect pass a green build and show there
alone: a page without its style, a link to nowhere, a database without rows, a service without its credential. Twelve
effects are intended; which ones stands in the oracle.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from harness.core.roles import Completion, SiteOffer, Task
from harness.core.types import CheckSpec, Delegation, EffectContract, Json
from workloads.common import declare, kit
from workloads.common.agent import answer
from workloads.common.declare import check_site, effect_site, phase_sites
from workloads.preview import repository
from workloads.preview.facts import BLUEPRINT, DEFECTS, PAGE, TARGET, Facts, facts
from workloads.preview.script import next_actions

TENANT = "acme"
LOCAL = "local_verification"
_BACK_END = ("test_design", "test_preflight", "implementation", LOCAL)

_CONTRACTS = {
    "catalog": EffectContract(
        writable=("catalog/**",),
        checks=("install_catalog", "unit_catalog", "flow_catalog"),
        effects=(declare.events("catalog"), declare.rows("catalog", "row.shelf_ref"), declare.FETCH, declare.HOOK),
    ),
    "orders": EffectContract(
        writable=("orders/**",),
        checks=("install_orders", "unit_orders", "flow_orders"),
        effects=(
            declare.events("orders"),
            declare.rows("orders", "row.order_ref"),
            declare.FETCH,
            declare.CHAT,
            declare.HOOK,
        ),
    ),
    "delivery": EffectContract(
        writable=("gateway/**", "site/**", "deploy/**", "delivery/**"),
        checks=("build", "preview"),
        effects=(declare.events("delivery"), declare.rows("delivery", "row.release_ref")),
    ),
}


def _delegation(id: str, goal: str, phases: tuple[str, ...], **more: Any) -> Delegation:
    return Delegation(id=id, tenant=TENANT, goal=goal, phases=phases, contract=_CONTRACTS[id], component=id, **more)


_PLAN = (
    _delegation("catalog", "Build the catalog service.", _BACK_END),
    _delegation("orders", "Build the orders service.", _BACK_END),
    _delegation(
        "delivery",
        "Put the shop together, until it works where it runs.",
        ("test_design", "implementation", "acceptance"),
        needs=("catalog", "orders"),
    ),
)

_CHECKS = (
    *(
        check
        for c in repository.SERVICES
        for check in (
            CheckSpec(name=f"install_{c}", kind="install", target=f"{c}/requirements.lock"),
            CheckSpec(name=f"unit_{c}", kind="pytest", target=f"tests/test_{c}.py"),
            CheckSpec(name=f"flow_{c}", kind="pytest", target="tests/test_flow.py", scenario=f"{c}/flow.json"),
        )
    ),
    CheckSpec(name="build", kind="pytest", target="tests/test_build.py"),
    CheckSpec(name="preview", kind="pytest", target=TARGET, scenario="delivery/flow.json"),
)


def _sites(what: Facts) -> tuple[SiteOffer, ...]:
    """Where faults may strike: only sites that every arm visits when nothing fails. The preview runs twice, since a
    defect is always planted."""
    preview = check_site("delivery", "acceptance", "preview")
    return (
        *phase_sites(_PLAN, [d.id for d in _PLAN]),
        effect_site("catalog", "test_preflight", "registry", "install_catalog"),
        effect_site("orders", "test_preflight", "registry", "install_orders"),
        effect_site("catalog", LOCAL, "transport", "flow_catalog", visits=2),
        effect_site("catalog", LOCAL, "database", "flow_catalog"),
        effect_site("orders", LOCAL, "transport", "flow_orders", visits=2),
        effect_site("orders", LOCAL, "database", "flow_orders"),
        effect_site("orders", LOCAL, "provider", "flow_orders"),
        effect_site("delivery", "acceptance", "transport", "preview"),
        effect_site("delivery", "acceptance", "database", "preview"),
        effect_site(what.hook_in, "implementation", "hook", "publish_manifest"),
        *(check_site(c, "test_preflight", f"install_{c}") for c in repository.SERVICES),
        *(check_site(c, "implementation", f"unit_{c}") for c in repository.SERVICES),
        *(check_site(c, LOCAL, f"flow_{c}") for c in repository.SERVICES),
        check_site("delivery", "implementation", "build"),
        *(replace(preview, visits=nth) for nth in (1, 2)),
    )


_ALL = tuple(f"{TARGET}::test_{what}" for what in ("credential", "gateway", "links", "rows", "styled"))
_MISSED = {
    BLUEPRINT: _ALL,
    "gateway/service.py": _ALL,
    "catalog/service.py": _ALL,
    "deploy/seed.sql": _ALL,
    "orders/service.py": _ALL[:1],
    PAGE: _ALL[1:],
    "site/shop.css": _ALL[-1:],
}
"""By path: the tests of the preview that fail where that file is not there."""


class Preview:
    """The workload as the harness sees it (see `harness.core.roles.Workload`)."""

    name = "preview"
    about = "Two back ends, a front end and a gateway, which a preview really boots: green builds that do not work."
    intended = {"transport": 5, "database": 3, "registry": 2, "provider": 1, "hook": 1}  # noqa: RUF012

    def task(self, seed: int, variation: int, mode: str = "tdd") -> Task:
        what = facts(seed)
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
            streams=("catalog", "orders", "delivery"),
        )

    def reply(self, task: Task, request: dict[str, Any], nth: int, stream: int) -> Completion:
        """See `workloads.common.agent.answer`."""
        return answer(task, request, nth, stream, partial(next_actions, facts(task.seed)))

    def unit_failures(self, check: CheckSpec, files: Mapping[str, str]) -> tuple[str, ...]:
        """Ids of the tests that fail on these files, as the real runners report them."""
        if check.name.startswith("unit_"):
            return () if repository.SERVICES[check.name.removeprefix("unit_")] in files else (check.target,)
        if check.name == "build":
            return () if "gateway/service.py" in files else (check.target,)
        if check.name != "preview":
            return ()
        missed = {test for path, tests in _MISSED.items() if path not in files for test in tests}
        wrong = {defect.test for path, defect in DEFECTS.values() if defect.wrong in files.get(path, "")}
        return tuple(sorted(missed | wrong))

    def steps(self, check: CheckSpec, files: Mapping[str, str], steps: list[Json]) -> list[Json]:
        """The steps of a scenario as the processes of a check do them: none where the preview is red."""
        return [] if self.unit_failures(check, files) else steps


PREVIEW = Preview()
