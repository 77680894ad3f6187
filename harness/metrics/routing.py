"""Whom a failure woke, and what was put under quarantine.

Wakings are read from attempts of repair delegations and not from what an arm says of them, so that every arm is
measured alike. Who was rightly woken only the truth can say.
"""

from __future__ import annotations

from harness.core.records import Metric, NotApplicable, ScoredTrial
from harness.core.types import Json, Verdict
from harness.metrics.verdicts import notes

PREFIX = "repair/"
"""How ids of repair delegations begin; what follows is the component."""


def rounds(scored: ScoredTrial) -> list[set[str]]:
    """The components woken together: one set per stretch of repairs between attempts of other delegations."""
    found: list[set[str]] = []
    going_on = False
    for event in scored.trial.trace:
        if event.kind != "attempt":
            continue
        name = str(event.data["delegation"])
        if not name.startswith(PREFIX):
            going_on = False
            continue
        if not going_on:
            found.append(set())
            going_on = True
        found[-1].add(name.removeprefix(PREFIX))
    return found


def _blast_radius(scored: ScoredTrial) -> float | NotApplicable:
    woken = rounds(scored)
    return sum(map(len, woken)) / len(woken) if woken else NotApplicable("no repair was woken")


def _defective(scored: ScoredTrial) -> set[str] | None:
    """The components that the truth calls defective, None when it says nothing of them."""
    told = [e.data["components"] for e in scored.trial.truth if e.kind == "defective"]
    return {name for components in told for name in components} if told else None


UNTOLD = NotApplicable("the truth does not say which components are defective")


def _bystanders(scored: ScoredTrial) -> float | NotApplicable:
    defective = _defective(scored)
    return UNTOLD if defective is None else float(len(set().union(*rounds(scored)) - defective))


def _owners(scored: ScoredTrial) -> float | NotApplicable:
    defective, woken = _defective(scored), rounds(scored)
    if not defective:
        return UNTOLD if defective is None else NotApplicable("no component is defective")
    if not woken:
        return NotApplicable("no repair was woken")
    return len(defective & set().union(*woken)) / len(defective)


def _abstentions(scored: ScoredTrial) -> float | NotApplicable:
    told = [data.get("verdict") for data in notes(scored, "routing")]
    return told.count(Verdict.ABSTAINED) / len(told) if told else NotApplicable("nothing was routed")


def _quarantined(scored: ScoredTrial) -> float:
    def key(data: dict[str, Json]) -> tuple[str, str]:
        return str(data.get("check")), str(data.get("key"))

    return float(len({key(data) for data in notes(scored, "quarantine") if data.get("held")}))


BLAST_RADIUS = Metric(
    name="blast_radius",
    unit="components",
    better="lower",
    about="components woken for a repair per failed acceptance, mean over the rounds of the trial",
    source="failure routing: five components woken for a fault of two, two after it was routed",
    of=_blast_radius,
)
BYSTANDERS_WOKEN = Metric(
    name="bystanders_woken",
    unit="components",
    better="lower",
    about="components woken for a repair that were not defective",
    source="failure routing: a mandate to edit code that was right",
    of=_bystanders,
)
TRUE_OWNER_NOMINATED = Metric(
    name="true_owner_nominated",
    unit="share of defective components",
    better="higher",
    about="defective components that were woken at least once / defective components",
    source="failure routing: never exclude the true owner",
    of=_owners,
)
ROUTING_ABSTENTIONS = Metric(
    name="routing_abstentions",
    unit="share of routing decisions",
    better="neither",
    about="decisions in which the router fell back because the evidence was ambiguous / its decisions",
    source="failure routing: abstention is an outcome of its own",
    of=_abstentions,
)
CHECKS_QUARANTINED = Metric(
    name="checks_quarantined",
    unit="keys of checks",
    better="neither",
    about="keys (check, workspace, environment, contract) under which answers contradicted each other",
    source="nondeterminism quarantine",
    of=_quarantined,
)
