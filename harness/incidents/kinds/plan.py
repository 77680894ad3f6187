"""Stories that are decided before anything runs: what a declaration asks of its components, and how work is sliced.

One side does what a platform does that admits whatever it is given; the other is the declaration authority. Both are
played on the same declaration, by functions that compute what would follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from msgspec import Struct

from arms.mesh.control import admission, compiler, declaration, planner
from arms.mesh.control.declaration import Declaration
from arms.mesh.control.planner import Unit
from arms.mesh.control.toolchain import needed
from harness.core.types import Verdict
from harness.incidents.play import Played, PlayedWorld, Side, read, without_end
from harness.orchestrator import plan


class Story(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """asks: which of the questions the story is about. component: whose rows are asked for. stated: toolchain settings
    that the author adds when told to, by kind of check."""

    asks: Literal["fixtures", "toolchain", "coupling"]
    declaration: dict[str, Any]
    component: str = ""
    stated: dict[str, dict[str, Any]] = {}


def play(story: Mapping[str, Any], side: Side, world: PlayedWorld, arm: str = "mesh") -> Played:
    """Play a story of this kind. Nothing of it depends on the world, nor on an arm: no layer takes part. Raises
    ConfigError for one that cannot be read."""
    said: Story = read(story, Story)
    plays: dict[str, Callable[[Story, Declaration, Side], Played]] = {
        "fixtures": _fixtures,
        "toolchain": _toolchain,
        "coupling": _coupling,
    }
    return plays[said.asks](said, declaration.declared(said.declaration, "story"), side)


def _fixtures(story: Story, declared: Declaration, side: Side) -> Played:
    """How many rows a component is asked for that it can never bring forth."""
    if side == "mesh":
        mine = [d for d in compiler.compile(declared).delegations if d.component == story.component]
        wanted = tuple(sorted({row for d in mine for row in d.contract.terms["fixtures"]}))
    else:
        wanted = union_of_dependencies(declared, story.component)
    foreign = admission.unsatisfiable(declared, (story.component,), wanted)
    return Played(
        failed=bool(foreign),
        count=len(foreign),
        unit="unsatisfiable rows",
        verdict=_verdict(declared) if side == "mesh" else "",
        told=f"{story.component} must have {len(wanted)} rows, {len(foreign)} of them lie in the state of others",
        facts={"real": len(wanted) - len(foreign), "required": len(wanted)},
    )


def union_of_dependencies(declared: Declaration, component: str) -> tuple[str, ...]:
    """The rows of a component as the union over all it depends on, near and far: copied, not derived."""
    group = {component, *declared.structure.before(component)}
    found = (a for s in declared.behaviour.scenarios.values() for c, a in s.asserts.items() if c in group)
    return tuple(sorted({fixture for assertion in found for fixture in assertion.fixtures}))


def _toolchain(story: Story, declared: Declaration, side: Side) -> Played:
    """How many corrections are escalated because a runner fails over what nobody stated."""
    refused = _refusals(declared) if side == "mesh" else ()
    rounds = {} if refused else {c: escalations(declared, c) for c in sorted(declared.structure.components)}
    rounds = {component: count for component, count in rounds.items() if count}
    stuck = bool(refused) and _refusals(_with(story)) != ()  # what was asked for does not satisfy the gate
    told = "; ".join(refused) or "nothing to correct"
    if rounds:
        told = f"no correction came to an end; cut at the check runs that were allowed, {rounds}"
    return Played(
        failed=bool(rounds) or stuck,
        count=sum(rounds.values()),
        unit=without_end("escalated corrections") if rounds else "escalated corrections",
        verdict=Verdict.REJECTED.value if refused else Verdict.EXECUTED.value if side == "mesh" else "",
        told=told,
        facts={"by_component": rounds, "asked_to_state": len(refused)},
    )


def escalations(declared: Declaration, component: str) -> int:
    """Rounds of correction of a component without a result: the runner names its own internals, which lie in none of
    the paths that the component may write, and every round is one check run, until there is none left."""
    stated, paths = declared.delivery.toolchain, declared.structure.components[component].paths
    unstated = [(kind, name) for kind, name in needed(declared, component) if name not in stated.get(kind, {})]
    failing = {f"{kind}/plugins/{name}" for kind, name in unstated}
    count = 0
    for _ in range(declared.delivery.budget_of(component).check_runs):
        failing -= {id for id in failing if any(fnmatchcase(id, path.replace("**", "*")) for path in paths)}
        count += bool(failing)
    return count


def _with(story: Story) -> Declaration:
    """The declaration after its author stated what the refusals ask for."""
    delivery = story.declaration["delivery"]
    before = delivery.get("toolchain", {})
    toolchain = {kind: {**before.get(kind, {}), **story.stated.get(kind, {})} for kind in {*before, *story.stated}}
    return declaration.declared({**story.declaration, "delivery": {**delivery, "toolchain": toolchain}}, "story")


def _coupling(story: Story, declared: Declaration, side: Side) -> Played:
    """How many components' work is welded to that of another into one delegation."""
    if side == "mesh":
        groups = [one.components for one in planner.slices(declared)]
    else:
        work = planner.clusters(planner.units(declared), coupled_anywhere)
        groups = [tuple(sorted({unit.component for unit in cluster})) for cluster in work]
    welded = [group for group in groups if len(group) > 1]
    return Played(
        failed=bool(welded),
        count=sum(map(len, welded)),
        unit="delegations merged",
        verdict=_verdict(declared) if side == "mesh" else "",
        told=", ".join("+".join(group) for group in groups),
        facts={"delegations": len(groups)},
    )


def coupled_anywhere(one: Unit, other: Unit) -> bool:
    """Coupling as it is measured across components: a scenario that both assert, or a file, welds any two units."""
    return one.scenario == other.scenario or bool(set(one.artefacts) & set(other.artefacts))


def _refusals(declared: Declaration) -> tuple[str, ...]:
    return tuple(map(str, admission.admit(declared, validate=plan.validate).refusals))


def _verdict(declared: Declaration) -> str:
    return (Verdict.REJECTED if _refusals(declared) else Verdict.EXECUTED).value
