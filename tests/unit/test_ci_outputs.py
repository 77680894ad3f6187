"""What a continuous-integration server gets: JUnit that adds up, a summary, escaped annotations, a workflow."""

from __future__ import annotations

import copy
import re
import shlex
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer
import yaml
from sealedrun import ROOT, sealed_run
from synthetic import PREREG, manifest, synthetic
from typer.main import get_command
from typer.testing import CliRunner

from harness import analysis, cli
from harness.commands import ci as command
from harness.core.errors import ConfigError
from harness.report.ci import ANNOTATIONS_MAX, TO_CONFIRM, cases, junit, workflow_commands
from harness.report.step_summary import NEXT, markdown
from harness.report.summary import build_summary

WORKFLOW = ROOT / ".github" / "workflows" / "agentmesh.yml"
OUTCOMES = ("GO", "GO_NARROW", "STOP", "INCONCLUSIVE", "INVALID")
BASE = build_summary(synthetic(12), manifest(12), PREREG)
CHECKS = [
    {"name": "a_a", "question": "?", "expected": "no difference", "got": "none", "passed": True, "because": "fine"},
    {"name": "fuzzy", "question": "?", "expected": "loses", "got": "wins", "passed": False, "because": "<it> & won"},
]


def summary(**changes: Any) -> dict[str, Any]:
    """A summary of a made-up run, with `decision` merged in and other keys put in their places."""
    made = copy.deepcopy(BASE)
    made["status"] = {"confirmatory": True, "because": []}
    made["calibration"] = {"passed": True, "checks": CHECKS[:1]}
    made["specs"] = {"checked": 9, "violated": {}}
    made["decision"] |= changes.pop("decision", {})
    return made | changes


def suites(made: dict[str, Any]) -> dict[str, ElementTree.Element]:
    root = ElementTree.fromstring(junit(made))
    return {suite.attrib["name"]: suite for suite in root}


def case(made: dict[str, Any], suite: str, name: str) -> ElementTree.Element:
    (found,) = [c for c in suites(made)[suite] if c.attrib["name"] == name]
    return found


# --- JUnit --------------------------------------------------------------------------------------------------------


def test_junit_has_the_structure_that_readers_need_and_counts_that_are_right() -> None:
    made = summary(
        calibration={"passed": False, "checks": CHECKS},
        specs={"checked": 9, "violated": {"reserved_first": {"mesh": 3, "naive": 0}}},
        decision={"failed_gates": ["one gate", "another gate"], "kill_criterion": "INVALID"},
        trouble=[{"trial": "t1", "pair": 4, "arm": "mesh", "status": "invalid", "because": "lag"}],
    )
    text = junit(made)
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n')
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    every = list(root.iter("testcase"))
    for element, here in [(root, every), *((suite, list(suite)) for suite in root)]:
        assert element.tag in ("testsuites", "testsuite")
        assert int(element.attrib["tests"]) == len(here) > 0
        assert int(element.attrib["failures"]) == sum(c.find("failure") is not None for c in here)
        assert int(element.attrib["skipped"]) == sum(c.find("skipped") is not None for c in here)
        assert element.attrib["errors"] == "0"
    for each in every:
        assert each.attrib["classname"].startswith("agentmesh.")
        assert each.attrib["name"]
        assert {child.tag for child in each} <= {"failure", "skipped", "system-out"}
        assert len(each) <= 1
    assert len({(c.attrib["classname"], c.attrib["name"]) for c in every}) == len(every)
    assert list(suites(made)) == [
        "gates", "calibration", "decision", "non-inferiority", "trace specifications", "trials",
    ]  # fmt: skip
    failed = {c.attrib["name"] for c in every if c.find("failure") is not None}
    assert {"one gate", "another gate", "fuzzy", "kill criterion", "reserved_first [mesh]", "t1 [mesh]"} <= failed
    assert "a_a" not in failed


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_decision_fails_exactly_where_the_gate_does(outcome: str) -> None:
    made = summary(decision={"kill_criterion": outcome, "reasons": ["because of this", "and that"]})
    failure = case(made, "decision", "kill criterion").find("failure")
    assert (failure is None) is (analysis.gate(made) == 0)
    if failure is not None:
        assert failure.attrib == {"message": outcome, "type": outcome}
        assert failure.text == f"{outcome}\nbecause of this\nand that"


def test_a_claim_is_passed_failed_or_skipped_never_two_of_them() -> None:
    claims = [
        {"name": "lost_incidence", "shown": True, "e_value": 40.0, "needed": 20.0},
        {"name": "task_success", "shown": False, "e_value": 0.1, "needed": 20.0},
        {"name": "third", "shown": False, "e_value": 1.5, "needed": 20.0},
    ]
    made = summary(decision={"non_inferiority": {"shown": False, "worse": ["task_success"], "claims": claims}})
    found = {c.attrib["name"]: [child.tag for child in c] for c in suites(made)["non-inferiority"]}
    assert found == {
        "non-inferiority": ["failure"],
        "non-inferiority: lost_incidence": ["system-out"],
        "non-inferiority: task_success": ["failure"],
        "non-inferiority: third": ["skipped"],
    }
    absent = summary(decision={"superiority": {"not_applicable": "phase 1 only"}})
    skipped = case(absent, "decision", "superiority").find("skipped")
    assert skipped is not None
    assert skipped.attrib["message"] == "phase 1 only"


def test_what_an_older_summary_lacks_is_skipped_and_never_passed() -> None:
    made = summary()
    for key in ("status", "calibration", "specs"):
        del made[key]
    for suite, name in [("calibration", "calibration"), ("decision", "confirmatory"),
                        ("trace specifications", "trace specifications")]:  # fmt: skip
        assert case(made, suite, name).find("skipped") is not None
    assert "**Exploratory**" in markdown(made, 12)
    for key in ("status", "calibration", "specs"):
        made[key] = {"not_applicable": "not asked for"}
    assert {c.because for c in cases(made) if c.outcome == "skipped"} >= {"not asked for"}


def test_text_that_xml_cannot_hold_is_replaced_and_markup_is_escaped() -> None:
    made = summary(decision={"failed_gates": ["a \x00\x1b[31m<b> & \ud800 gate"]})
    (only,) = suites(made)["gates"]
    assert only.attrib["name"] == "a ��[31m<b> & � gate"
    failure = case(summary(calibration={"checks": CHECKS}), "calibration", "fuzzy").find("failure")
    assert failure is not None
    assert failure.text == "expected loses, got wins: <it> & won"


# --- the step summary ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_summary_says_decision_and_reasons_first_and_what_to_do_next(outcome: str) -> None:
    made = summary(decision={"kill_criterion": outcome, "reasons": ["first reason", "second | reason"]})
    lines = markdown(made, analysis.gate(made)).splitlines()
    assert lines[0] == f"## {outcome}: agentmesh main"
    assert "Exploratory" not in "\n".join(lines)
    at = {text: lines.index(text) for text in ("- first reason", "- second \\| reason", "### Primaries", NEXT[outcome])}
    assert list(at.values()) == sorted(at.values())
    assert f"exit code with `--gate`: {analysis.gate(made)}" in lines[2]


def test_the_primaries_are_those_of_the_summary() -> None:
    made = summary()
    rows = [line for line in markdown(made, 0).splitlines() if line.startswith("| ")]
    header = next(row for row in rows if row.startswith("| arm"))
    cells = {row.split(" | ")[0].strip("| "): row for row in rows[rows.index(header) + 1 :]}
    for arm in made["arms"]:
        entry = made["primary"]["duplicate_effect_rate"][arm]
        wanted = f"{entry['estimate']:.1%} ({entry['ci_low']:.1%} to {entry['ci_high']:.1%})"
        assert cells[arm].count(" | ") == header.count(" | ")
        assert wanted in cells[arm]
        assert f"| {entry['pairs']} |" in cells[arm]
    made["primary"]["duplicate_effect_rate"]["mesh"] = {"not_applicable": "no trial"}
    assert re.search(r"\| mesh \|.*– \(no trial\)", markdown(made, 0))


def test_the_calibration_is_told_with_its_noise_floor() -> None:
    floor = {"duplicate_effect_rate": 0.012, "work_destroyed_per_fault": 345.6, "pairs": 40, "because": "measured"}
    told = "noise floor: duplicate_effect_rate 1.2%, work_destroyed_per_fault 346"
    text = markdown(summary(calibration={"checks": CHECKS[:1], "noise_floor": floor}), 0)
    assert f"\nCalibration: all 1 checks passed; {told}\n" in text
    assert "\nCalibration: failed: fuzzy\n" in markdown(summary(calibration={"checks": CHECKS}), 0)
    assert "Calibration: – (not run)" in markdown(summary(calibration={"not_applicable": "not run"}), 0)


def test_an_exploratory_run_and_what_failed_are_told() -> None:
    made = summary(
        status={"confirmatory": False, "because": ["the lock file differs"]},
        calibration={"checks": CHECKS},
        specs={"checked": 9, "violated": {"reserved_first": {"mesh": 3}}},
    )
    text = markdown(made, 12)
    assert "**Exploratory**, no confirmatory claim: the lock file differs" in text
    assert text.endswith(f"### What to do next\n\n{NEXT['INCONCLUSIVE']}\n\nThe run is exploratory. {TO_CONFIRM}\n")
    (note,) = [line for line in workflow_commands(made) if "title=exploratory" in line]
    assert note.startswith(
        "::warning title=exploratory run::the lock file differs. It suggests and confirms nothing. To"
    )
    assert "agentmesh prereg seal REGISTRATION --schedule SCHEDULE, and run agentmesh eval SCHEDULE" in note
    assert "- calibration: fuzzy (expected loses, got wins: \\<it\\> & won)" in text
    assert "- trace specifications: reserved_first \\[mesh\\] (reserved_first is broken 3 times by mesh)" in text


# --- annotations --------------------------------------------------------------------------------------------------


def test_annotations_are_escaped_and_say_the_decision_first() -> None:
    made = summary(decision={"kill_criterion": "STOP", "reasons": ["7% of all: less, than 8%", "second"]})
    first = workflow_commands(made)[0]
    assert first == "::warning title=agentmesh main%3A STOP::7%25 of all: less, than 8%25%0Asecond"
    made = summary(calibration={"checks": [{**CHECKS[1], "name": "a,b:c\r\nd%"}]})
    assert "title=calibration%3A a%2Cb%3Ac%0D%0Ad%25::" in "".join(workflow_commands(made))
    assert all("\n" not in line and re.match(r"::(error|warning|notice) title=[^:,\n]+::", line)
               for line in workflow_commands(made))  # fmt: skip


@pytest.mark.parametrize(("outcome", "level"), [("GO", "notice"), ("INVALID", "error"), ("INCONCLUSIVE", "warning")])
def test_the_level_is_that_of_the_decision(outcome: str, level: str) -> None:
    made = summary(decision={"kill_criterion": outcome, "failed_gates": []})
    decided = [line for line in workflow_commands(made) if outcome in line]
    assert decided[0].startswith(f"::{level} title=agentmesh main%3A {outcome}::")


def test_no_more_annotations_than_are_shown() -> None:
    made = summary(decision={"failed_gates": [f"gate {n}" for n in range(40)]})
    errors = [line for line in workflow_commands(made) if line.startswith("::error")]
    assert len(errors) == ANNOTATIONS_MAX
    assert errors[-1] == "::error title=agentmesh::and 31 more, see the summary"


# --- the command --------------------------------------------------------------------------------------------------


def invoke(*words: str) -> Any:
    app = typer.Typer()
    command.add(app)
    app.callback()(lambda: None)
    return CliRunner().invoke(app, ["ci", *words])


def test_the_command_writes_all_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, step, xml = str(sealed_run()), tmp_path / "step.md", tmp_path / "deep" / "junit.xml"
    step.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    done = invoke(run, "--junit", str(xml), "--summary", str(step), "--annotations")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("::warning title=agentmesh sim%3A INCONCLUSIVE::")
    assert step.read_text().startswith("before\n## INCONCLUSIVE: agentmesh sim\n")
    assert int(ElementTree.parse(xml).getroot().attrib["tests"]) > 5
    other = tmp_path / "other.md"
    other.write_text("before\n")
    invoke(run, "--summary", str(other))
    assert other.read_text().startswith("## INCONCLUSIVE")
    assert invoke(run).stdout.startswith("## INCONCLUSIVE")


def test_a_folder_without_a_report_is_refused(tmp_path: Path) -> None:
    done = invoke(str(tmp_path))
    assert isinstance(done.exception, ConfigError)
    assert "agentmesh report" in str(done.exception)
    for text in ("{", "[]", "{}", '{"decision": 1}', '{"decision": {"kill_criterion": "MAYBE"}}'):
        (tmp_path / "summary.json").write_text(text)
        assert "damaged" in str(invoke(str(tmp_path)).exception), text


# --- the workflow -------------------------------------------------------------------------------------------------


def workflow() -> dict[str, Any]:
    held = yaml.safe_load(WORKFLOW.read_text())
    return {("on" if key is True else key): value for key, value in held.items()}  # YAML 1.1 reads `on` as true


def test_the_workflow_can_be_called_and_has_the_keys_that_it_needs() -> None:
    held = workflow()
    assert set(held) == {"name", "on", "permissions", "jobs"}
    assert set(held["on"]) == {"workflow_call"}
    inputs = held["on"]["workflow_call"]["inputs"]
    assert all({"type", "default", "description"} <= set(one) for one in inputs.values())
    assert (ROOT / inputs["schedule"]["default"]).is_file()
    used = set(re.findall(r"inputs\.([\w-]+)", WORKFLOW.read_text()))
    assert used == set(inputs)
    (job,) = held["jobs"].values()
    assert {"runs-on", "steps", "timeout-minutes", "outputs"} <= set(job)
    assert all(("run" in step) != ("uses" in step) for step in job["steps"])
    ids = {step["id"] for step in job["steps"] if "id" in step}
    assert set(re.findall(r"steps\.([\w-]+)\.", WORKFLOW.read_text())) == ids
    assert held["permissions"] == {"contents": "read"}
    assert not re.search(r"run:(?:(?!- ).)*\$\{\{\s*inputs", WORKFLOW.read_text(), re.S), "inputs reach a shell as text"
    uploads = [step for step in job["steps"] if step.get("uses", "").startswith("actions/upload-artifact@")]
    assert uploads[0]["if"] == "${{ !cancelled() }}"


def test_every_command_of_the_workflow_exists_in_the_command_line() -> None:
    app = typer.Typer()
    command.add(app)
    app.registered_commands += cli.app.registered_commands
    known = get_command(app).commands  # type: ignore[attr-defined]
    steps = next(iter(workflow()["jobs"].values()))["steps"]
    shell = "\n".join(step.get("run", "") for step in steps)
    asked = [shlex.split(line)[1:] for line in shell.splitlines() if line.strip().startswith(".venv/bin/agentmesh ")]
    assert [words[0] for words in asked] == ["eval", "ci"]
    for name, *words in asked:
        options = {option for parameter in known[name].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert set(re.findall(r"make ([\w-]+)", shell)) <= set(targets)
    assert "--pairs" in {option for p in known["eval"].params for option in p.opts}
    told = re.search(
        r"exit code of the decision: (.*)\n# summary", WORKFLOW.read_text().replace(" Results and", "\n# summary")
    )
    assert told is not None
    codes = {o: analysis.gate({"decision": {"kill_criterion": o}}) for o in OUTCOMES}
    assert told[1].strip(". \n#") == ", ".join(f"{code} {outcome}" for outcome, code in codes.items())
