"""How far what delegations declared and what was observed of them part: the signal that enforcement goes by."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from harness.core.records import Metric, NotApplicable, ScoredTrial
from harness.core.types import Json
from harness.metrics.verdicts import notes


class Told(Struct, frozen=True):
    """An arm's note of one delegation: kinds of effects as boundary, operation and target."""

    delegation: str
    undeclared: tuple[tuple[str, str, str], ...]
    unobserved: tuple[tuple[str, str, str], ...]
    observed: int


def _read(data: dict[str, Json]) -> Told | None:
    """The note, or None for one of another form: arms write what they like."""
    try:
        return msgspec.convert(data, Told)
    except msgspec.ValidationError:
        return None


def _divergence(scored: ScoredTrial) -> float | NotApplicable:
    """Kinds of effects that only one side knows, of all that one of them knows; the last word of each delegation."""
    told = [note for data in notes(scored, "divergence") if (note := _read(data)) is not None]
    last = {note.delegation: note for note in told}.values()
    if not last:
        return NotApplicable("no delegation compared its declaration with what was observed")
    apart = sum(len(note.undeclared) + len(note.unobserved) for note in last)
    every = sum(note.observed + len(note.unobserved) for note in last)
    return apart / every if every else 0.0


DIVERGENCE = Metric(
    name="declaration_divergence",
    unit="share of kinds of effects",
    better="lower",
    about="kinds of effects that were observed and not declared, or declared and never observed / all kinds",
    source="declaration-observation divergence of the paper's inventory",
    of=_divergence,
)
