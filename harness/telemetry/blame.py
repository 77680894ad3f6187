"""Durable effects, and which fault stands nearest behind one that was committed once too often.

Why a rule and not a guess: a fault and a duplicate in one trial need not belong together, so that the link says on
what ground it was made, and the ground is the strongest that holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from harness.core.records import Finding, Held
from harness.query.extract import Record
from harness.telemetry.model import Link

STRUCK_CALL = "it struck the call"
STRUCK_CAUSE = "it struck the call that caused the effect"
STRUCK_EARLIER = "it struck an earlier call for the same effect"
STRUCK_ALL = "it struck the process, or the way to the boundary"
STRUCK_DELEGATION = "it struck the same delegation"
BEFORE = "it had fired before"


class Effect(Struct, frozen=True):
    """A durable effect with the finding that it belongs to, if any; occurrence counts from 1."""

    record: Record
    finding: Finding | None
    held: Held | None
    occurrence: int

    @property
    def duplicate(self) -> bool:
        return self.finding is not None and 0 < self.finding.required < self.occurrence


def blamed(effect: Effect, fired: Iterable[Record], calls: Mapping[str, Record]) -> tuple[Link, ...]:
    """Of the faults that had fired when a duplicate became durable, those that struck nearest to it; none where none
    had. calls: by id."""
    finding = effect.finding
    if finding is None:
        return ()
    own = _line(calls, effect.held.call_id if effect.held else "")
    earlier = {c for held in finding.held[: effect.occurrence - 1] for c in _line(calls, held.call_id)}
    found = []
    for fault in fired:
        if fault["fired_ms"] > effect.record["at_ms"]:
            continue
        struck = fault.get("call_id")
        cut = fault.get("fate") == "cut" and fault.get("site") == finding.boundary
        reasons = (
            (STRUCK_CAUSE, struck in own),
            (STRUCK_EARLIER, struck in earlier),
            (STRUCK_ALL, fault.get("fate") == "die" or cut),
            (STRUCK_DELEGATION, fault.get("delegation") == finding.delegation),
            (BEFORE, True),
        )
        rank, because = next((rank, words) for rank, (words, holds) in enumerate(reasons) if holds)
        found.append((rank, Link(f"fault/{fault['fault']}", because)))
    nearest = min((rank for rank, _ in found), default=0)
    return tuple(link for rank, link in found if rank == nearest)


def _line(calls: Mapping[str, Record], call_id: str) -> set[str]:
    """A call and the call that it came from."""
    return {call_id, calls.get(call_id, {}).get("cause", "")} - {""}
