"""Failure routing: ladders over graphs by table, and that the router never excludes who may have caused it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arms.common.evidence import Checkpoint, Evidence, Seen
from arms.mesh import topology
from arms.mesh.m5_routing import FailureRouting, admissible, localize, route
from arms.mesh.topology import STAGE_OF, Graph, climb, identity
from harness.core.types import Delegation, Edge, EffectContract, Node, System, Verdict
from harness.incidents.guards_m5_m6 import GUARDS
from harness.incidents.proof import reverted
from tests.unit.armbench import context


def node(text: str) -> Node:
    component, kind, name = text.split("/")
    return Node(component=component, kind=kind, name=name)  # type: ignore[arg-type]


def edges(*texts: str) -> tuple[Edge, ...]:
    found = []
    for text in texts:
        path = [node(part) for part in text.split(" > ")]
        found += [Edge(source=a, target=b) for a, b in itertools.pairwise(path)]
    return tuple(found)


EDGES = edges(
    "shop/command/place > shop/event/placed > store/subscriber/placed > store/state/rows > store/route/rows",
    "shop/event/placed > bill/subscriber/placed > bill/event/billed > mail/subscriber/billed > mail/state/rows",
    "mail/state/rows > mail/route/rows",
    "shop/command/place > shop/event/refused",
    "cron/command/tick > cron/event/ticked > mail/subscriber/ticked > mail/state/rows",
)
SCOPE = frozenset({"shop", "store", "bill", "mail"})
GRAPH = Graph(EDGES)
FULL = (
    "shop/command/place",
    "shop/event/placed",
    "store/subscriber/placed",
    "store/state/rows",
    "store/route/rows",
    "bill/subscriber/placed",
    "bill/event/billed",
    "mail/subscriber/billed",
    "mail/state/rows",
    "mail/route/rows",
)


def points(*nodes: str, correlation: str = "c1") -> tuple[Checkpoint, ...]:
    return tuple(Checkpoint(correlation, STAGE_OF[node(text).kind], text) for text in nodes)


def without(*prefixes: str) -> tuple[str, ...]:
    return tuple(text for text in FULL if not text.startswith(prefixes))


@pytest.mark.parametrize(
    ("reached", "owners"),
    [
        (FULL[:1], ["shop"]),  # no event was published: the publisher
        (without("store/"), ["store"]),  # not received: the subscriber
        (without("store/state", "store/route"), ["store"]),  # not committed: the subscriber
        (without("store/route"), ["store"]),  # not read: the owner of the route
        (without("bill/event", "mail/"), ["bill"]),  # only the first gap counts, not what follows from it
        (without("mail/"), ["mail"]),
        (without("store/", "mail/"), ["mail", "store"]),  # two independent gaps, two owners
        (FULL[:2], ["bill", "store"]),
        (FULL, []),  # an event instead of another is no gap, and no way out of the scope is
    ],
)
def test_the_first_missing_transition_has_an_owner(reached: tuple[str, ...], owners: list[str]) -> None:
    found = climb(GRAPH, points(*reached), SCOPE)
    assert not found.ambiguous
    assert sorted({one.owner for one in found.missing}) == owners


@pytest.mark.parametrize(
    ("reached", "because"),
    [
        (("shop/command/place", "store/state/rows"), "nothing before it"),
        (("shop/command/place", "nobody/event/x"), "is no node"),
        (("shop/command/place", "shop/event/refused"), "does not say what comes after"),
    ],
)
def test_contradictions_and_unknown_places_are_ambiguous(reached: tuple[str, ...], because: str) -> None:
    assert because in climb(GRAPH, points(*reached), SCOPE).ambiguous


def test_an_unknown_stage_is_ambiguous_and_a_bare_name_counts_where_one_node_has_it() -> None:
    assert climb(GRAPH, (Checkpoint("c", "thought-about", "shop/command/place"),), SCOPE).ambiguous
    assert GRAPH.find(Checkpoint("c", "event-published", "billed")) == ("bill", "event", "billed")
    assert GRAPH.find(Checkpoint("c", "state-committed", "rows")) is None
    assert GRAPH.find(Checkpoint("c", "state-committed", "mail/rows")) == ("mail", "state", "rows")


def test_a_route_that_accepts_a_command_begins_a_ladder() -> None:
    graph = Graph(edges("shop/route/orders > shop/event/placed > store/subscriber/placed"))
    found = climb(graph, (Checkpoint("c", "command-accepted", "shop/orders"),), None)
    assert [one.owner for one in found.missing] == ["shop"]


def test_databases_of_one_shape_are_two_nodes() -> None:
    assert identity(node("mail/state/rows")) != identity(node("store/state/rows"))
    assert len([n for n in GRAPH.nodes.values() if n.kind == "state"]) == 2


def test_the_better_known_edge_of_two_counts() -> None:
    one, other = EDGES[0], Edge(source=EDGES[0].source, target=EDGES[0].target, evidence="observed")
    (kept,) = {Graph((one, other)).edges.popitem()[1], Graph((other, one)).edges.popitem()[1]}
    assert kept.evidence == "observed"


def test_a_cycle_of_events_ends_the_walk() -> None:
    graph = Graph(edges("a/command/go > a/event/x > b/subscriber/x > b/event/y > a/subscriber/y > a/event/x"))
    found = climb(graph, points("a/command/go", "a/event/x"), None)
    assert [one.owner for one in found.missing] == ["b"]


# --- the choice ---------------------------------------------------------------------------------------------------


def made(id: str, component: str = "") -> Delegation:
    contract = EffectContract(checks=("all",))
    return Delegation(id=id, tenant="t", goal="g", phases=("p",), contract=contract, component=component)


REPAIRS = {c: made(f"repair/{c}", c) for c in ("shop", "store", "bill", "mail", "cron")}
SYSTEM = System(repairs=REPAIRS, coverage={"all": tuple(sorted(SCOPE))}, edges=EDGES)


def evidence(*checkpoints: Checkpoint, failing: tuple[str, ...] = ("t",), passed: bool | None = False) -> Evidence:
    one = Seen(check="all", passed=passed, failing=failing, checkpoints=checkpoints)
    return Evidence(delegation="judge", checks=(one,))


def test_owners_of_several_tests_are_woken_together_and_nobody_else() -> None:
    mine = (*points(*without("store/")), *points(*without("mail/"), correlation="c2"))
    choice = route(SYSTEM, GRAPH, evidence(*mine, failing=("t1", "t2")))
    assert (choice.verdict, choice.components) == (Verdict.ROUTED, ("mail", "store"))
    assert choice.first_missing == (
        "subscriber-received store/subscriber/placed of store (declared)",
        "subscriber-received mail/subscriber/billed of mail (declared)",
    )


def test_where_correlations_are_tests_those_that_passed_say_nothing() -> None:
    passed = points(*without("store/route"), correlation="t0")  # never reads
    choice = route(SYSTEM, GRAPH, evidence(*passed, *points(*without("mail/"), correlation="t1"), failing=("t1",)))
    assert choice.components == ("mail",)


EVERYBODY = tuple(sorted(SCOPE))
AMBIGUOUS = {
    "no checkpoint": (),
    "a green ladder": points(*FULL),
    "a contradiction": points("shop/command/place", "store/state/rows"),
    "one of two failures is explained": points(*without("store/")),
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_what_is_ambiguous_falls_back_to_coverage(case: str) -> None:
    choice = route(SYSTEM, GRAPH, evidence(*AMBIGUOUS[case], failing=("t1", "t2")))
    assert (choice.verdict, choice.components) == (Verdict.ABSTAINED, EVERYBODY)
    assert choice.because


def test_an_owner_that_cannot_be_modified_is_no_place_to_route_to() -> None:
    fewer = System(repairs={c: d for c, d in REPAIRS.items() if c != "store"}, coverage=SYSTEM.coverage, edges=EDGES)
    choice = route(fewer, GRAPH, evidence(*points(*without("store/"))))
    assert (choice.verdict, choice.components) == (Verdict.ABSTAINED, ("bill", "mail", "shop"))
    assert "store cannot be modified" in choice.because


def test_a_first_step_that_nobody_made_leaves_no_checkpoint_and_is_found_all_the_same() -> None:
    wider = System(repairs=REPAIRS, coverage={"all": (*SCOPE, "cron")}, edges=EDGES)
    choice = route(wider, GRAPH, evidence(*points(*FULL)))
    assert (choice.verdict, choice.components) == (Verdict.ROUTED, ("cron",))
    assert choice.first_missing == ("command-accepted cron/command/tick of cron (declared)",)


def test_a_coverage_that_leaves_out_the_owner_does_not_exclude_it() -> None:
    narrow = System(repairs=REPAIRS, coverage={"all": ("shop", "bill", "mail")}, edges=EDGES)
    choice = route(narrow, GRAPH, evidence(*points(*without("store/"))))
    assert (choice.verdict, choice.components) == (Verdict.ROUTED, ("store",))
    assert localize(narrow, GRAPH, evidence(*points(*without("store/", "mail/"))).checks[0]).missing[0].owner == "mail"


def test_contradicted_and_missing_answers_are_not_admissible() -> None:
    bad = evidence(*points(*without("store/")))
    assert admissible(bad, frozenset({"all"})).checks == ()
    assert admissible(evidence(passed=None), frozenset()).checks == ()
    assert admissible(bad, frozenset({"other"})) == bad


class Held:
    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)

    def unsettled(self, delegation: str) -> frozenset[str]:
        return self.names


@pytest.mark.parametrize(
    ("observations", "passed", "verdict"),
    [
        (Held("all"), False, Verdict.QUARANTINED),
        (Held("all"), None, Verdict.QUARANTINED),
        (Held(), None, Verdict.ABSTAINED),
        (None, None, Verdict.ABSTAINED),
    ],
)
def test_nobody_is_woken_for_evidence_that_is_none(
    observations: Held | None, passed: bool | None, verdict: str
) -> None:
    layer = FailureRouting(context(system=SYSTEM), observations)
    choice = layer._decide(evidence(*points(*without("store/")), passed=passed))
    assert (choice.components, choice.verdict) == ((), verdict)
    assert FailureRouting(context(system=SYSTEM), None)._decide(evidence(*points(*without("store/")))).components == (
        "store",
    )


@settings(max_examples=150, deadline=None)
@given(st.sets(st.sampled_from(sorted(SCOPE)), min_size=1), st.data())
def test_whoever_is_broken_first_on_a_way_is_always_woken(broken: set[str], data: st.DataObject) -> None:
    """A component that is broken stops every way at one of its own transitions; the owners of the first stops are
    woken whatever else is missing behind them."""
    stops = {c: data.draw(st.sampled_from([t for t in FULL if t.startswith(c)]), label=c) for c in sorted(broken)}
    graph, reached, owners = GRAPH, set(), set()
    ahead = [identity(node("shop/command/place"))]
    while ahead:
        key = ahead.pop()
        text = "/".join(key)
        if text not in FULL:
            continue
        if text in stops.values():
            owners.add(key[0])
            continue
        reached.add(text)
        ahead += graph.after(key)
    if not reached:
        return  # nothing was accepted, and no ladder says so
    choice = route(SYSTEM, graph, evidence(*points(*sorted(reached, key=FULL.index))))
    assert owners <= set(choice.components)
    if choice.verdict is Verdict.ROUTED:
        assert set(choice.components) == owners


def test_reverting_the_scoped_identity_makes_a_false_green_graph() -> None:
    (guard,) = (one for one in GUARDS if one.name == "scoped_identity")
    reached = points(*without("store/state", "store/route"))
    with reverted(guard):
        merged = topology.Graph(EDGES)
        assert topology.climb(merged, reached, SCOPE).missing == ()
    assert [one.owner for one in climb(GRAPH, reached, SCOPE).missing] == ["store"]
