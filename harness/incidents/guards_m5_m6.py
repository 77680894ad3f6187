"""The guards of failure routing and of the quarantine of contradicting checks, each with its mutation."""

from __future__ import annotations

from arms.common.coverage import by_coverage
from arms.common.evidence import Choice, Evidence
from arms.mesh.m6_quarantine import POLICY, Policy, Standing
from arms.mesh.topology import Graph, Identity
from harness.core.types import Node, System
from harness.incidents.play import Guard


def _everybody(system: System, graph: Graph, evidence: Evidence) -> Choice:
    return by_coverage(system, evidence)


def _by_name(node: Node) -> Identity:
    return (node.kind, node.name)


def _routes_on_anything(evidence: Evidence, unsettled: frozenset[str]) -> Evidence:
    return evidence


def _never_contradicts(standing: Standing, answer: str, policy: Policy = POLICY) -> Standing:
    same = answer == standing.answer
    return Standing(answer=answer, in_a_row=standing.in_a_row + 1 if same else 1, seen=standing.seen + 1)


def _believes(standing: Standing, runs: int, policy: Policy = POLICY) -> str:
    return "hand-on"


GUARDS: tuple[Guard, ...] = (
    Guard(
        name="first_missing",
        primitive="M5",
        target="arms.mesh.m5_routing:route",
        reverted=_everybody,
        incidents=("I04", "I05", "I17"),
        about="the owner of the first transition that is not proven is woken, not everybody in the scenario",
    ),
    Guard(
        name="scoped_identity",
        primitive="M5",
        target="arms.mesh.topology:identity",
        reverted=_by_name,
        incidents=("I17",),
        about="a node of the topology is told from others by its component, too",
    ),
    Guard(
        name="no_routing_on_noise",
        primitive="M5",
        target="arms.mesh.m5_routing:admissible",
        reverted=_routes_on_anything,
        incidents=("I19",),
        about="nobody is woken for the answer of a check that contradicts itself, or that gave none",
    ),
    Guard(
        name="contradiction",
        primitive="M6",
        target="arms.mesh.m6_quarantine:observed",
        reverted=_never_contradicts,
        incidents=("I19",),
        about="two answers that disagree under one key put the evidence into quarantine",
    ),
    Guard(
        name="red_confirmation",
        primitive="M6",
        target="arms.mesh.m6_quarantine:ruling",
        reverted=_believes,
        incidents=("I19",),
        about="a red answer is run again on the unchanged workspace before anybody acts on it",
    ),
)
