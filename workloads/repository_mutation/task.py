"""`repository_mutation`: a published package with planted defects is mended, reviewed and released by four delegations.

The code and its tests are other people's (see `packages.yaml`); the sim world answers from the kill matrix. Twelve
effects are intended over all six boundaries; which ones stands in the oracle.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from harness.core.roles import Completion, SiteOffer, Task
from harness.core.types import CheckSpec, Delegation, EffectContract
from workloads.common import declare, kit
from workloads.common.agent import answer
from workloads.common.declare import check_site, effect_site, phase_sites
from workloads.repository_mutation import matrix, packages, repository
from workloads.repository_mutation.facts import Facts, facts
from workloads.repository_mutation.prepare import prepare
from workloads.repository_mutation.script import SUITE, UNIT, next_actions

_FLOW = "kit/test_flow.py"


def _contracts(f: Facts) -> dict[str, EffectContract]:
    """Each file of the package belongs to one delegation at most. A diagnosis narrows the scope of the first."""
    reviewed = tuple(m.path for m in f.review)
    sources = tuple(p for p in sorted(packages.tree(f.locked)) if packages.within(p, f.locked.sources))
    clamp = {"clamp": [f.diagnosed, "mend/**"]} if f.family == "clamp" else {}
    return {
        "mend": EffectContract(
            writable=(*(p for p in sources if p not in reviewed), "mend/**"),
            checks=("install_mend", UNIT, "flow_mend"),
            effects=(
                declare.events("repairs"),
                declare.rows("desk", "row.ticket_ref"),
                declare.FETCH,
                declare.PUSH,
                declare.HOOK,
            ),
            terms=clamp,
        ),
        "review": EffectContract(
            writable=(*reviewed, "review/**"),
            checks=("install_review", SUITE, "flow_review", "qualify_review"),
            effects=(
                declare.rows("desk", "row.review_ref"),
                declare.FETCH,
                declare.CHAT,
                declare.PUSH,
                declare.HOOK,
            ),
        ),
        "review/verifier": EffectContract(checks=(SUITE,)),
        "release": EffectContract(
            writable=("release/**",),
            checks=(SUITE, "acceptance"),
            effects=(declare.events("releases"), declare.PUSH, declare.TAG),
        ),
    }


def _delegations(f: Facts, mode: str) -> tuple[Delegation, ...]:
    """One after the other, since all of them run the one suite. In the direct mode `red_validation` is left out."""
    contracts = _contracts(f)

    def make(id: str, goal: str, phases: tuple[str, ...], **more: Any) -> Delegation:
        kept = tuple(p for p in phases if mode == "tdd" or p != "red_validation")
        return Delegation(id=id, tenant="acme", goal=goal, phases=kept, contract=contracts[id], **more)

    local = "local_verification"
    return (
        make(
            "mend",
            f"Mend {f.package}.",
            ("test_preflight", "red_validation", "implementation", local),
            component="mend",
        ),
        make(
            "review",
            f"Review the repair of {f.package}.",
            ("test_preflight", "implementation", local, "oracle_qualification"),
            component="review",
            needs=("mend",),
        ),
        make(
            "review/verifier",
            f"Verify {f.package}.",
            (local,),
            component="review",
            parent="review",
            needs=("review",),
            depth=2,
        ),
        make("release", f"Release {f.package}.", ("acceptance",), needs=("review/verifier",)),
    )


def _checks(f: Facts) -> tuple[CheckSpec, ...]:
    return (
        CheckSpec(name="install_mend", kind="install", target="mend/requirements.lock"),
        CheckSpec(name="install_review", kind="install", target="review/requirements.lock"),
        CheckSpec(name=UNIT, kind="pytest", target=f.proof),
        CheckSpec(name=SUITE, kind="pytest", target=f.locked.target),
        CheckSpec(name="flow_mend", kind="pytest", target=_FLOW, scenario="mend/flow.json"),
        CheckSpec(name="flow_review", kind="pytest", target=_FLOW, scenario="review/flow.json"),
        CheckSpec(name="qualify_review", kind="pytest", target=_FLOW, scenario="review/qualify.json"),
        CheckSpec(name="acceptance", kind="pytest", target=_FLOW, scenario="release/flow.json"),
    )


def _sites(delegations: tuple[Delegation, ...], f: Facts) -> tuple[SiteOffer, ...]:
    """Where faults may strike: only sites that every arm visits when nothing fails. Each run of a check is one."""
    local = "local_verification"
    offers = phase_sites(delegations, ("mend", "review", "release"))
    offers += [
        effect_site("mend", "test_preflight", "registry", "install_mend"),
        effect_site("mend", local, "transport", "flow_mend"),
        effect_site("mend", local, "database", "flow_mend"),
        effect_site("mend", local, "repository", "flow_mend"),
        effect_site("review", "test_preflight", "registry", "install_review"),
        effect_site("review", local, "database", "flow_review"),
        effect_site("review", local, "repository", "flow_review"),
        effect_site("review", "oracle_qualification", "provider", "qualify_review"),
        effect_site("release", "acceptance", "transport", "acceptance"),
        effect_site("release", "acceptance", "repository", "acceptance", visits=2),
        effect_site(f.hook_in, "implementation", "hook", "publish_manifest"),
        check_site("mend", "test_preflight", "install_mend"),
        check_site("mend", local, "flow_mend"),
        check_site("review", "test_preflight", "install_review"),
        check_site("review", local, "flow_review"),
        check_site("review", "oracle_qualification", "qualify_review"),
        check_site("review/verifier", local, SUITE),
        check_site("release", "acceptance", SUITE),
        check_site("release", "acceptance", "acceptance"),
    ]
    if any("red_validation" in d.phases for d in delegations):
        offers.append(check_site("mend", "red_validation", UNIT))
    for component, own, check in (("mend", f.mend, UNIT), ("review", f.review, SUITE)):
        run = check_site(component, "implementation", check)
        offers += [replace(run, visits=nth + 1) for nth in range(len(own) + 1)]
    return tuple(offers)


class RepositoryMutation:
    """The workload as the harness sees it (see `harness.core.roles.Workload`)."""

    name = "repository_mutation"
    about = "A published Python package with planted defects: mend, review, push, tag, release."
    intended = {"transport": 2, "database": 2, "registry": 2, "provider": 1, "repository": 4, "hook": 1}  # noqa: RUF012

    def prepare(self) -> None:
        """Fetch and measure the packages, before the first trial. Raises ConfigError when one cannot be had."""
        prepare()

    def task(self, seed: int, variation: int, mode: str = "tdd") -> Task:
        f = facts(seed)
        delegations = _delegations(f, mode)
        return Task(
            workload=self.name,
            seed=seed,
            variation=variation,
            delegations=delegations,
            files=repository.files(f),
            checks=_checks(f),
            hooks=(kit.HOOK,),
            tables=repository.TABLES,
            packages=("meshmoney==1.2.0", "meshunits==2.0.1"),
            sites=_sites(delegations, f),
            streams=("repairs", "releases"),
        )

    def reply(self, task: Task, request: dict[str, Any], nth: int, stream: int) -> Completion:
        """See `workloads.common.agent.answer`."""
        return answer(task, request, nth, stream, partial(next_actions, facts(task.seed)))

    def unit_failures(self, check: CheckSpec, files: Mapping[str, str]) -> tuple[str, ...]:
        """Ids of the tests that fail on these files, out of the kill matrix; the check's own target where a file is
        neither the original nor a mutant that was run."""
        if check.name not in (SUITE, UNIT):
            return ()
        if repository.MARK not in files:
            return (check.target,)
        package = packages.by_name(json.loads(files[repository.MARK])["name"])
        found, known = matrix.load(package), packages.tree(package)
        changed = {path: _digest(files.get(path, "")) for path, text in known.items() if files.get(path) != text}
        planted = [m for m in found.mutants if changed.get(m.path) == found.after[m.id]]
        if len(planted) != len(changed):
            return (check.target,)
        try:
            failing = found.fails(planted)
        except KeyError:
            return (check.target,)
        return failing if check.target == package.target else tuple(t for t in failing if t == check.target)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


REPOSITORY_MUTATION = RepositoryMutation()
