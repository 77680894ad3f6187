"""Metrics of routing and quarantine, on traces written by hand: each with a sabotaged one that moves it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harness.core.records import Event, NotApplicable, ScoredTrial
from harness.metrics import METRICS
from tests.unit.test_metrics import CLEAN, event


def scored(*woken: str, notes: tuple[dict, ...] = (), defective: tuple[str, ...] | None = ("b", "c")) -> ScoredTrial:
    """A trial in which these delegations were attempted, in order."""
    trace = [event(n, n, "attempt", delegation=d, attempt=1, depth=1) for n, d in enumerate(woken, 1)]
    trace += [event(90 + n, 90, "note", **data) for n, data in enumerate(notes)]
    truth: list[Event] = [] if defective is None else [event(1, 0, "defective", components=list(defective))]
    return replace(CLEAN, trial=replace(CLEAN.trial, trace=tuple(trace), truth=tuple(truth)))


GOOD = scored("judge", "repair/b", "repair/c", "judge")
EVERYBODY = scored("judge", "repair/a", "repair/b", "repair/c", "repair/d", "judge", "repair/b")
ONE_BY_ONE = scored("judge", "repair/a", "judge", "repair/b", "judge", "repair/c", "judge", "repair/d", "judge")
WRONG = scored("judge", "repair/a", "repair/b", "judge")


@pytest.mark.parametrize(
    ("name", "trial", "value"),
    [
        ("blast_radius", GOOD, 2.0),
        ("blast_radius", EVERYBODY, 4.0),
        ("blast_radius", ONE_BY_ONE, 4.0),
        ("blast_radius", scored("judge", "repair/b", "repair/b", "judge", "repair/b"), 1.0),
        ("bystanders_woken", GOOD, 0.0),
        ("bystanders_woken", EVERYBODY, 2.0),
        ("true_owner_nominated", GOOD, 1.0),
        ("true_owner_nominated", WRONG, 0.5),
        ("routing_abstentions", scored(notes=({"note": "routing", "verdict": "abstained"},)), 1.0),
        (
            "routing_abstentions",
            scored(notes=({"note": "routing", "verdict": "abstained"}, {"note": "routing", "verdict": "routed"})),
            0.5,
        ),
        ("checks_quarantined", GOOD, 0.0),
        (
            "checks_quarantined",
            scored(
                notes=(
                    {"note": "quarantine", "check": "k", "key": "1", "held": True},
                    {"note": "quarantine", "check": "k", "key": "1", "held": True},
                    {"note": "quarantine", "check": "k", "key": "2", "held": False},
                )
            ),
            1.0,
        ),
    ],
)
def test_values(name: str, trial: ScoredTrial, value: float) -> None:
    assert METRICS[name].of(trial) == value


@pytest.mark.parametrize(
    ("name", "worse"),
    [
        ("blast_radius", EVERYBODY),
        ("blast_radius", ONE_BY_ONE),
        ("bystanders_woken", EVERYBODY),
        ("true_owner_nominated", WRONG),
    ],
)
def test_sabotage_moves_the_metric_the_wrong_way(name: str, worse: ScoredTrial) -> None:
    before, after = METRICS[name].of(GOOD), METRICS[name].of(worse)
    assert not isinstance(before, NotApplicable)
    assert not isinstance(after, NotApplicable)
    assert after > before if METRICS[name].better == "lower" else after < before


@pytest.mark.parametrize(
    ("name", "trial", "because"),
    [
        ("blast_radius", scored("judge"), "no repair was woken"),
        ("bystanders_woken", scored("judge", "repair/a", defective=None), "does not say"),
        ("true_owner_nominated", scored("judge", "repair/a", defective=None), "does not say"),
        ("true_owner_nominated", scored("judge"), "no repair was woken"),
        ("true_owner_nominated", scored("repair/a", defective=()), "no component is defective"),
        ("routing_abstentions", GOOD, "nothing was routed"),
    ],
)
def test_what_cannot_be_told_is_said(name: str, trial: ScoredTrial, because: str) -> None:
    found = METRICS[name].of(trial)
    assert isinstance(found, NotApplicable)
    assert because in found.because
