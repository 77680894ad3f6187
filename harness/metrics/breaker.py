"""The progress breaker against the truth: what its decisions rested on, whom it stopped, and how late.

The arm notes each decision (`progress-decision`); the provider's bills say which completions belonged to a loop that
was planted (`drifting`). A breaker is measured on both sides: loops that it missed, and work that it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from harness.core.records import Event, Metric, NotApplicable, ScoredTrial
from harness.core.types import Json, Verdict
from harness.metrics.verdicts import notes

_PAPER = "the paper's inventory: discriminating power and accuracy of the progress breaker"
_NO_TRUTH = "no loop was planted: the provider's bills do not tell which completions drift"

STOPPING = ("session", "turns")
"""Scopes whose stops the truth can judge: loops are planted in sessions."""

DECIDING = (*STOPPING, "fingerprint")
"""Scopes that decide on evidence. A component's or the run's stop follows from one of these, and a wait ends by its
own deadline."""


class Bill(Struct, frozen=True):
    """A completion that was billed to an agent."""

    at_ms: float
    seq: int
    delegation: str
    phase: str
    tokens: int
    drifting: bool


class Trip(Struct, frozen=True):
    """A stop. phase "": of the whole attempt. last: the bills of its place up to it, youngest last; since_ms: when the
    same delegation was stopped before."""

    at_ms: float
    delegation: str
    last: tuple[Bill, ...]
    since_ms: float

    @property
    def right(self) -> bool:
        return bool(self.last) and self.last[-1].drifting

    @property
    def loop(self) -> tuple[Bill, ...]:
        """The bills of the loop that it ended: the drifting ones right before it."""
        found: list[Bill] = []
        for bill in reversed(self.last):
            if not bill.drifting or bill.at_ms <= self.since_ms:
                break
            found.append(bill)
        return tuple(reversed(found))


def bills(scored: ScoredTrial) -> tuple[Bill, ...]:
    """What the provider billed to delegations, in order."""
    found = []
    for event in scored.trial.truth:
        about = event.data.get("metadata") or {} if event.kind == "billed" else {}
        if "delegation" in about:
            tokens = event.data["prompt_tokens"] + event.data["completion_tokens"]
            place = (str(about["delegation"]), str(about.get("phase", "")))
            found.append(Bill(event.at_ms, event.seq, *place, tokens, bool(event.data.get("drifting"))))
    return tuple(found)


def trips(scored: ScoredTrial) -> tuple[Trip, ...]:
    """The stops of the breaker with what was billed before them. A stop that was only announced is none."""
    billed, found = bills(scored), list[Trip]()
    for event in carried_out(scored.trial.trace):
        d, phase = str(event.data.get("delegation", "")), str(event.data.get("phase", ""))
        last = (b for b in billed if b.at_ms <= event.at_ms and b.delegation == d and phase in ("", b.phase))
        since_ms = max((trip.at_ms for trip in found if trip.delegation == d), default=-1.0)
        found.append(Trip(event.at_ms, d, tuple(last), since_ms))
    return tuple(found)


def _is_trip(event: Event) -> bool:
    data = event.data
    decided = event.kind == "note" and data.get("note") == "progress-decision"
    return decided and data.get("decision") == "trip" and data.get("scope") in STOPPING


def carried_out(trace: Iterable[Event]) -> list[Event]:
    """The announced stops after which something was really refused or stopped in the same delegation, before the next
    was announced there: one refusal cannot vouch for two."""
    places: dict[str, str] = {}
    announced: dict[str, Event] = {}
    found = []
    for event in trace:
        data = event.data
        if event.kind == "call":
            places[data["call_id"]] = str(data["site"].get("delegation", ""))
        elif _is_trip(event):
            announced[str(data.get("delegation", ""))] = event
        elif event.kind in ("outcome", "attempt_end", "delegation_end") and data.get("verdict") in _ENDED:
            place = places.get(data["call_id"], "") if event.kind == "outcome" else data["delegation"]
            if place in announced:
                found.append(announced.pop(place))
    return found


_ENDED = (Verdict.STALLED, Verdict.EXHAUSTED)


def loops(billed: Iterable[Bill]) -> list[tuple[Bill, ...]]:
    """The planted loops: unbroken runs of drifting completions of one delegation in one phase."""
    places: dict[tuple[str, str], list[list[Bill]]] = {}
    for bill in billed:
        runs = places.setdefault((bill.delegation, bill.phase), [[]])
        if bill.drifting:
            runs[-1].append(bill)
        elif runs[-1]:
            runs.append([])
    return [tuple(run) for runs in places.values() for run in runs if run]


def _on_evidence(data: dict[str, Json]) -> bool:
    evidence = set(map(str, data.get("evidence") or ()))
    return bool(evidence - set(map(str, data.get("constant") or ())))


def _power(scored: ScoredTrial) -> float | NotApplicable:
    """A decision that was withheld is none: it says itself that it had nothing to go by."""
    made = [data for data in notes(scored, "progress-decision") if data.get("decision") != "withheld"]
    judged = [data for data in made if data.get("scope") in DECIDING]
    if not judged:
        return NotApplicable("the breaker took no decision")
    return sum(map(_on_evidence, judged)) / len(judged)


def _judged(of: Callable[[tuple[Trip, ...]], float | NotApplicable]) -> Callable[[ScoredTrial], float | NotApplicable]:
    def value(scored: ScoredTrial) -> float | NotApplicable:
        found = trips(scored)
        return of(found) if found else NotApplicable("the breaker stopped nothing")

    return value


def _precision(found: tuple[Trip, ...]) -> float:
    return sum(trip.right for trip in found) / len(found)


def _recall(scored: ScoredTrial) -> float | NotApplicable:
    planted = loops(bills(scored))
    if not planted:
        return NotApplicable(_NO_TRUTH)
    ended = {trip.last[-1].seq for trip in trips(scored) if trip.right}
    return sum(any(bill.seq in ended for bill in loop) for loop in planted) / len(planted)


def _mean(of: Callable[[Trip], float]) -> Callable[[tuple[Trip, ...]], float | NotApplicable]:
    def mean(found: tuple[Trip, ...]) -> float | NotApplicable:
        right = [of(trip) for trip in found if trip.right]
        return sum(right) / len(right) if right else NotApplicable("no stop ended a planted loop")

    return mean


DISCRIMINATING_POWER = Metric(
    name="discriminating_power",
    unit="share of decisions",
    better="higher",
    about="decisions of the breaker that rest on evidence which is not wholly constant / all that were not withheld",
    source=_PAPER,
    of=_power,
)
BREAKER_PRECISION = Metric(
    name="breaker_precision",
    unit="share of stops",
    better="higher",
    about="stops of sessions that were carried out, right after a completion of a planted loop / all of them",
    source=_PAPER,
    of=_judged(_precision),
)
BREAKER_RECALL = Metric(
    name="breaker_recall",
    unit="share of planted loops",
    better="higher",
    about="planted loops in which a stop was made / planted loops",
    source=_PAPER,
    of=_recall,
)
BREAKER_DELAY_TURNS = Metric(
    name="breaker_delay_turns",
    unit="turns",
    better="lower",
    about="billed turns of a planted loop until it was stopped, mean",
    source=_PAPER,
    of=_judged(_mean(lambda trip: float(len(trip.loop)))),
)
BREAKER_TOKENS_UNTIL_TRIP = Metric(
    name="breaker_tokens_until_trip",
    unit="tokens",
    better="lower",
    about="tokens billed to a planted loop until it was stopped, mean",
    source=_PAPER,
    of=_judged(_mean(lambda trip: float(sum(bill.tokens for bill in trip.loop)))),
)
FALSE_STOPS = Metric(
    name="false_stops",
    unit="stops",
    better="lower",
    about="stops of sessions that were carried out and were in no planted loop",
    source="an enforcement layer must be shown not to block correct work",
    of=lambda scored: float(sum(not trip.right for trip in trips(scored))),
)

BREAKER: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        DISCRIMINATING_POWER,
        BREAKER_PRECISION,
        BREAKER_RECALL,
        BREAKER_DELAY_TURNS,
        BREAKER_TOKENS_UNTIL_TRIP,
        FALSE_STOPS,
    )
}
