"""The format of field incidents, the stage on which they are played, and how they are judged."""

import copy
import json
from pathlib import Path

import pytest
import yaml

from arms.mesh.control.kinds import POLICY, Kind, kind_of
from arms.mesh.gates.outside import GOING_BACK
from harness import catalogue
from harness.core.errors import ConfigError
from harness.incidents import field
from harness.incidents.judge import judge
from harness.incidents.stage import replay

REPORTS = Path("schedules/incidents/field/reports.yaml")
RAW = {one["id"]: one for one in yaml.safe_load(REPORTS.read_text(encoding="utf-8"))["reports"]}
SCENARIOS = {one.id: one for one in field.load(REPORTS)}


def written(tmp_path: Path, *reports: dict) -> Path:
    path = tmp_path / "reports.yaml"
    plain = json.loads(json.dumps({"reports": reports}))  # without the aliases of a value that is used twice
    path.write_text(yaml.safe_dump(plain), encoding="utf-8")
    return path


def test_all_thirty_seven_reports_are_read():
    assert len(SCENARIOS) == 37


def test_repetitions_and_ranges_are_unfolded():
    mails = SCENARIOS["R07"]
    assert [call.args["to"] for call in mails.runs[0].calls] == ["1", "2", "3", "4"]
    assert mails.truth.intended == {"mail(1)": 1, "mail(2)": 1, "mail(3)": 1, "mail(4)": 1}
    assert mails.truth.correct["a2.c1#3"] == "suppressed-as-duplicate"


def test_the_reference_decisions_fold_to_the_intended_effects():
    """The header promises it for every report; a loader that misreads ids or repetitions would break it."""
    for scenario in SCENARIOS.values():
        held: dict[str, int] = {}
        for call in scenario.calls():
            if scenario.truth.correct.get(call.id, "executed") == "executed":
                for effect in call.effects:
                    held[effect] = held.get(effect, 0) + 1
        assert held == scenario.truth.intended, scenario.id


def test_what_an_arm_sees_holds_nothing_of_the_truth():
    for scenario in SCENARIOS.values():
        shown = repr(scenario.delegation)
        for effect in scenario.truth.intended:
            assert effect not in shown


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda r: r.pop("scenario"), "'scenario' is missing"),
        (lambda r: r["scenario"]["attempts"][0]["calls"][0].update(status="fine"), "status is 'fine'"),
        (lambda r: r["scenario"]["correct"]["calls"].update({"a9.c9": "executed"}), "names the call 'a9.c9'"),
        (lambda r: r["scenario"]["attempts"].append(r["scenario"]["attempts"][0] | {"n": 9}), "call ids stand twice"),
        (lambda r: r["scenario"].update(attempts=7), "attempts is 7"),
    ],
)
def test_a_broken_report_is_refused_by_name(tmp_path, change, problem):
    report = copy.deepcopy(RAW["R01"])
    change(report)
    with pytest.raises(ConfigError, match=problem) as refused:
        field.load(written(tmp_path, report))
    assert "R01" in str(refused.value)


@pytest.mark.parametrize("text", ["reports: 3", "[1, 2]", "a: {", "other: []"])
def test_a_file_of_another_form_is_refused(tmp_path, text):
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"x\.yaml"):
        field.load(path)


def test_an_arm_without_layers_does_what_the_reported_systems_did():
    """The stage is right when nobody decides anything: every listed call materialises as the report derived it."""
    bare = catalogue.arm("bare")
    same = {"R01", "R02", "R03", "R05", "R07", "R26", "R29", "R31", "R34", "R44"}
    for id in same:
        scenario = SCENARIOS[id]
        judged = judge(scenario, replay(scenario, bare))
        assert (judged.excess, judged.missing) == (scenario.truth.reported_excess, scenario.truth.reported_missing), id


def test_a_replay_is_the_same_every_time():
    mesh = catalogue.arm("mesh")
    for id in ("R07", "R26", "R31"):
        assert replay(SCENARIOS[id], mesh) == replay(SCENARIOS[id], mesh)


def test_all_field_scenarios_but_one_are_decided_right_and_none_is_stopped_falsely():
    mesh = catalogue.arm("mesh")
    judged = [judge(one, replay(one, mesh)) for one in SCENARIOS.values()]
    assert not [one.id for one in judged if one.arm_error]
    assert not [one.id for one in judged if one.stall in ("early", "false-stop")]
    assert [one.id for one in judged if not one.right] == ["R29"]


def renamed(report: dict) -> dict:
    """The same report told of other tools, with other argument values: what is left is its shape."""

    def tool(name: str) -> str:
        kind = kind_of(name)
        if kind is Kind.TERMINAL:
            return "zone.return_outcome"
        if GOING_BACK & set(name.split(".")):
            return "zone.rollback"
        if kind is Kind.EFFECT or kind not in POLICY.kinds:
            return f"zone.{''.join(chr(ord('g') + ord(c) % 9) for c in name if c.isalpha())}x"
        return f"zone.{POLICY.kinds[kind][0]}_{sum(map(ord, name)) % 89}"

    report = copy.deepcopy(report)
    for attempt in report["scenario"]["attempts"]:
        for call in attempt["calls"]:
            call["tool"] = tool(call["tool"])
    wait = report["scenario"]["delegation"].get("wait")
    if wait:
        wait["tool"] = tool(wait["tool"])
    report["id"] = "Z" + report["id"]
    return report


def test_other_names_of_tools_change_no_decision(tmp_path):
    """Nothing may be keyed on an id or on the name of a tool beyond its general verb."""
    mesh = catalogue.arm("mesh")
    others = field.load(written(tmp_path, *(renamed(report) for report in RAW.values())))
    for one, other in zip(SCENARIOS.values(), others, strict=True):
        assert replay(one, mesh).decisions == replay(other, mesh).decisions, one.id
