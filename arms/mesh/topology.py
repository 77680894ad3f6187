"""The topology of a system and where in it a test stopped: pure functions over nodes, edges and checkpoints.

A ladder of five stages is climbed by every command that a test sends, under one correlation id across processes. Spans
are transitions of effects, not remote calls: the first transition that is not proven is where the failure is, which a
span that only says that a call happened cannot tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from arms.common.evidence import Checkpoint
from harness.core.types import Edge, Node

Kind = Literal["route", "command", "event", "subscriber", "state"]
STAGE_OF: dict[Kind, str] = {
    "command": "command-accepted",
    "event": "event-published",
    "subscriber": "subscriber-received",
    "state": "state-committed",
    "route": "route-read",
}
STAGES = tuple(STAGE_OF.values())
"""The rungs of the ladder, in the order in which a command climbs them."""

GRADES = ("declared", "static", "observed")
"""Grades of evidence for an edge, weakest first."""

Identity = tuple[str, ...]


def identity(node: Node) -> Identity:
    """What tells a node from every other: with its component, since two services' databases of one shape are two."""
    return (node.component, node.kind, node.name)


def stronger(one: Edge, other: Edge) -> Edge:
    """The edge that is better known, of two between the same nodes."""
    return max(one, other, key=lambda edge: GRADES.index(edge.evidence))


class Graph:
    """Nodes by identity and edges between them, one per pair of nodes: the one that is best known."""

    def __init__(self, edges: Iterable[Edge]) -> None:
        self.nodes: dict[Identity, Node] = {}
        self.edges: dict[tuple[Identity, Identity], Edge] = {}
        for edge in edges:
            pair = (identity(edge.source), identity(edge.target))
            for key, node in zip(pair, (edge.source, edge.target), strict=True):
                self.nodes.setdefault(key, node)
            self.edges[pair] = stronger(edge, self.edges.get(pair, edge))

    def after(self, key: Identity) -> list[Identity]:
        return [target for source, target in self.edges if source == key]

    def before(self, key: Identity) -> list[Identity]:
        return [source for source, target in self.edges if target == key]

    def beyond(self, key: Identity) -> set[Identity]:
        """Every node that can be reached from this one, without itself unless it lies on a cycle."""
        found: set[Identity] = set()
        ahead = self.after(key)
        while ahead:
            node = ahead.pop()
            if node not in found:
                found.add(node)
                ahead += self.after(node)
        return found

    def find(self, point: Checkpoint) -> Identity | None:
        """The node that a checkpoint names: `component/kind/name`, `component/name`, or a name that only one node of
        its kind has. What accepts a command is a command or, where none is declared, a route."""
        kinds = [kind for kind, stage in STAGE_OF.items() if stage == point.stage]
        for kind in kinds + (["route"] if kinds == ["command"] else []):
            component, slash, name = point.node.partition("/")
            scoped = identity(Node(component=component, kind=kind, name=name.removeprefix(f"{kind}/")))
            if slash and scoped in self.nodes:
                return scoped
            found = [key for key, node in self.nodes.items() if (node.kind, node.name) == (kind, point.node)]
            if found:
                return found[0] if len(found) == 1 else None
        return None


class Missing(Struct, frozen=True, kw_only=True):
    """The first transition that a correlation did not make. owner: the component that should have made it.
    evidence: the grade of the edge that says so."""

    correlation: str
    stage: str
    node: str
    owner: str
    evidence: str

    def __str__(self) -> str:
        return f"{self.stage} {self.node} of {self.owner} ({self.evidence})"


class Climb(Struct, frozen=True, kw_only=True):
    """How far one correlation came. ambiguous: why nothing can be said of that. Neither missing nor ambiguous: it came
    to the end of its ladder."""

    missing: tuple[Missing, ...] = ()
    reached: frozenset[Identity] = frozenset()
    ambiguous: str = ""


def owner(edge: Edge) -> str:
    """Who makes a transition: the publisher an event, the subscriber its receipt and what it commits, the owner of a
    route its answer."""
    return edge.source.component if edge.target.kind in ("event", "state") else edge.target.component


def climb(graph: Graph, points: Sequence[Checkpoint], scope: frozenset[str] | None) -> Climb:
    """How far the checkpoints of one correlation lead through the graph. scope: the components that the scenario goes
    through, since ways that lead out of it need not be taken; None for all."""
    reached: set[Identity] = set()
    for point in points:
        key = graph.find(point) if point.stage in STAGES else None
        if key is None:
            return Climb(ambiguous=f"{point.stage} {point.node} is no node of the graph, or of more than one")
        reached.add(key)
    for key in sorted(reached):
        before = graph.before(key)
        if before and reached.isdisjoint(before) and graph.nodes[key].kind != "command":
            return Climb(ambiguous=f"{_named(graph.nodes[key])} was reached and nothing before it")
    gaps = {target for key in reached for target in _expected(graph, key, reached, scope)}
    first = sorted(gap for gap in gaps if not any(gap in graph.beyond(other) for other in gaps - {gap}))
    if first:
        missing = tuple(_missing(graph, points[0].correlation, gap, reached) for gap in first)
        return Climb(missing=missing, reached=frozenset(reached))
    if gaps:
        return Climb(ambiguous="the missing checkpoints lie on a cycle")
    tops = [key for key in sorted(reached) if reached.isdisjoint(graph.after(key))]
    open_ends = [graph.nodes[key] for key in tops if graph.nodes[key].kind != "route"]
    if open_ends:
        return Climb(ambiguous=f"the graph does not say what comes after {_named(open_ends[0])}")
    return Climb(reached=frozenset(reached))


def _expected(graph: Graph, key: Identity, reached: set[Identity], scope: frozenset[str] | None) -> list[Identity]:
    """The nodes after a reached one that should have been reached and were not. Every subscriber is to receive an
    event; of any other node's ways, one is enough, since a command may answer with this event or with that."""
    after = [target for target in graph.after(key) if scope is None or graph.nodes[target].component in scope]
    left = [target for target in after if target not in reached]
    return left if graph.nodes[key].kind == "event" or len(left) == len(after) else []


def _missing(graph: Graph, correlation: str, gap: Identity, reached: set[Identity]) -> Missing:
    edge = next(graph.edges[key, gap] for key in graph.before(gap) if key in reached)
    node = graph.nodes[gap]
    where = {"stage": STAGE_OF[node.kind], "node": _named(node)}
    return Missing(correlation=correlation, owner=owner(edge), evidence=edge.evidence, **where)


def _named(node: Node) -> str:
    return f"{node.component}/{node.kind}/{node.name}"


def unbegun(graph: Graph, ladders: Sequence[Climb], scope: frozenset[str]) -> list[Missing]:
    """The first steps within the scope that no correlation made: a test that is stopped there leaves no checkpoint."""
    reached = {key for each in ladders for key in each.reached}
    found = []
    for key, node in sorted(graph.nodes.items()):
        after = graph.after(key)
        if after and not graph.before(key) and node.component in scope and reached.isdisjoint((key, *after)):
            where = {"stage": STAGES[0], "node": _named(node), "evidence": graph.edges[key, after[0]].evidence}
            found.append(Missing(correlation="", owner=node.component, **where))
    return found


def climbs(graph: Graph, points: Sequence[Checkpoint], scope: frozenset[str] | None) -> list[Climb]:
    """One climb per correlation, in order of first appearance."""
    by_test: dict[str, list[Checkpoint]] = {}
    for point in points:
        by_test.setdefault(point.correlation, []).append(point)
    return [climb(graph, mine, scope) for mine in by_test.values()]
