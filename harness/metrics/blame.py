"""Whom an arm's enforcement struck, against the truth of what was wrong: guilty or healthy, stopped or let through.

A guard that stops everything misses nothing, and one that stops nothing wrongs nobody; only all four counts together
say how good it is. Each guard is judged on the calls, sessions, effects or answers that it could have stopped, and by
what the truth says of them, whatever the arm calls its machinery and whether or not it has any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from harness.core.records import (
    ABANDONED_SINCE,
    TAKEN_FOR_REPETITIONS,
    Event,
    Metric,
    NotApplicable,
    ScoredTrial,
    recorder,
)
from harness.core.types import Verdict
from harness.metrics._recorded import BEFORE, once
from harness.metrics.breaker import bills, loops, trips
from harness.metrics.effects import PRIMARY_BOUNDARIES, primary

HELD = ("timeout", "blackhole")
"""Cuts that hold a call which then comes to nothing."""


class Cells(Struct, frozen=True, kw_only=True):
    """Counts of one guard in one trial."""

    guilty_stopped: int = 0
    guilty_spared: int = 0
    healthy_killed: int = 0
    healthy_spared: int = 0


Verdicts = Iterator[tuple[bool, bool]]  # guilty, stopped


def _counted(judged: Verdicts) -> Cells:
    found = list(judged)
    return Cells(
        guilty_stopped=found.count((True, True)),
        guilty_spared=found.count((True, False)),
        healthy_killed=found.count((False, True)),
        healthy_spared=found.count((False, False)),
    )


class Call(Struct, frozen=True, kw_only=True):
    """A call to something that can fail to answer: a model, a check, a boundary. outcome: {} where nobody got one.
    abandoned: the arm let go of it while it was under way."""

    call_id: str
    at_ms: float
    upstream: str
    outcome: dict
    abandoned: bool


class Outage(Struct, frozen=True):
    """A cut that fired: which call it was aimed at, at what, how, and its nominal time."""

    call_id: str
    upstream: str
    how: str
    begin_ms: float
    end_ms: float

    def holds(self, call: Call) -> bool:
        return call.upstream == self.upstream and self.begin_ms <= call.at_ms <= self.end_ms


def _upstream(data: dict) -> str | None:
    """What a call, or the call of a fault, is answered by; None for what is answered at once."""
    name = data.get("site", data).get("name")
    named = {"chat": "provider", "run_check": "check"}.get(name)
    return named or (name if data.get("call", "effect") == "effect" and name in PRIMARY_BOUNDARIES else None)


@once
def _calls(scored: ScoredTrial) -> tuple[Call, ...]:
    trace = scored.trial.trace
    over = next((n for n, e in enumerate(trace) if e.kind == "limit"), len(trace))
    left = {e.data["call_id"] for e in trace[:over] if e.kind == "abandoned"}
    outcomes = {e.data["call_id"]: e.data for e in trace if e.kind == "outcome"}
    found = []
    for e in trace:
        upstream = _upstream(e.data) if e.kind == "call" else None
        if upstream is not None:
            name = e.data["call_id"]
            call = Call(
                call_id=name,
                at_ms=e.at_ms,
                upstream=upstream,
                outcome=outcomes.get(name, {}),
                abandoned=name in left,
            )
            found.append(call)
    return tuple(found)


def _fired(scored: ScoredTrial) -> Iterator[Event]:
    return (e for e in scored.trial.truth if e.kind == "fault" and e.data["state"] == "fired")


def _outages(scored: ScoredTrial) -> list[Outage]:
    return [_outage(e) for e in _fired(scored) if e.data["fate"] == "cut"]


def _outage(cut: Event) -> Outage:
    data = cut.data
    end_ms = cut.at_ms + data.get("ms", 0.0)
    return Outage(data["call_id"], _upstream(data) or "", data.get("how", ""), cut.at_ms, end_ms)


def _stalls(scored: ScoredTrial) -> Verdicts:
    """Guilty: a call that comes to nothing however long one waits. A check that is slow and gets on is healthy."""
    paced = {e.data.get("call_id") for e in scored.trial.truth if e.kind == "suffered" and e.data["what"] == "paced"}
    hung = {e.data["call_id"] for e in _fired(scored) if e.data["fate"] == "hang"} - paced
    held = [outage for outage in _outages(scored) if outage.how in HELD]
    for call in _calls(scored):
        struck = any(call.call_id == outage.call_id or outage.holds(call) for outage in held)
        stopped = call.abandoned or call.outcome.get("verdict") == Verdict.TIMED_OUT
        yield call.call_id in hung or struck, stopped


def _ejections(scored: ScoredTrial) -> Verdicts:
    """Guilty: a call that was begun in an outage of its upstream, after the one that the outage began with."""
    outages = _outages(scored)
    for call in _calls(scored):
        guilty = any(outage.holds(call) and outage.call_id != call.call_id for outage in outages)
        yield guilty, call.outcome.get("verdict") == Verdict.EJECTED


def _loops(scored: ScoredTrial) -> Cells:
    """Planted loops and sessions without one. A stop where no loop was is a session killed, each by itself."""
    billed, stops = bills(scored), trips(scored)
    planted = loops(billed)
    ended = {trip.last[-1].seq for trip in stops if trip.right}
    caught = sum(any(bill.seq in ended for bill in loop) for loop in planted)
    wrong = [trip for trip in stops if not trip.right]
    struck = {(bill.delegation, bill.phase) for trip in wrong for bill in trip.last[-1:]}
    looping = {(bill.delegation, bill.phase) for bill in billed if bill.drifting}
    sessions = {(bill.delegation, bill.phase) for bill in billed}
    return Cells(
        guilty_stopped=caught,
        guilty_spared=len(planted) - caught,
        healthy_killed=len(wrong),
        healthy_spared=len(sessions - looping - struck),
    )


HELD_BACK = (*TAKEN_FOR_REPETITIONS, "false_reject")
"""Why an effect is missing that an arm took for one too many, or refused."""


def _effects(scored: ScoredTrial) -> Cells | NotApplicable:
    """Guilty: effects asked for again when all that was wanted was there. Healthy: the intended ones."""
    if not scored.recognition:
        return NotApplicable("repetitions were not counted when the trial was judged")
    counts = [scored.recognition[name] for name in PRIMARY_BOUNDARIES if name in scored.recognition]
    killed = sum(f.lost for f in primary(scored.findings) if f.status in HELD_BACK)
    again, missed = sum(c.regenerated for c in counts), sum(c.missed for c in counts)
    return Cells(
        guilty_stopped=again - missed,
        guilty_spared=missed,
        healthy_killed=killed,
        healthy_spared=sum(c.intents for c in counts) - killed,
    )


def _evidence(scored: ScoredTrial) -> Verdicts:
    """Guilty: answers of checks that a fault turned or broke. They are stopped when the right answer is handed on, or
    the arm says that there is none; a healthy one is killed when the arm says so of it."""
    altered = {e.data["call_id"] for e in _fired(scored) if e.data["fate"] == "alter"}
    really = {e.data["call_id"]: e.data["passed"] for e in scored.trial.truth if e.kind == "checked"}
    for call in _calls(scored):
        if call.upstream == "check" and call.outcome:
            told, verdict = call.outcome.get("passed"), call.outcome.get("verdict")
            if call.call_id in altered:
                broken = told is None and verdict is None
                yield True, not broken and told in (None, really.get(call.call_id))
            else:
                yield False, told is None and verdict == Verdict.QUARANTINED


def _recorded(of: Callable[[ScoredTrial], Verdicts]) -> Callable[[ScoredTrial], Cells | NotApplicable]:
    """For guards of which nothing can be said where it was not seen what an arm lets go of."""
    return lambda scored: _counted(of(scored)) if recorder(scored.trial.trace) >= ABANDONED_SINCE else BEFORE


class Guard(Struct, frozen=True, kw_only=True):
    """What can be stopped, who is guilty among it, and what it means to be stopped, in words; and the counts."""

    of: Callable[[ScoredTrial], Cells | NotApplicable]
    population: str
    guilty: str
    stopped: str


GUARDS: dict[str, Guard] = {
    "stalls": Guard(
        of=once(_recorded(_stalls)),
        population="calls to a model, a check or a boundary",
        guilty="calls that a fault made wait for nothing",
        stopped="given up while under way, or timed out",
    ),
    "outages": Guard(
        of=once(_recorded(_ejections)),
        population="calls to a model, a check or a boundary",
        guilty="calls begun while a fault had cut off their upstream",
        stopped="not sent, since the upstream was ejected",
    ),
    "loops": Guard(
        of=once(_loops),
        population="sessions of agents, and planted loops",
        guilty="planted loops",
        stopped="ended by a stop that was carried out",
    ),
    "effects": Guard(
        of=once(_effects),
        population="intended effects, and effects asked for again",
        guilty="effects asked for again when all that was wanted was there",
        stopped="not executed",
    ),
    "evidence": Guard(
        of=once(lambda scored: _counted(_evidence(scored))),
        population="answers of checks",
        guilty="answers that a fault turned or broke",
        stopped="not handed on as they were",
    ),
}

CELLS = {
    "guilty_stopped": ("neither", "guilty and stopped"),
    "guilty_spared": ("lower", "guilty and let through"),
    "healthy_killed": ("lower", "healthy and stopped"),
    "healthy_spared": ("neither", "healthy and let through"),
}


def name_of(guard: str, cell: str) -> str:
    """The metric that holds this cell of this guard's matrix."""
    return f"blame_{guard}_{cell}"


def _cell(guard: Guard, cell: str) -> Callable[[ScoredTrial], float | NotApplicable]:
    def value(scored: ScoredTrial) -> float | NotApplicable:
        found = guard.of(scored)
        return found if isinstance(found, NotApplicable) else float(getattr(found, cell))

    return value


BLAME: dict[str, Metric] = {
    name_of(name, cell): Metric(
        name=name_of(name, cell),
        unit="count",
        better=better,  # type: ignore[arg-type]
        about=f"{guard.population}: {words} (guilty: {guard.guilty}; stopped: {guard.stopped})",
        source="precision and recall of enforcement against the truth of the injected faults",
        of=_cell(guard, cell),
    )
    for name, guard in GUARDS.items()
    for cell, (better, words) in CELLS.items()
}
