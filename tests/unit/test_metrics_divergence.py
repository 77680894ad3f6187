"""The divergence of declaration and observation, from the notes of an arm."""

from __future__ import annotations

from msgspec.structs import replace

from harness.core.records import NotApplicable, ScoredTrial
from harness.core.types import Json
from harness.metrics import METRICS
from tests.unit.test_metrics import CLEAN, event

KIND = ["transport", "XADD", "orders"]


def told(*notes: dict[str, Json]) -> ScoredTrial:
    trace = tuple(event(900 + n, 90 + n, "note", note="divergence", **note) for n, note in enumerate(notes))
    return replace(CLEAN, trial=replace(CLEAN.trial, trace=(*CLEAN.trial.trace, *trace)))


def note(delegation: str, undeclared: int, unobserved: int, observed: int) -> dict[str, Json]:
    kinds = {"undeclared": [KIND] * undeclared, "unobserved": [KIND] * unobserved}
    return {"delegation": delegation, **kinds, "observed": observed}


def test_what_only_one_side_knows_counts_against_all_that_is_known() -> None:
    value = METRICS["declaration_divergence"].of
    assert value(told(note("a", 0, 0, 4))) == 0.0
    assert value(told(note("a", 1, 0, 4))) == 0.25
    assert value(told(note("a", 0, 1, 3))) == 0.25
    assert value(told(note("a", 1, 1, 3), note("b", 0, 0, 4))) == 0.25
    assert value(told(note("a", 4, 0, 4), note("a", 0, 0, 4))) == 0.0  # the last word of a delegation


def test_without_a_note_of_the_right_form_there_is_no_number() -> None:
    for scored in (CLEAN, told({"undeclared": "many"}), told({"delegation": 7})):
        assert isinstance(METRICS["declaration_divergence"].of(scored), NotApplicable)
