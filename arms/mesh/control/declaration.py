"""The staged declaration of a system: structure, then behaviour, then delivery, each read against the names before it.

A plan that names what nobody declared fails late and in the hands of an agent; here it is refused on reading, by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path as FilePath
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from harness.core.errors import did_you_mean
from harness.core.strict_yaml import Document, Path, convert, dotted, read
from harness.core.types import PHASES, TOOLS, Node, Poll

Positive = Annotated[int, Meta(ge=1, le=1_000_000_000)]
PATH_MAX = 500
"""Characters of a path or glob: two of them are compared place by place."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")  # no slash: names become parts of ids and of node references


class Nodes(Struct, frozen=True, kw_only=True):
    """The places of a component that a failure can be at, by kind."""

    route: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    event: tuple[str, ...] = ()
    subscriber: tuple[str, ...] = ()
    state: tuple[str, ...] = ()


class Component(Struct, frozen=True, kw_only=True):
    """paths: globs that it may write. needs: components that must be ready before. parent: it is a sub-agent of that
    one. packages: names of what it uses; delivery pins them."""

    tenant: str
    language: Literal["python", "javascript"]
    paths: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    parent: str | None = None
    packages: tuple[str, ...] = ()
    nodes: Nodes = Nodes()


class Structure(Struct, frozen=True, kw_only=True):
    system: str
    tenants: tuple[str, ...]
    components: dict[str, Component]

    def nodes(self) -> dict[str, Node]:
        """Every declared node, by its reference `component/kind/name`."""
        return {
            f"{component}/{kind}/{name}": Node(component=component, kind=kind, name=name)  # type: ignore[arg-type]
            for component, one in self.components.items()
            for kind, names in asdict(one.nodes).items()
            for name in names
        }

    def line(self, component: str) -> tuple[str, ...]:
        """The component and the parents above it, the nearest first."""
        found = [component]
        while (parent := self.components[found[-1]].parent) and parent not in found:
            found.append(parent)
        return tuple(found)

    def before(self, component: str) -> set[str]:
        """All components that it waits for, near and far; itself among them when the needs are cyclic."""
        found: set[str] = set()
        ahead = [component]
        while ahead:
            one = self.components[ahead.pop()]
            new = {*one.needs, *((one.parent,) if one.parent else ())} - found
            found |= new
            ahead += sorted(new)
        return found


class Assertion(Struct, frozen=True, kw_only=True):
    """What one component asserts in one scenario. what: statements, in words. artefacts: files that it makes or changes
    for it. fixtures: rows that must be there. tokens: the author's estimate, in place of the planner's."""

    what: tuple[str, ...]
    artefacts: tuple[str, ...] = ()
    fixtures: tuple[str, ...] = ()
    tokens: Positive | None = None


class Scenario(Struct, frozen=True, kw_only=True):
    """asserts: by component. path: the nodes that it goes through, in order, as `component/kind/name`."""

    asserts: dict[str, Assertion]
    path: tuple[str, ...] = ()


class Effect(Struct, frozen=True, kw_only=True):
    """As `harness.core.types.DeclaredEffect`, with the boundaries that there are."""

    boundary: Literal["transport", "database", "registry", "provider", "repository", "hook"]
    operation: str
    target: str
    key: tuple[str, ...] = ()
    volatile: tuple[str, ...] = ()
    content: bool = False


class Behaviour(Struct, frozen=True, kw_only=True):
    """effects: by component. fixtures: the state that holds each row, as `component/state/name`."""

    scenarios: dict[str, Scenario]
    effects: dict[str, tuple[Effect, ...]] = {}
    fixtures: dict[str, str] = {}


class Check(Struct, frozen=True, kw_only=True):
    """An executable check. component: whose it is. target, steps: the file that runs, and the one that it reads.
    made_in: the component's phase that makes them; without it they are there already. scenarios: what it proves."""

    component: str
    kind: Literal["pytest", "node", "install"]
    target: str
    steps: str = ""
    made_in: str | None = None
    scenarios: tuple[str, ...] = ()
    also_run_by: tuple[str, ...] = ()


class Budget(Struct, frozen=True, kw_only=True):
    """What one delegation may spend; check_runs: at least one for each of its checks."""

    tokens: Positive
    turns: Positive
    check_runs: Positive


class Delivery(Struct, frozen=True, kw_only=True):
    """phases, packages, budgets, polls: by component. budget: of whoever has none of its own. packages: pins.
    toolchain: what the runners take for granted, by kind of check."""

    mode: Literal["tdd", "direct"]
    phases: dict[str, tuple[str, ...]]
    checks: dict[str, Check]
    budget: Budget
    budgets: dict[str, Budget] = {}
    packages: dict[str, tuple[str, ...]] = {}
    toolchain: dict[str, dict[str, str | int | float | bool]] = {}
    polls: dict[str, tuple[Poll, ...]] = {}

    def budget_of(self, component: str) -> Budget:
        return self.budgets.get(component, self.budget)

    def phases_of(self, component: str) -> tuple[str, ...]:
        """The phases that the mode leaves: the direct mode goes without the test-driven rung."""
        return tuple(p for p in self.phases[component] if self.mode == "tdd" or p != "red_validation")


class _File(Struct, frozen=True, kw_only=True):
    schema: Literal["agentmesh-declaration/1"]
    structure: Structure
    behaviour: Behaviour
    delivery: Delivery


class Declaration(Struct, frozen=True, kw_only=True):
    """The three stages, and the document they were read from, which only messages need."""

    structure: Structure
    behaviour: Behaviour
    delivery: Delivery
    document: Document

    def where(self, *path: str | int) -> str:
        """`file:line: path` of a value."""
        return f"{self.document.where(path)}: {dotted(path)}"


def load(path: FilePath) -> Declaration:
    """The declaration in a file. Raises ConfigError with line, path, value and what is allowed."""
    return _of(read(path))


def declared(value: Mapping[str, Any], source: str) -> Declaration:
    """The same of a value that was read already, e.g. as a part of another file."""
    return _of(Document(source, value, {}))


def _of(document: Document) -> Declaration:
    file: _File = convert(document, _File)
    for stage in (_of_structure, _of_behaviour, _of_delivery):
        for path, name, known in stage(file):
            if name not in known:
                problem = f"{dotted(path)} names {name!r}, which is not declared"
                raise document.refuse(path, problem, ", ".join(known) or "none is declared", did_you_mean(name, known))
        _check_words(document, file, stage.__name__.removeprefix("_of_"))
    return Declaration(structure=file.structure, behaviour=file.behaviour, delivery=file.delivery, document=document)


Reference = tuple[Path, str, Iterable[str]]  # where a name stands, the name, the names that there are


def _each(path: Path, names: Iterable[str], known: Iterable[str]) -> Iterator[Reference]:
    yield from (((*path, i), name, known) for i, name in enumerate(names))


def _of_structure(file: _File) -> Iterator[Reference]:
    components = file.structure.components
    for name, one in components.items():
        path = ("structure", "components", name)
        yield (*path, "tenant"), one.tenant, file.structure.tenants
        yield from _each((*path, "needs"), one.needs, components)
        if one.parent is not None:
            yield (*path, "parent"), one.parent, components


def _of_behaviour(file: _File) -> Iterator[Reference]:
    components, nodes = file.structure.components, file.structure.nodes()
    states = [reference for reference, node in nodes.items() if node.kind == "state"]
    for name, state in file.behaviour.fixtures.items():
        yield ("behaviour", "fixtures", name), state, states
    for name, scenario in file.behaviour.scenarios.items():
        path = ("behaviour", "scenarios", name)
        yield from _each((*path, "path"), scenario.path, nodes)
        for component, assertion in scenario.asserts.items():
            yield (*path, "asserts", component), component, components
            held = [f for f, state in file.behaviour.fixtures.items() if nodes[state].component == component]
            yield from _each((*path, "asserts", component, "fixtures"), assertion.fixtures, held)
    for component in file.behaviour.effects:
        yield ("behaviour", "effects", component), component, components


def _of_delivery(file: _File) -> Iterator[Reference]:
    components, delivery = file.structure.components, file.delivery
    for part in ("phases", "budgets", "packages", "polls"):
        for component in getattr(delivery, part):
            yield ("delivery", part, component), component, components
    for component in components:
        yield ("delivery", "phases"), component, delivery.phases
        yield from _each(("delivery", "phases", component), delivery.phases.get(component, ()), PHASES)
    for component, polls in delivery.polls.items():
        for i, poll in enumerate(polls):
            yield ("delivery", "polls", component, i, "tool"), poll.tool, TOOLS
    for name, check in delivery.checks.items():
        path = ("delivery", "checks", name)
        yield (*path, "component"), check.component, components
        yield from _each((*path, "also_run_by"), check.also_run_by, components)
        yield from _each((*path, "scenarios"), check.scenarios, file.behaviour.scenarios)
        if check.made_in is not None:
            yield (*path, "made_in"), check.made_in, delivery.phases[check.component]


def _check_words(document: Document, file: _File, stage: str) -> None:
    """Names that can be parts of ids, paths that stay in the repository, phases in the order of the lifecycle."""
    for path, name in _names(file):
        if path[0] == stage and not _NAME.fullmatch(name):
            raise document.refuse(path, f"{name!r} cannot be a name", "letters, digits, dot, dash and underscore")
    for path, text in _paths(file):
        if path[0] == stage and (PurePosixPath(text).is_absolute() or ".." in PurePosixPath(text).parts or not text):
            raise document.refuse(path, f"{dotted(path)} is {text!r}", "a path below the repository")
        if path[0] == stage and len(text) > PATH_MAX:
            problem = f"{dotted(path)} has {len(text)} characters"
            raise document.refuse(path, problem, f"a path of at most {PATH_MAX} characters")
    for component, polls in file.delivery.polls.items():
        for i, poll in enumerate(polls):
            if stage == "delivery" and not (poll.interval_ms >= 0 and poll.deadline_ms > 0):
                place = ("delivery", "polls", component, i)
                problem = f"{dotted(place)} waits {poll.interval_ms:g} ms at a time and {poll.deadline_ms:g} ms at most"
                raise document.refuse(place, problem, "interval_ms from 0, deadline_ms above 0")
    for component, phases in file.delivery.phases.items():
        if stage == "delivery" and list(phases) != sorted(set(phases), key=PHASES.index):
            at = ("delivery", "phases", component)
            raise document.refuse(at, f"{dotted(at)} is out of order or says one twice", ", ".join(PHASES))


def _names(file: _File) -> Iterator[tuple[Path, str]]:
    for stage, part in (("structure", "components"), ("behaviour", "scenarios"), ("delivery", "checks")):
        yield from (((stage, part, name), name) for name in getattr(getattr(file, stage), part))


def _paths(file: _File) -> Iterator[tuple[Path, str]]:
    for name, one in file.structure.components.items():
        yield from ((("structure", "components", name, "paths", i), path) for i, path in enumerate(one.paths))
    for name, scenario in file.behaviour.scenarios.items():
        for component, assertion in scenario.asserts.items():
            at = ("behaviour", "scenarios", name, "asserts", component, "artefacts")
            yield from (((*at, i), path) for i, path in enumerate(assertion.artefacts))
    for name, check in file.delivery.checks.items():
        yield ("delivery", "checks", name, "target"), check.target
        yield ("delivery", "checks", name, "steps"), check.steps or check.target
