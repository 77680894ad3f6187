"""Whom a failure woke, and what was put under quarantine.

Wakings are read from attempts of repair delegations and not from what an arm says of them, so that every arm is
measured alike. Who was rightly woken only the truth can say.
"""

from __future__ import annotations

from harness.core.records import Event, Metric, NotApplicable, ScoredTrial
from harness.core.types import Json, Verdict
from harness.metrics.verdicts import notes

PREFIX = "repair/"
"""How ids of repair delegations begin; what follows is the component."""


def woken(scored: ScoredTrial) -> set[str]:
    """The components that were woken for a repair, in the whole trial."""
    names = (str(e.data["delegation"]) for e in scored.trial.trace if e.kind == "attempt")
    return {name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)}


def _blast_radius(scored: ScoredTrial) -> float | NotApplicable:
    """Of the trial and not of a round: who wakes all of them one after another has woken all of them. Waking nobody is
    no value, since it must not look best."""
    found = woken(scored)
    return float(len(found)) if found else NotApplicable("no repair was woken")


def _defective(scored: ScoredTrial) -> set[str] | None:
    """The components that the truth calls defective, None when it says nothing of them."""
    told = [e.data["components"] for e in scored.trial.truth if e.kind == "defective"]
    return {name for components in told for name in components} if told else None


UNTOLD = NotApplicable("the truth does not say which components are defective")


def _bystanders(scored: ScoredTrial) -> float | NotApplicable:
    defective = _defective(scored)
    return UNTOLD if defective is None else float(len(woken(scored) - defective))


def _owners(scored: ScoredTrial) -> float | NotApplicable:
    defective, found = _defective(scored), woken(scored)
    if not defective:
        return UNTOLD if defective is None else NotApplicable("no component is defective")
    if not found:
        return NotApplicable("no repair was woken")
    return len(defective & found) / len(defective)


def _abstentions(scored: ScoredTrial) -> float | NotApplicable:
    told = [data.get("verdict") for data in notes(scored, "routing")]
    return told.count(Verdict.ABSTAINED) / len(told) if told else NotApplicable("nothing was routed")


def _quarantined(scored: ScoredTrial) -> float:
    def key(data: dict[str, Json]) -> tuple[str, str]:
        return str(data.get("check")), str(data.get("key"))

    return float(len({key(data) for data in notes(scored, "quarantine") if data.get("held")}))


def _fallen(scored: ScoredTrial) -> float | NotApplicable:
    """Against what holds in a trial without faults: there every delegation is done, with each effect had once."""
    scheduled = scored.trial.record.faults_scheduled
    if not scheduled:
        return NotApplicable("no fault was scheduled")
    if not scored.clean:
        return NotApplicable("it was not judged which delegations held")
    aimed = {str(e.data.get("delegation") or e.data["strike"]["delegation"]) for e in _faults(scored)}
    return sum(not held for name, held in scored.clean.items() if name not in aimed) / scheduled


def _faults(scored: ScoredTrial) -> list[Event]:
    """Where each fault struck, and for those that did not, where they were aimed at."""
    told = [e for e in scored.trial.truth if e.kind == "fault" and e.data["state"] in ("armed", "fired")]
    return [e for e in told if "delegation" in e.data or "strike" in e.data]


FAULT_SPREAD = Metric(
    name="fault_spread",
    unit="delegations per scheduled fault",
    better="lower",
    about="delegations that no fault was aimed at or struck and that did not end done with every effect exactly once"
    " / faults scheduled; at most all other delegations",
    source="blast radius of the paper's inventory, counted in outcomes and not in wakings",
    of=_fallen,
)
BLAST_RADIUS = Metric(
    name="blast_radius",
    unit="components",
    better="lower",
    about="distinct components woken for a repair in a trial in which an acceptance failed",
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
