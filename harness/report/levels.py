"""Variation levels: how duplicates, misses, collisions and wrong suppressions change with the agent's wording.

Trials are the units. Where an event was seen in none of them, its share of trials is bounded by the rule of three
(0 of n: at most 3/n with 95 % confidence), and never by the number of effects, which come in bursts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from harness.core.records import NotApplicable
from harness.report.rows import Row

Count = float | NotApplicable


class Event(Struct, frozen=True):
    """Something that can go wrong some times among so many chances, both counted per trial."""

    count: Callable[[Row], Count]
    among: Callable[[Row], Count]
    unit: str


def _suppressed(row: Row) -> Count:
    share = row.metric("wrongly_suppressed")
    return share if isinstance(share, NotApplicable) else float(round(share * row.intended))


EVENTS: dict[str, Event] = {
    "duplicates": Event(lambda row: float(row.duplicated), lambda row: float(row.intended), "intended effects"),
    "misses": Event(
        lambda row: row.metric("fingerprint_misses"), lambda row: row.metric("asked_again"), "effects asked for again"
    ),
    "collisions": Event(
        lambda row: row.metric("fingerprint_collisions"),
        lambda row: row.metric("intent_pairs"),
        "pairs of intended effects",
    ),
    "wrongly_suppressed": Event(_suppressed, lambda row: float(row.intended), "intended effects"),
}


def levels(rows: Mapping[str, Sequence[Row]]) -> dict[str, dict[str, Any]]:
    """{level: {arm: {trials, event: {count, among, unit, rate, trials, trials_with, share_of_trials_at_most?}}}}.

    Levels are named L0 to L5; events are those of `EVENTS`. rate: count / among, or {not_applicable} without chances;
    share_of_trials_at_most: only where no trial had the event. Invalid trials are left out.
    """
    found = sorted({row.variation for here in rows.values() for row in here})
    return {f"L{level}": {arm: _arm(here, level) for arm, here in rows.items() if _at(here, level)} for level in found}


def _at(rows: Sequence[Row], level: int) -> list[Row]:
    return [row for row in rows if row.variation == level and row.valid]


def _arm(rows: Sequence[Row], level: int) -> dict[str, Any]:
    here = _at(rows, level)
    return {"trials": len(here), **{name: _event(event, here) for name, event in EVENTS.items()}}


def _event(event: Event, rows: Sequence[Row]) -> dict[str, Any]:
    seen = [(event.count(row), event.among(row)) for row in rows]
    told = [(n, m) for n, m in seen if not isinstance(n, NotApplicable) and not isinstance(m, NotApplicable)]
    if not told:
        reasons = [n.because for n, _ in seen if isinstance(n, NotApplicable)]
        return {"not_applicable": reasons[0] if reasons else "no trial counted it", "trials": 0}
    exposed = [(n, m) for n, m in told if m]  # a trial without a chance says nothing of what would have happened
    count, among = sum(n for n, _ in told), sum(m for _, m in told)
    entry = {
        "count": int(count),
        "among": int(among),
        "unit": event.unit,
        "rate": count / among if among else {"not_applicable": f"no {event.unit}"},
        "trials": len(exposed),
        "trials_with": sum(n > 0 for n, _ in exposed),
    }
    if exposed and not entry["trials_with"]:
        entry["share_of_trials_at_most"] = min(1.0, 3 / len(exposed))
    return entry
