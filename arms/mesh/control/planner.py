"""The work planner: slices what each component has to do into delegations that fit their budgets.

What must be worked on together is decided inside one component. A scenario that two components assert is work of both,
each on its own files; measured across them, it would weld their files into one unit that nobody can slice again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

from msgspec import Struct

from arms.mesh.control.declaration import Assertion, Declaration
from arms.mesh.control.strict import load


class Estimate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tokens for a phase of a delegation, for a file that it makes, for a statement that it must meet."""

    phase: int
    artefact: int
    assertion: int


class PlanningPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`planning.yaml`. slice_share: part of a budget that may be planned. probed: boundaries that answer a probe."""

    version: int
    tokens: Estimate
    slice_share: float
    probed: tuple[str, ...]


POLICY = load(Path(__file__).with_name("planning.yaml"), PlanningPolicy)


class Unit(Struct, frozen=True, kw_only=True):
    """The work of one component for one scenario."""

    component: str
    scenario: str
    artefacts: tuple[str, ...]
    tokens: int


class Slice(Struct, frozen=True, kw_only=True):
    """The work of one delegation. components: one, unless the coupling is measured wrongly. number: 1-based among the
    `of` slices of the same components. tokens: estimate of the whole; limit_tokens: what may be planned."""

    components: tuple[str, ...]
    units: tuple[Unit, ...]
    number: int
    of: int
    tokens: int
    limit_tokens: int

    @property
    def id(self) -> str:
        name = "+".join(self.components)
        return f"{name}.{self.number}" if self.of > 1 else name


def units(declaration: Declaration) -> tuple[Unit, ...]:
    """All work, by component and scenario."""
    found = [
        Unit(component=c, scenario=s, artefacts=tuple(sorted(set(one.artefacts))), tokens=_tokens(one))
        for s, scenario in declaration.behaviour.scenarios.items()
        for c, one in scenario.asserts.items()
    ]
    return tuple(sorted(found, key=lambda unit: (unit.component, unit.scenario)))


def _tokens(one: Assertion) -> int:
    if one.tokens is not None:
        return one.tokens
    return POLICY.tokens.artefact * len(set(one.artefacts)) + POLICY.tokens.assertion * len(one.what)


def coupled(one: Unit, other: Unit) -> bool:
    """Whether two units must be worked on together: they change a file of the same component."""
    return one.component == other.component and bool(set(one.artefacts) & set(other.artefacts))


def clusters(work: Sequence[Unit], together: Callable[[Unit, Unit], bool]) -> tuple[tuple[Unit, ...], ...]:
    """The smallest groups that keep coupled units together, in the order of their first units."""
    group = {unit: i for i, unit in enumerate(work)}
    for one, other in combinations(work, 2):
        if together(one, other):
            low, high = sorted((group[one], group[other]))
            group = {unit: low if g == high else g for unit, g in group.items()}
    return tuple(tuple(u for u in work if group[u] == g) for g in sorted(set(group.values())))


def slices(declaration: Declaration) -> tuple[Slice, ...]:
    """The work of all components, one slice per delegation, by component. Pure.

    Clusters are never split; in the direct mode nothing is, since the rung that puts slices together again is left out.
    A component without work of its own, e.g. a verifier, is one slice.
    """
    work = units(declaration)
    groups: dict[tuple[str, ...], list[tuple[Unit, ...]]] = {}
    for cluster in clusters(work, coupled):
        groups.setdefault(tuple(sorted({unit.component for unit in cluster})), []).append(cluster)
    busy = {component for components in groups for component in components}
    groups |= {(component,): [] for component in declaration.structure.components if component not in busy}
    return tuple(one for components in sorted(groups) for one in _packed(declaration, components, groups[components]))


def _packed(declaration: Declaration, components: tuple[str, ...], found: list[tuple[Unit, ...]]) -> list[Slice]:
    """Clusters in order, each put to the one before as long as the limit allows."""
    delivery = declaration.delivery
    fixed = POLICY.tokens.phase * max(len(delivery.phases_of(component)) for component in components)
    limit = int(POLICY.slice_share * min(delivery.budget_of(component).tokens for component in components))
    packed: list[tuple[Unit, ...]] = [()]
    for cluster in found:
        fits = fixed + _sum(packed[-1] + cluster) <= limit
        if not packed[-1] or fits or delivery.mode == "direct":
            packed[-1] += cluster
        else:
            packed.append(cluster)
    return [
        Slice(
            components=components,
            units=work,
            number=number,
            of=len(packed),
            tokens=fixed + _sum(work),
            limit_tokens=limit,
        )
        for number, work in enumerate(packed, 1)
    ]


def _sum(work: Sequence[Unit]) -> int:
    return sum(unit.tokens for unit in work)
