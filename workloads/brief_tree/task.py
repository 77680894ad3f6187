"""`brief_tree`: eighteen companies are reported on by a tree of 26 hops, each of them a brief down and a return up.

Two sectors, six segments and eighteen workers under a root. What the other families do not have: a result that is just
what was asked for and all the same not what was wanted, since the brief was wrong; and verifiers that miss mistakes and
complain of none. Twelve effects are intended, on eleven of the hops; which ones stands in the oracle.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from harness.core.roles import Completion, SiteOffer, Task
from harness.core.types import CheckSpec, DeclaredEffect, Delegation, EffectContract
from workloads.brief_tree import facts as facts_of
from workloads.brief_tree import repository
from workloads.brief_tree.compose import STREAM
from workloads.brief_tree.contract import complaints
from workloads.brief_tree.facts import HOPS, ROOT, Facts, Parameters, brief, children_of, depth_of, parent_of
from workloads.brief_tree.repository import check_of, return_path
from workloads.brief_tree.script import given_up, next_actions
from workloads.common import declare, kit
from workloads.common.agent import history
from workloads.common.declare import check_site, effect_site, phase_sites
from workloads.common.voice import Voice

PHASE, ROOT_PHASE = "implementation", "acceptance"
SIDE_BY_SIDE = 3
"""Agents at work at a time. Each writes down durably what it does, and all eighteen workers doing so at once would keep
an orchestrator from everything else for longer than a trial may."""
_CLAUSES: dict[str, DeclaredEffect] = {
    "transport": declare.events(STREAM),
    "database": declare.rows("desk", "row.filing_ref"),
    "registry": declare.FETCH,
    "provider": declare.CHAT,
    "hook": declare.HOOK,
}


def _contract(f: Facts, hop: str) -> EffectContract:
    placed = f.placed.get(hop)
    checks = [check_of(hop)] if hop == ROOT or hop in f.verified else []
    if placed and placed.boundary == "registry":
        checks.append(f"install_{hop}")
    return EffectContract(
        writable=(f"{hop}/**",),
        checks=tuple(checks),
        effects=(_CLAUSES[placed.boundary],) if placed else (),
    )


def _plan(f: Facts) -> tuple[Delegation, ...]:
    """The tree from its leaves: who is handed something up needs those who hand it up."""
    hops = [
        Delegation(
            id=hop,
            tenant="acme",
            goal=f"Report on {', '.join(brief(f, hop)['scope'])}; no claim from before {brief(f, hop)['since']}.",
            phases=(PHASE,),
            contract=_contract(f, hop),
            component=hop,
            parent=parent_of(hop),
            needs=children_of(hop),
            depth=depth_of(hop),
        )
        for hop in reversed(HOPS)
    ]
    root = Delegation(
        id=ROOT,
        tenant="acme",
        goal="Hand in the report on the eighteen companies.",
        phases=(ROOT_PHASE,),
        contract=_contract(f, ROOT),
        needs=children_of(ROOT),
    )
    return (*hops, root)


def _checks(f: Facts) -> Iterator[CheckSpec]:
    for hop in (ROOT, *f.verified):
        flow = f"{hop}/flow.json" if repository.has_scenario(f, hop) else ""
        yield CheckSpec(name=check_of(hop), kind="pytest", target=repository.tests_of(hop), scenario=flow)
        if hop in f.placed and f.placed[hop].boundary == "registry":
            yield CheckSpec(name=f"install_{hop}", kind="install", target=repository.LOCK)


def _sites(f: Facts, plan: tuple[Delegation, ...]) -> Iterator[SiteOffer]:
    """Where faults may strike: only sites that every arm visits when nothing fails. Of checks one for each run."""
    checked = {ROOT, *f.verified}
    for one in phase_sites(plan, [d.id for d in plan]):
        yield one if one.delegation in checked else replace(one, visits=1)
    yield check_site(ROOT, ROOT_PHASE, check_of(ROOT))
    for hop in f.verified:
        yield check_site(hop, PHASE, check_of(hop))
    for hop, effect in f.placed.items():
        if effect.boundary == "registry":
            yield check_site(hop, PHASE, f"install_{hop}")
        cause = {"registry": f"install_{hop}", "hook": kit.HOOK.name}.get(effect.boundary, check_of(hop))
        yield effect_site(hop, PHASE, effect.boundary, cause, visits=effect.times)


class BriefTree:
    """The workload as the harness sees it (see `harness.core.roles.Workload`).

    parameters: how often what goes wrong by itself; another set is another workload, with an oracle that knows it.
    """

    name = "brief_tree"
    about = "A tree of 26 hops: briefs down, returns up; wrong briefs, drift, thin and malformed returns, verifiers."
    intended = {"transport": 5, "database": 4, "registry": 1, "provider": 1, "hook": 1}  # noqa: RUF012

    def __init__(self, parameters: Parameters = Parameters()) -> None:  # noqa: B008 (frozen)
        self._facts = functools.lru_cache(maxsize=8)(lambda seed: facts_of.facts(seed, parameters))

    def task(self, seed: int, variation: int, mode: str = "tdd") -> Task:
        f = self._facts(seed)
        plan = _plan(f)
        return Task(
            workload=self.name,
            seed=seed,
            variation=variation,
            delegations=plan,
            files=repository.files(f),
            checks=tuple(_checks(f)),
            hooks=(kit.HOOK,),
            side_by_side=SIDE_BY_SIDE,
            tables=repository.TABLES,
            packages=("==".join(repository.PACKAGE),),
            sites=tuple(_sites(f, plan)),
            streams=(STREAM,),
            kept=tuple(path for hop in HOPS for path in (return_path(hop), f"{parent_of(hop)}/repairs.json")),
        )

    def reply(self, task: Task, request: dict[str, Any], nth: int, stream: int) -> Completion:
        """What the model answers to the `nth` billed request of its site, in variation stream `stream`."""
        metadata = request.get("metadata") or {}
        if "delegation" not in metadata:
            return Completion(content=f"All about {metadata.get('ref')}, in one sentence.")
        hop, messages = metadata["delegation"], request["messages"]
        voice = Voice(task.seed, task.variation, (stream, hop, metadata["phase"], nth))
        actions = next_actions(self._facts(task.seed), hop, history(messages), given_up(messages), voice)
        opening = voice.pick(("Next step.", "Going on.", "Let me continue.", "Now this."), "opening")
        return Completion(content=opening, tool_calls=tuple((tool, json.dumps(args)) for tool, args in actions))

    def unit_failures(self, check: CheckSpec, files: Mapping[str, str]) -> tuple[str, ...]:
        """Ids of the tests that fail on these files, as the real runners report them."""
        if check.kind != "pytest":
            return ()
        hop = ROOT if check.name == check_of(ROOT) else check.name.removeprefix("verify_")
        if not complaints(files.get(return_path(hop)), json.loads(files[f"{hop}/BRIEF.json"])):
            return ()
        tests = ("test_flow", "test_return") if check.scenario else ("test_return",)
        return tuple(f"{check.target}::{test}" for test in tests)


BRIEF_TREE = BriefTree()
