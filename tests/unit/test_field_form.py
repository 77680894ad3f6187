"""What a person mistypes in a file of field incidents is refused by file, report, place, value and what is allowed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.incidents import field

CALL = "- {id: c1, tool: t, args: {a: 1}, result: ok, status: ok, effect: e1}"
GOOD = f"""reports:
- id: X1
  scenario:
    delegation: {{id: D, goal: g}}
    attempts:
    - n: 1
      ends: done
      calls:
      {CALL}
    faults: []
    truth: {{intended_effects: {{e1: 1}}}}
    correct: {{calls: {{c1: executed}}, run: executed}}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def test_the_file_that_the_others_are_made_of_is_read(tmp_path: Path) -> None:
    (one,) = field.load(write(tmp_path, GOOD))
    assert (one.id, one.truth.correct) == ("X1", {"c1": "executed"})


A_CALL = "effect: e1"
SLIPS = [
    # unknown keys, level by level
    ("    faults: []", "    fauts: []", "unknown key 'fauts'"),
    ("goal: g", "goal: g, bugdet: {}", "unknown key 'bugdet'"),
    ("goal: g", "goal: g, budget: {turn: 1}", "unknown key 'turn'"),
    ("ends: done", "ends: done\n      wroker: w", "did you mean 'worker'"),
    (A_CALL, "efect: e1", "did you mean 'effect'"),
    ("faults: []", "faults: [{at: c1, phase: in-flight, waht: x}]", "unknown key 'waht'"),
    ("run: executed", "run: executed, acept_also: {}", "did you mean 'accept_also'"),
    ("truth: {", "truth: {stal_from: c1, ", "did you mean 'stall_from'"),
    # wrong types
    ("args: {a: 1}", "args: [1]", "args is [1]; allowed: a mapping"),
    ("args: {a: 1}", "args: {1: 2}", "the key 1"),
    ("{c1: executed}", "{c1: 5}", "correct.calls.c1 is 5"),
    ("run: executed", "run: executed, accept_also: {c1: executed}", "accept_also.c1 is 'executed'; allowed: a list"),
    ("goal: g", "goal: g, policy: {deny: x}", "policy.deny is 'x'; allowed: a list"),
    ("goal: g", "goal: g, policy: {planner: 5}", "policy.planner is 5; allowed: a list"),
    ("goal: g", "goal: g, checks: unit", "checks is 'unit'; allowed: a list"),
    ("tool: t", "tool: null", "tool is empty"),
    # numbers
    (A_CALL, "effect: e1, ticks: -1", "ticks is -1; allowed: a number from 0"),
    (A_CALL, "effect: e1, ticks: .nan", "ticks is '.nan'; allowed: a finite number"),
    (A_CALL, "effect: e1, at_tick: .inf", "at_tick is '.inf'"),
    ("ends: done", "ends: done\n      starts_at_tick: -2", "starts_at_tick is -2"),
    ("goal: g", "goal: g, lease_ticks: -2", "lease_ticks is -2"),
    ("n: 1\n", "n: 0\n", "n is 0; allowed: a whole number from 1"),
    ("    faults", "    - {n: 1, calls: []}\n    faults", "two attempts have the number 1"),
    (A_CALL, "effect: e1, repeat: 0", "repeat is 0; allowed: a whole number from 1 to 10000"),
    (A_CALL, "effect: e1, repeat: true", "repeat is true"),
    (A_CALL, "effect: e1, repeat: 10001", "repeat is 10001"),
    ("{e1: 1}", "{e1: -1}", "intended_effects.e1 is -1"),
    ("{e1: 1}", '{"e${1..10001}": 1}', "cannot be counted through"),
    ("{e1: 1}", '{"e${9..1}": 1}', "cannot be counted through"),
    ("{c1: executed}", '{"c1#1..99999999999999": executed}', "cannot be counted through"),
    ("{c1: executed}", '{"c1#a..b": executed}', "allowed: an id, id#i or id#a..b"),
    # words and names
    ("{c1: executed}", "{c1: refused}", "allowed: text that is one of executed"),
    ("run: executed", "run: stalled", "correct.run is 'stalled'"),
    ("run: executed", 'run: "routed-to-"', "correct.run is 'routed-to-'"),
    ("status: ok", "status: fine", "status is 'fine'; allowed: ok, error"),
    ("truth: {", "truth: {stall_from: c9, ", "stall_from names the call 'c9'"),
    ("truth: {", "truth: {stall_from: c1, detect_by: c9, ", "detect_by names the call 'c9'"),
    ("truth: {", "truth: {detect_by: c1, ", "stall_from is not"),
    ("faults: []", "faults: [{at: c9, phase: in-flight}]", "faults[0].at is 'c9'"),
    ("faults: []", "faults: [{at: c1, phase: inflight}]", "faults[0].phase is 'inflight'"),
    ("id: X1", 'id: "X1\\nok"', "on one line"),
    # what is missing
    (f"attempts:\n    - n: 1\n      ends: done\n      calls:\n      {CALL}", "attempts: []", "no attempt"),
    (f"calls:\n      {CALL}", "calls:", "calls is empty; allowed: a list"),
    (f"      calls:\n      {CALL}\n", "", "key 'calls' is missing"),
]


@pytest.mark.parametrize(("old", "new", "said"), SLIPS, ids=[f"{new[:40]}" for _, new, _ in SLIPS])
def test_a_slip_is_refused_with_file_report_and_place(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ConfigError) as refused:
        field.load(path)
    message = str(refused.value)
    assert said in message
    assert f"{path}:" in message
    assert "\n" not in message
    assert "X1" in message or "report 0" in message or "finite" in message


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("result: ok", "result: 2024-01-01", "a date"),
        ("result: ok", "result: !!set {x, y}", "has the tag"),
        ("result: ok", "result: !!binary aGVsbG8=", "a bytes"),
        ("result: ok", 'result: "\\ud800"', "character"),
        ("result: ok", f"result: {'9' * 400}", "at most 63 bits"),
        ("result: ok", f"result: {'9' * 5000}", "cannot be read as a value"),
        ("result: ok", f"result: {'[' * 100}{']' * 100}", "nested too deeply"),
        ("ends: done", "ends: done\n      ends: failed", "given twice"),
        ("args: {a: 1}", "args: &x {a: *x}", "alias"),
        ("ends: done", 'ends: !!python/object/apply:os.getcwd []', "tag"),
    ],
)  # fmt: skip
def test_what_json_does_not_have_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ConfigError, match=said) as refused:
        field.load(path)
    assert str(path) in str(refused.value)


def test_pipes_devices_and_large_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(ConfigError, match="not a regular file"):
            field.load(path)
    with pytest.raises(ConfigError, match="too large"):
        field.load(write(tmp_path, GOOD + "#" * field.SIZE_MAX_BYTES))


def test_a_remark_inside_truth_is_let_be(tmp_path: Path) -> None:
    field.load(write(tmp_path, GOOD.replace("truth: {", "truth: {nothing new in between: null, ")))


def test_a_story_is_held_to_the_same_form() -> None:
    with pytest.raises(ConfigError, match=r"story.*attempts\[0\].calls\[0\].repeat is 'many'"):
        field.runs_of({"attempts": [{"n": 1, "calls": [{"id": "c", "tool": "t", "repeat": "many"}]}]})
    with pytest.raises(ConfigError, match=r"unknown key 'check'.*did you mean 'checks'"):
        field.delegation_of({"id": "d", "check": ["unit"]})
