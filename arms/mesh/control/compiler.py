"""The compiler of declarations: from the three stages to delegations with their contracts, and the system they make up.

Contracts are never written by hand, so two runs of one plan cannot differ: the same declaration gives the same
delegations and the same digest, on any machine, in whatever order its keys stand.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from arms.mesh.control import planner
from arms.mesh.control.declaration import Check, Declaration
from arms.mesh.control.planner import Slice
from harness.core.types import PHASES, CheckSpec, DeclaredEffect, Delegation, Edge, EffectContract, Json, System

VERSION = 1  # raise it when the same declaration compiles to something else
_REPAIR_PHASES = ("implementation", "local_verification")


class Compiled(Struct, frozen=True, kw_only=True):
    """The plan, needs before what needs them. checks: as a world runs them. digest: sha256 of declaration, planning
    policy, compiler version and plan."""

    delegations: tuple[Delegation, ...]
    system: System
    checks: tuple[CheckSpec, ...]
    digest: str


def compile(declaration: Declaration) -> Compiled:
    """The plan of a declaration. Pure and total: components that wait for each other come last, for a validator."""
    work = planner.slices(declaration)
    ids = {c: [one.id for one in work if c in one.components] for c in declaration.structure.components}
    rank = {component: i for i, component in enumerate(_in_order(declaration))}
    ordered = sorted(work, key=lambda one: (max(rank[c] for c in one.components), one.number))
    delegations = tuple(_delegation(declaration, one, ids, _done_after(one, work)) for one in ordered)
    system = _system(declaration)
    checks = tuple(
        CheckSpec(name=name, kind=check.kind, target=check.target, scenario=check.steps)
        for name, check in sorted(declaration.delivery.checks.items())
    )
    form = {
        "compiler": VERSION,
        "policy": planner.POLICY,
        "declaration": [declaration.structure, declaration.behaviour, declaration.delivery],
        "plan": [delegations, system, checks],
    }
    return Compiled(delegations=delegations, system=system, checks=checks, digest=digest(form))


def digest(value: object) -> str:
    """sha256 of the canonical form of structs and JSON values: keys in order, no white space, defaults written out."""
    text = json.dumps(msgspec.to_builtins(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _in_order(declaration: Declaration) -> list[str]:
    """Component names, needs first, ties by name; those on or behind a cycle last."""
    rest, done = sorted(declaration.structure.components), list[str]()
    while ready := [c for c in rest if declaration.structure.before(c) <= set(done)]:
        done.append(ready[0])
        rest.remove(ready[0])
    return done + rest


def fixtures_of(declaration: Declaration, component: str) -> tuple[str, ...]:
    """The rows that a component must have: those that its own scenarios assert, and no row of what it depends on,
    which lies in the state of somebody else."""
    asserted = [
        s.asserts[component].fixtures for s in declaration.behaviour.scenarios.values() if component in s.asserts
    ]
    return tuple(sorted({fixture for fixtures in asserted for fixture in fixtures}))


def package_name(pin: str) -> str:
    """The normal form of a package's name, without its version (PEP 503)."""
    return re.sub(r"[-_.]+", "-", pin.partition("==")[0].strip()).lower()


def _done_after(one: Slice, work: Iterable[Slice]) -> set[str] | None:
    """Scenarios that the components have done their work for when this slice ends; None for all."""
    if one.number == one.of:
        return None
    done = [s.units for s in work if s.components == one.components and s.number <= one.number]
    return {unit.scenario for units in done for unit in units}


def _delegation(declaration: Declaration, one: Slice, ids: dict[str, list[str]], done: set[str] | None) -> Delegation:
    structure, delivery = declaration.structure, declaration.delivery
    first = one.components[0]
    line = structure.line(first)
    before = list[str]() if one.number == 1 else [f"{'+'.join(one.components)}.{one.number - 1}"]
    for component in one.components:
        ahead = structure.components[component]
        before += [id for c in (*ahead.needs, *([ahead.parent] if ahead.parent else [])) for id in ids[c]]
    scenarios = sorted({unit.scenario for unit in one.units})
    budget = delivery.budget_of(first)
    about = f": {', '.join(scenarios)}" if scenarios else ""
    return Delegation(
        id=one.id,
        tenant=structure.components[first].tenant,
        goal=f"Deliver {' and '.join(one.components)} of {structure.system}{about}.",
        phases=tuple(p for p in PHASES if any(p in delivery.phases_of(c) for c in one.components)),
        contract=_contract(declaration, one.components, done),
        parent=ids[line[1]][-1] if len(line) > 1 else None,
        needs=tuple(dict.fromkeys(id for id in before if id != one.id)),
        component=line[-1],
        depth=len(line),
        budget_tokens=budget.tokens,
        turns_max=budget.turns,
    )


def _union(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(sorted({item for group in groups for item in group}))


def _contract(declaration: Declaration, components: tuple[str, ...], done: set[str] | None) -> EffectContract:
    """done: scenarios that a check may be about, since a check of work that comes later can only fail; None for all."""
    delivery, behaviour = declaration.delivery, declaration.behaviour
    mine = {name: check for name, check in delivery.checks.items() if _runs(check, components, done)}
    pins = _union(delivery.packages.get(component, ()) for component in components)
    kinds = {check.kind for check in mine.values()}
    terms: dict[str, Json] = {
        "fixtures": list(_union(fixtures_of(declaration, component) for component in components)),
        "pins": list(pins),
        "toolchain": {kind: dict(sorted(delivery.toolchain.get(kind, {}).items())) for kind in sorted(kinds)},
        "check_runs_max": min(delivery.budget_of(component).check_runs for component in components),
    }
    return EffectContract(
        writable=_union(declaration.structure.components[component].paths for component in components),
        checks=tuple(sorted(mine)),
        effects=tuple(DeclaredEffect(**asdict(e)) for c in components for e in behaviour.effects.get(c, ())),
        packages=_union([map(package_name, pins)]),
        polls=tuple(poll for component in components for poll in delivery.polls.get(component, ())),
        mode=delivery.mode,
        terms=terms,
    )


def _runs(check: Check, components: tuple[str, ...], done: set[str] | None) -> bool:
    runners = {check.component, *check.also_run_by}
    return bool(runners & set(components)) and (done is None or set(check.scenarios) <= done)


def _system(declaration: Declaration) -> System:
    structure, scenarios = declaration.structure, declaration.behaviour.scenarios
    nodes = structure.nodes()
    through = {
        name: {*scenario.asserts, *(nodes[reference].component for reference in scenario.path)}
        for name, scenario in scenarios.items()
    }
    ways = {pair for s in scenarios.values() for pair in zip(s.path, s.path[1:], strict=False)}
    return System(
        repairs={c: _repair(declaration, c) for c, one in sorted(structure.components.items()) if one.paths},
        coverage={
            name: _union([{check.component}, *(through[s] for s in check.scenarios)])
            for name, check in sorted(declaration.delivery.checks.items())
        },
        edges=tuple(Edge(source=nodes[a], target=nodes[b]) for a, b in sorted(ways)),
    )


def _repair(declaration: Declaration, component: str) -> Delegation:
    """The delegation that may be woken to mend a component: all of its contract, none of its needs."""
    delivery = declaration.delivery
    phases = tuple(p for p in delivery.phases_of(component) if p in _REPAIR_PHASES) or _REPAIR_PHASES[:1]
    return Delegation(
        id=f"repair/{component}",
        tenant=declaration.structure.components[component].tenant,
        goal=f"Repair {component} of {declaration.structure.system}.",
        phases=phases,
        contract=_contract(declaration, (component,), None),
        component=component,
        budget_tokens=delivery.budget_of(component).tokens,
        turns_max=delivery.budget_of(component).turns,
    )
