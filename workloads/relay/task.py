"""`relay`: five services that hand an order on are written side by side, and do not work together at once.

What `codegen` does not have: mistakes that no component's own tests see, so that a failed acceptance has to be routed
to whoever can mend it; agents that loop without an error; and a check that accepts exactly one event. Twelve effects
are intended; which ones stands in the oracle.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from harness.core.roles import Completion, SiteOffer, Task
from harness.core.types import CheckSpec, Delegation, Edge, EffectContract, Json, Node, System
from workloads.common import declare, kit
from workloads.common.agent import history
from workloads.common.declare import check_site, effect_site, phase_sites
from workloads.common.defects import failing
from workloads.common.voice import Voice
from workloads.relay import drift, repository
from workloads.relay.compose import STREAM, WAYS
from workloads.relay.facts import COMPONENTS, HIDDEN, JOURNEYS, UNIT, Facts, facts
from workloads.relay.script import check_of, next_turn
from workloads.relay.sources import SOURCE_PATH

PHASES = ("implementation", "local_verification")
TENANT = "acme"

_FLOWS = {
    "intake": ("install_intake", (declare.FETCH,)),
    "pricing": ("smoke_pricing", (declare.HOOK,)),
    "stock": ("flow_stock", (declare.events("stock"),)),
    "billing": ("flow_billing", (declare.rows("billing", "row.entry_ref"), declare.HOOK)),
    "notices": ("flow_notices", (declare.events("mail"),)),
}
"""By component: the last check of its own work, and its effects."""


def _contract(component: str) -> EffectContract:
    check, effects = _FLOWS[component]
    checks = dict.fromkeys((f"unit_{component}", f"smoke_{component}", check))
    return EffectContract(writable=(f"{component}/**",), checks=tuple(checks), effects=effects)


_ACCEPTANCE = EffectContract(
    writable=("acceptance/**",),
    checks=("acceptance",),
    effects=(
        declare.events(STREAM),
        declare.rows("pricing", "row.quote_ref"),
        declare.rows("billing", "row.invoice_ref"),
        declare.rows("notices", "row.mail_ref"),
    ),
)


def _plan() -> tuple[Delegation, ...]:
    components = [
        Delegation(
            id=c,
            tenant=TENANT,
            goal=f"Write the {c} handler.",
            phases=PHASES,
            contract=_contract(c),
            component=c,
        )
        for c in COMPONENTS
    ]
    acceptance = Delegation(
        id="acceptance",
        tenant=TENANT,
        goal="Accept the services together.",
        phases=("acceptance",),
        contract=_ACCEPTANCE,
        needs=COMPONENTS,
    )
    return (*components, acceptance)


def _repair(component: str) -> Delegation:
    """The right to mend a component: it may read everything, write its own files, and cause nothing."""
    return Delegation(
        id=f"repair/{component}",
        tenant=TENANT,
        goal=f"Acceptance failed. Repair the {component} handler.",
        phases=("repair",),
        contract=EffectContract(writable=(f"{component}/**",), checks=(f"unit_{component}", f"smoke_{component}")),
        component=component,
    )


def _edges() -> tuple[Edge, ...]:
    """The declared topology: the way of each journey, from the command to the route."""
    edges = []
    for name, (sender, receiver) in JOURNEYS.items():
        way = WAYS[name]
        nodes = (
            Node(component=sender, kind="command", name=way.command),
            Node(component=sender, kind="event", name=way.topic),
            Node(component=receiver, kind="subscriber", name=way.topic),
            Node(component=receiver, kind="state", name=way.table),
            Node(component=receiver, kind="route", name=way.table),
        )
        edges += [Edge(source=a, target=b) for a, b in itertools.pairwise(nodes)]
    return tuple(edges)


SYSTEM = System(repairs={c: _repair(c) for c in COMPONENTS}, coverage={"acceptance": COMPONENTS}, edges=_edges())

_CHECKS = (
    CheckSpec(name="install_intake", kind="install", target="intake/requirements.lock"),
    *(CheckSpec(name=f"unit_{c}", kind="pytest", target=f"tests/test_{c}_unit.py") for c in COMPONENTS),
    *(CheckSpec(name=f"smoke_{c}", kind="pytest", target=f"tests/test_{c}_smoke.py") for c in COMPONENTS),
    *(
        CheckSpec(name=f"flow_{c}", kind="pytest", target="tests/test_flow.py", scenario=f"{c}/flow.json")
        for c in ("stock", "billing")
    ),
    CheckSpec(name="flow_notices", kind="pytest", target="tests/test_notices_flow.py", scenario="notices/flow.json"),
    CheckSpec(name="acceptance", kind="pytest", target=repository.ACCEPTANCE_TEST, scenario="acceptance/flow.json"),
)


def _sites(delegations: tuple[Delegation, ...], what: Facts) -> tuple[SiteOffer, ...]:
    """Where faults may strike: only sites that every arm visits when nothing fails. An arm without a ledger never gets
    past a flow check that expects one event and is run six times; and one without routing never accepts anything, while
    the first run of acceptance has the effects of at least one whole journey."""
    *components, acceptance = delegations
    local = "local_verification"
    if what.flow_first:
        components[-1] = replace(components[-1], phases=PHASES[:1])
        offers = phase_sites(components, [c for c in COMPONENTS if c != "notices"])
        offers.append(
            effect_site("notices", "implementation", "transport", "flow_notices", visits=len(UNIT["notices"]))
        )
    else:
        offers = phase_sites((*components, acceptance), COMPONENTS)
        offers += [
            effect_site("notices", local, "transport", "flow_notices"),
            effect_site("acceptance", "acceptance", "transport", "acceptance"),
            effect_site("acceptance", "acceptance", "database", "acceptance"),
        ]
    offers += [
        effect_site("intake", local, "registry", "install_intake"),
        effect_site("stock", local, "transport", "flow_stock", visits=2),
        effect_site("billing", local, "database", "flow_billing"),
        effect_site(what.hook_in, "implementation", "hook", "publish_manifest"),
    ]
    return (*offers, *_check_runs(what))


def _check_runs(what: Facts) -> list[SiteOffer]:
    """One offer for each run of a check that every arm makes when nothing fails."""
    others = [c for c in COMPONENTS if not (what.flow_first and c == "notices")]
    runs = [check_site(c, "local_verification", _FLOWS[c][0]) for c in others]
    if not what.flow_first:
        runs.append(check_site("acceptance", "acceptance", "acceptance"))
    for c, defects in what.unit.items():
        runs += [check_site(c, "implementation", check_of(what, c), nth + 1) for nth in range(len(defects) + 1)]
    return runs


class Relay:
    """The workload as the harness sees it (see `harness.core.roles.Workload`)."""

    name = "relay"
    about = "Five services that hand an order on: mistakes that only show together, and agents that loop."
    intended = {"transport": 6, "database": 4, "registry": 1, "hook": 1}  # noqa: RUF012

    def task(self, seed: int, variation: int, mode: str = "tdd") -> Task:
        delegations = _plan()
        return Task(
            workload=self.name,
            seed=seed,
            variation=variation,
            delegations=delegations,
            files=repository.files(facts(seed)),
            checks=_CHECKS,
            hooks=(kit.HOOK,),
            tables=repository.TABLES,
            packages=("meshmoney==1.2.0",),
            sites=_sites(delegations, facts(seed)),
            streams=(STREAM, "stock", "mail"),
            system=SYSTEM,
            defective=facts(seed).defective,
        )

    def reply(self, task: Task, request: dict[str, Any], nth: int, stream: int) -> Completion:
        """What the model answers to the `nth` billed request of its site, in variation stream `stream`."""
        metadata = request["metadata"]
        delegation, phase = metadata["delegation"], metadata["phase"]
        site = (stream, delegation, phase)
        voice = Voice(task.seed, task.variation, (*site, nth))
        messages = request["messages"]
        opening = voice.pick(("Next step.", "Going on.", "Let me continue.", "Now this."), "opening")
        if phase == "implementation":
            lost = drift.episode(task.seed, site, nth, messages, str(request.get("model", "")))
            if lost is not None:
                return _said(opening, drift.actions(lost, delegation, nth), lost.drifting)
        turn = next_turn(facts(task.seed), delegation, phase, history(messages), voice)
        return _said(opening, turn.actions, turn.drifting)

    def unit_failures(self, check: CheckSpec, files: Mapping[str, str]) -> tuple[str, ...]:
        """Ids of the tests that fail on these files, as the real runners report them."""
        kind, _, component = check.name.partition("_")
        if component not in COMPONENTS or kind == "install" or (kind == "flow" and component != "notices"):
            return ()
        source = files.get(SOURCE_PATH[component])
        if kind == "smoke":
            broken = source is None or any(d.wrong in source for d in UNIT[component] if not d.test)
            return (f"{check.target}::test_smoke",) if broken else ()
        found = failing(source, UNIT[component], "")
        return tuple(f"{check.target}::{test}" if test else check.target for test in found)

    def steps(self, check: CheckSpec, files: Mapping[str, str], steps: list[Json]) -> list[Json]:
        """What the processes of the components do with the steps of acceptance: each its own, as far as it is right."""
        return [really for step in steps for really in _played(step, files)] if check.name == "acceptance" else steps


_STAGES = {
    "command": ("command-accepted", "name"),
    "publish": ("event-published", ""),
    "receive": ("subscriber-received", "type"),
    "insert": ("state-committed", "table"),
    "read": ("route-read", "table"),
}
"""By step: the stage that it reaches, and which of its fields names the node that it is reached at."""

_READS: dict[str, dict[str, Json]] = {"receive": {"do": "expect_events", "least": 1}, "read": {"do": "expect_rows"}}


def _played(step: dict[str, Json], files: Mapping[str, str]) -> list[Json]:
    """What becomes of a step of a journey: the step as an effect or a read, and the checkpoint that it reaches."""
    component, (stage, name) = step["by"], _STAGES[step["do"]]
    source = files.get(SOURCE_PATH[component])
    hidden = HIDDEN[component]
    if source is None or any(d.wrong in source for d in UNIT[component] if not d.test):
        return [{"do": "blocked", "test": step["test"]}]
    if hidden.stage == stage and hidden.wrong in source:
        return [{"do": "blocked", "test": step["test"]}]
    node = f"{component}/{step[name] if name else step['event']['type']}"
    entry = {"do": "checkpoint", "test": step["test"], "entry": [step["correlation"], stage, node]}
    return [entry] if step["do"] == "command" else [{**step, **_READS.get(step["do"], {})}, entry]


def _said(opening: str, actions: list[tuple[str, dict[str, Any]]], drifting: bool) -> Completion:
    calls = tuple((tool, json.dumps(args)) for tool, args in actions)
    return Completion(content=opening, tool_calls=calls, drifting=drifting)


RELAY = Relay()
