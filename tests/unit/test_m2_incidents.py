"""Incidents of the enforcement layer: each fails on the former gates, none on the mesh, and each guard is proven."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from arms import ARMS
from harness.core.errors import ConfigError
from harness.incidents import proof
from harness.incidents.guards_m2 import GUARDS
from harness.incidents.kinds import gate

FOLDER = Path(__file__).parents[2] / "schedules" / "incidents"
IDS = ("I06", "I07", "I08", "I09", "I10", "I12", "I15")
FILES = {id: yaml.safe_load((FOLDER / f"{id}.yaml").read_text()) for id in IDS}


@pytest.mark.parametrize("side", ["naive", "mesh"])
@pytest.mark.parametrize("id", IDS)
def test_both_sides_go_as_told(id: str, side: str) -> None:
    played = gate.play(FILES[id]["story"], side, "sim")  # type: ignore[arg-type]
    wanted = FILES[id]["expect"][side]
    assert (played.failed, played.count) == (wanted["failed"], wanted.get("count", played.count))
    assert played.verdict == wanted.get("verdict", played.verdict)


def test_every_guard_prevents_its_incident_and_no_other() -> None:
    for guard in GUARDS:
        with proof.reverted(guard):
            failed = {id for id in IDS if gate.play(FILES[id]["story"], "mesh", "sim").failed}
        assert failed == set(guard.incidents)
        assert all(guard.name in FILES[id]["guards"] for id in guard.incidents)


def test_a_count_that_only_says_where_a_story_was_cut_says_so() -> None:
    played = gate.play(FILES["I06"]["story"], "naive", "sim")
    assert "count" not in FILES["I06"]["expect"]["naive"]
    assert (played.count, played.unit.endswith("(cut there, without an end)")) == (107, True)


def test_an_arm_without_a_boot_check_has_to_work_with_the_gate_that_it_is_offered() -> None:
    played = gate.play(FILES["I07"]["story"], "mesh", "sim", "bare")
    assert (played.failed, played.count) == (True, 16)
    assert "no boot check" in played.told


def test_an_arm_that_cannot_start_at_all_did_not_refuse_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*gates: object) -> None:
        raise ConfigError("the corpus is broken")

    monkeypatch.setitem(ARMS, "mesh", replace(ARMS["mesh"], boot_check=never))
    with pytest.raises(ConfigError, match="corpus is broken"):
        gate.play(FILES["I07"]["story"], "mesh", "sim")


def test_a_commit_that_carries_a_foreign_file_is_a_wrong_call() -> None:
    played = gate.play(FILES["I15"]["story"], "mesh", "sim", "bare")
    assert (played.failed, played.facts["admitted"], played.facts["rejected"]) == (True, 1, 0)


def test_the_refusal_to_start_names_gate_and_artifact() -> None:
    told = gate.play(FILES["I07"]["story"], "mesh", "sim").told
    assert "refused to start" in told
    assert "base_class_idiom" in told
    assert "declarative-base" in told


def test_a_story_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="unit"):
        gate.play({"turns": []}, "mesh", "sim")
    with pytest.raises(ConfigError, match="write_set"):
        gate.play({**FILES["I06"]["story"], "former": ["write_sett"]}, "naive", "sim")
