"""Incidents that are whole trials: what is counted in their logs, and stories that cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import ConfigError
from harness.core.records import Event
from harness.incidents import files
from harness.incidents.kinds.trial import Bound, Logs, Measure, number, play
from workloads.relay.task import RELAY

INCIDENTS = Path(__file__).resolve().parents[2] / "schedules" / "incidents"


def turn(delegation: str, writes: int = 0, checks: tuple = ()) -> Event:
    data = {"delegation": delegation, "writes": [["p", "d", "edit"]] * writes, "checks": [list(c) for c in checks]}
    return Event(0, 0.0, 0, "turn", data)


def queued(subject: str) -> Event:
    event = {"type": "notice.queued", "subject": subject}
    return Event(0, 0.0, 0, "effect", {"boundary": "transport", "stream": "mail", "event": event})


LOGS = Logs(
    RELAY.task(1, 3),
    trace=(
        Event(0, 0.0, 0, "attempt", {"delegation": "stock"}),
        Event(0, 0.0, 0, "attempt", {"delegation": "repair/stock"}),
        Event(0, 0.0, 0, "attempt", {"delegation": "repair/stock"}),
        Event(0, 0.0, 0, "attempt", {"delegation": "repair/intake"}),
        turn("stock", writes=3, checks=(("unit_stock", True),)),
        turn("repair/stock", writes=1, checks=(("unit_stock", False), ("unit_stock", True))),
        turn("repair/intake", writes=2),
    ),
    truth=(queued("N-1"), queued("N-1"), queued("N-2")),
)


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        (Measure(of="components_woken"), 2),
        (Measure(of="bystander_edits", defective=("stock",)), 2),
        (Measure(of="bystander_edits"), 3),
        (Measure(of="turns"), 2),
        (Measure(of="turns", delegation="stock"), 1),
        (Measure(of="effects", key="mail/notice.queued/N-1"), 2),
        (Measure(of="effects", key="mail/notice.queued/N-3"), 0),
        (Measure(of="check_green", check="unit_stock"), 2),
    ],
)
def test_what_is_counted(measure: Measure, expected: int) -> None:
    assert number(measure, LOGS) == expected


@pytest.mark.parametrize(
    ("bound", "broken"), [({"above": 2}, False), ({"above": 1}, True), ({"below": 3}, True), ({}, False)]
)
def test_a_bound_is_broken_beyond_its_limits_alone(bound: dict[str, int], broken: bool) -> None:
    assert Bound(of="turns", **bound).broken(2) is broken


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"workload": "relais"}, "did you mean 'relay'"),
        ({"count": {"of": "tears"}}, "tears"),
        ({"sead": 1}, "sead"),
        ({"naive": "naif"}, "unknown arm"),
    ],
)
def test_a_story_that_cannot_be_read_is_refused(change: dict[str, Any], told: str) -> None:
    story = {**files.load(INCIDENTS / "I03.yaml").story, **change}
    with pytest.raises(ConfigError) as caught:
        play(story, "naive", "sim")
    assert told in str(caught.value)
