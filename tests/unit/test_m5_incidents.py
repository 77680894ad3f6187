"""The stories of routing and quarantine: both sides come to what is expected, and each guard brings its own back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from harness.core.errors import ConfigError
from harness.incidents.files import Incident
from harness.incidents.guards_m5_m6 import GUARDS
from harness.incidents.kinds.route import play
from harness.incidents.proof import reverted

FOLDER = Path(__file__).parents[2] / "schedules" / "incidents"
INCIDENTS = {
    id: msgspec.convert(yaml.safe_load((FOLDER / f"{id}.yaml").read_text(encoding="utf-8")), Incident)
    for id in ("I04", "I05", "I17", "I19")
}


@pytest.mark.parametrize("side", ["naive", "mesh"])
@pytest.mark.parametrize("id", INCIDENTS)
def test_each_side_comes_to_what_is_expected(id: str, side: Any) -> None:
    incident = INCIDENTS[id]
    expected = incident.expect.naive if side == "naive" else incident.expect.mesh
    assert expected.misses(play(incident.story, side, "sim")) == ""


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_reverted_guard_brings_back_its_own_incidents_and_no_other(guard: Any) -> None:
    with reverted(guard):
        failed = {id for id, one in INCIDENTS.items() if play(one.story, "mesh", "sim").failed}
    assert failed == set(guard.incidents) == {id for id, one in INCIDENTS.items() if guard.name in one.guards}


def test_a_misled_agent_reads_half_of_its_turns() -> None:
    played = play(INCIDENTS["I05"].story, "naive", "sim")
    facts = played.facts
    assert (facts["turns"], facts["reads"], facts["cut"]) == (88, 42, 3)
    assert played.unit.endswith("(cut there, without an end)")


def test_the_breaker_shuts_on_noise_and_wakes_whoever_is_right() -> None:
    facts = play(INCIDENTS["I19"].story, "naive", "sim").facts
    assert (facts["ejected"], facts["believed"], facts["woken"]) == (4, 4, 3)


@pytest.mark.parametrize(
    ("change", "world", "said"),
    [
        ({"tells": "nothing"}, "sim", "cannot be read"),
        ({"edges": ["a/command/x"]}, "sim", "no edge"),
        ({"edges": ["a/x -> b/y"]}, "sim", "no node"),
        ({"answers": []}, "sim", "no answer"),
        ({"typo": 1}, "sim", "typo"),
        ({}, "live", "live"),
    ],
)
def test_a_story_that_makes_no_sense_is_refused(change: dict[str, Any], world: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        play(INCIDENTS["I17"].story | change, "mesh", world)
