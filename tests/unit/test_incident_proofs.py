"""What incidents rest on: without a primitive, those that name it fail, and no other does."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from harness.core.errors import ConfigError
from harness.incidents import files, proof, regression
from harness.incidents.files import Incident
from harness.incidents.guards import GUARDS
from harness.incidents.proof import APART, LACKS, Row

FOLDER = Path(__file__).resolve().parents[2] / "schedules" / "incidents"
INCIDENTS = {path.stem: files.load(path) for path in sorted(FOLDER.glob("I*.yaml"))}
PRIMITIVES = LACKS["bare"]
PLAYED = tuple(id for id, one in INCIDENTS.items() if PRIMITIVES & set(one.rests_on))


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {row.name: row for row in proof.primitives(tuple(INCIDENTS.values()))}


def alone(incident: Incident) -> dict[str, str]:
    return {row.name: row.cells[incident.id] for row in proof.primitives((incident,))}


@pytest.mark.parametrize("id", PLAYED)
def test_an_arm_without_anything_fails_every_incident_that_rests_on_a_primitive(id: str, rows: dict[str, Row]) -> None:
    assert rows["bare"].cells[id] == "caught"


@pytest.mark.parametrize("id", PLAYED)
def test_without_a_primitive_exactly_those_fail_that_name_it(id: str, rows: dict[str, Row]) -> None:
    failed = {arm for arm, row in rows.items() if arm != "bare" and row.cells[id] in ("caught", "spread")}
    assert failed == {f"mesh_without_{word}" for word in INCIDENTS[id].rests_on if word in PRIMITIVES}


def test_every_arm_that_lacks_something_is_proven(rows: dict[str, Row]) -> None:
    assert all(row.proven for row in rows.values())
    assert set(rows) == {"bare", *(f"mesh_without_{word}" for word in PRIMITIVES)}


def test_only_what_no_layer_takes_part_in_is_left_out(rows: dict[str, Row]) -> None:
    left_out = {id for id, cell in rows["bare"].cells.items() if cell == "apart"}
    assert left_out == {"I11", "I13", "I14", "I18", "I21"}
    told = "\n".join(regression.tell_apart(tuple(INCIDENTS.values())))
    assert all(id in told for id in left_out)
    assert all(because in told for because in APART.values())


def test_the_guards_of_an_incident_belong_to_what_it_rests_on() -> None:
    words = {guard.name: guard.primitive.lower().replace("declaration", "control") for guard in GUARDS}
    for one in INCIDENTS.values():
        assert {words[name] for name in one.guards} <= set(one.rests_on), one.id


def test_a_wrong_word_is_found_out() -> None:
    cells = alone(replace(INCIDENTS["I08"], rests_on=("m3",)))
    assert (cells["mesh_without_m3"], cells["mesh_without_m2"]) == ("silent", "spread")


def test_an_incident_that_rests_on_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="rests on nothing"):
        alone(replace(INCIDENTS["I08"], rests_on=()))


def test_an_unknown_word_is_refused_with_the_file(tmp_path: Path) -> None:
    told = yaml.safe_load((FOLDER / "I08.yaml").read_text(encoding="utf-8"))
    path = tmp_path / "I08.yaml"
    path.write_text(yaml.safe_dump({**told, "rests_on": ["m7"]}), encoding="utf-8")
    with pytest.raises(ConfigError, match="m7"):
        files.load(path)


def test_the_matrix_is_told_and_kept(tmp_path: Path) -> None:
    rows = (Row(name="bare", cells={"A": "caught", "B": "apart"}), Row(name="x", cells={"A": "silent", "B": "apart"}))
    told = list(regression.tell_matrix(rows))
    assert [line.split() for line in told[1:]] == [["bare", "X", "-"], ["x", "!", "-", "<-", "A", "silent"]]
    proof.write_csv(tmp_path / "primitives.csv", rows, "arm")
    assert (tmp_path / "primitives.csv").read_text() == "arm,A,B\nbare,caught,apart\nx,silent,apart\n"


def test_a_trial_in_which_nobody_is_woken_is_no_success() -> None:
    for id in ("I04_trial", "I05_trial"):
        played = files.play(INCIDENTS[id], "mesh", "sim", "bare").played
        assert (played.failed, played.facts["accepted"]) == (True, 0)
