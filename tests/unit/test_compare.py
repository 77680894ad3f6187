"""Two runs side by side: what is shown to agree, what is not, and what is above the noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from synthetic import PREREG, invalid, manifest, row

from harness.core import strict_yaml
from harness.core.errors import ConfigError
from harness.replication.compare import compare, told
from harness.replication.equivalence import equivalences, matched
from harness.replication.replicate import judge
from harness.replication.rule import Rule
from harness.report.evidence import DUPLICATES, WORK
from harness.report.rows import Row

ROOT = Path(__file__).parents[2]
DOCUMENT = strict_yaml.read(ROOT / "schedules" / "prereg" / "kill-criterion-001.yaml").value
RULE = Rule(test="equivalence", arms=("naive",))
MACHINE = {"platform": "Linux-6.1", "processor": "x86_64", "cores": 2, "python": "3.11.9"}


def rows(count: int, duplicated: int = 0, destroyed: int = 0, arm: str = "naive", prefix: str = "") -> list[Row]:
    found = [row(arm, i, duplicated=duplicated, destroyed=destroyed) for i in range(count)]
    return [msgspec.structs.replace(one, trial=prefix + one.trial) for one in found]


def shown(first: list[Row], second: list[Row], rule: Rule = RULE) -> dict[str, bool]:
    found = equivalences({"naive": first}, {"naive": second}, PREREG, rule)
    return {one.compared.primary: one.shown for one in found}


# --- equivalence --------------------------------------------------------------------------------------------------


def test_equal_arms_are_shown_to_agree_from_36_pairs_on() -> None:
    """(1 + 0.99 * 0.1 / 0.9)^n / 2 >= 20 from n = 36 on: half the capital is on the boldest stake."""
    assert shown(rows(36, 2), rows(36, 2)) == {DUPLICATES: True, WORK: True}
    assert shown(rows(34, 2), rows(34, 2)) == {DUPLICATES: False, WORK: False}


def test_too_few_pairs_are_no_agreement_and_say_so() -> None:
    (first, _) = equivalences({"naive": rows(5)}, {"naive": rows(5)}, PREREG, RULE)
    assert "naive, duplicate_effect_rate: not shown to agree within 0.1" in first.because
    assert "5 pairs" in first.because
    (nothing, _) = equivalences({}, {"naive": rows(5)}, PREREG, RULE)
    assert not nothing.shown
    assert "no trial side by side" in nothing.because


def test_a_difference_beyond_the_margin_is_never_agreement_however_many_pairs() -> None:
    """Two more of 11 effects in every trial is a difference of 0.18."""
    assert shown(rows(400, 1), rows(400, 3))[DUPLICATES] is False
    (found, _) = equivalences({"naive": rows(400, 3)}, {"naive": rows(400, 1)}, PREREG, RULE)
    assert "shown to differ by more" in found.because
    assert found.compared.difference == pytest.approx(-2 / 11)
    assert found.compared.low is not None
    assert found.compared.high is not None
    assert found.compared.low < -2 / 11 < found.compared.high < -0.1


def test_trials_that_the_harness_spoiled_count_against_agreement() -> None:
    spoiled = [*rows(60)[:50], *(invalid("naive", i) for i in range(50, 60))]
    assert shown(rows(60), rows(60))[DUPLICATES] is True
    assert shown(rows(60), spoiled)[DUPLICATES] is False
    assert shown(spoiled, spoiled)[DUPLICATES] is False


def test_the_margin_is_the_registered_one() -> None:
    wide = Rule(test="equivalence", arms=("naive",), margin_duplicates=0.4, margin_work_share=0.4)
    assert shown(rows(10), rows(10), wide) == {DUPLICATES: True, WORK: True}


def test_trials_are_matched_by_id_where_they_are_the_same_and_else_in_order() -> None:
    first, second = rows(4), rows(6)[1:]
    one, other, paired = matched(first, second)
    assert paired
    assert [r.index for r in one] == [r.index for r in other] == [1, 2, 3]
    one, other, paired = matched(rows(4), rows(3, prefix="x"))
    assert not paired
    assert len(one) == len(other) == 3


# --- whole runs ---------------------------------------------------------------------------------------------------


def run(folder: Path, held: list[Row], decision: str = "STOP", floor: float | None = None, **changes: Any) -> Path:
    """A judged run, as far as a comparison reads it."""
    folder.mkdir()
    base = manifest(max(one.index for one in held) + 1, tuple(sorted({one.arm for one in held})))
    start = {"git": {"commit": "one"}, "packages": {"numpy": "1"}, "machine": MACHINE, "jobs": 1}
    content = {
        **base,
        "schedule": {"name": "main", "sha256": "0", "resolved": {"seed": 1}},
        "preregistration": {"sha256": PREREG.sha256, "document": DOCUMENT},
        "starts": [start],
    }
    content |= changes
    (folder / "manifest.json").write_text(json.dumps(content))
    (folder / "rows.jsonl").write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in held))
    (folder / "summary.json").write_text(json.dumps({"decision": {"kill_criterion": decision}}))
    if floor is not None:
        measured = {DUPLICATES: floor, WORK: 100.0, "pairs": 60, "because": ""}
        (folder / "calibration.json").write_text(json.dumps({"checks": [], "passed": True, "noise_floor": measured}))
    return folder


def answers(first: Path, second: Path) -> dict[str, str]:
    return {line.compared.primary: line.answer for line in compare(first, second).lines}


def test_runs_that_agree_trial_by_trial_are_equal(tmp_path: Path) -> None:
    first, second = run(tmp_path / "a", rows(5, 1, 100)), run(tmp_path / "b", rows(5, 1, 100))
    assert answers(first, second) == {DUPLICATES: "equal", WORK: "equal"}
    assert "nothing was changed: schedule, registration, code, packages and machine are the same" in "\n".join(
        told(compare(first, second))
    )


def test_a_difference_counts_only_beyond_the_noise_floor(tmp_path: Path) -> None:
    first, second = rows(400, 0), rows(400, 2)
    loud = run(tmp_path / "a", first, floor=0.02), run(tmp_path / "b", second)
    assert answers(*loud)[DUPLICATES] == "above_noise"
    hushed = run(tmp_path / "c", first, floor=0.5), run(tmp_path / "d", second)
    assert answers(*hushed)[DUPLICATES] == "within_noise"
    few = run(tmp_path / "e", first[:3]), run(tmp_path / "f", second[:3])
    assert answers(*few)[DUPLICATES] == "cannot_tell"


def test_other_seeds_are_compared_in_order(tmp_path: Path) -> None:
    found = compare(run(tmp_path / "a", rows(50)), run(tmp_path / "b", rows(40, 2, prefix="x")))
    assert [line.paired for line in found.lines] == [False, False]
    assert [line.compared.pairs for line in found.lines] == [40, 40]
    assert found.lines[0].compared.difference == pytest.approx(2 / 11)
    assert (found.lines[0].compared.first, found.lines[0].compared.second) == (0.0, pytest.approx(2 / 11))


def test_what_was_changed_is_said_kind_by_kind(tmp_path: Path) -> None:
    start = {
        "git": {"commit": "two"},
        "packages": {"numpy": "2", "new": "1"},
        "machine": {**MACHINE, "cores": 64},
        "jobs": 8,
    }
    schedule = {"name": "main", "sha256": "1", "resolved": {"seed": 2}}
    first = run(tmp_path / "a", rows(3))
    second = run(tmp_path / "b", rows(3) + rows(3, arm="mesh"), starts=[start], schedule=schedule, world="live")
    found = compare(first, second)
    assert found.changed == {
        "schedule": ["seed: 1 -> 2"],
        "code": ["commit: one -> two"],
        "packages": ["new: not installed -> 1", "numpy: 1 -> 2"],
        "machine": ["cores: 2 -> 64", "jobs: 1 -> 8"],
    }
    assert found.notes[0] == "arms of one run only: mesh"
    assert "the worlds differ" in found.notes[1]
    assert [line.compared.arm for line in found.lines] == ["naive", "naive"]


def schedule(**resolved: Any) -> dict[str, Any]:
    return {"name": "main", "sha256": "0", "resolved": resolved}


def test_a_change_is_said_in_words_and_named_entries_are_found_by_their_names(tmp_path: Path) -> None:
    arms = [{"name": "naive", "pairs": 20}, {"name": "mesh"}]
    one = schedule(arms=arms, gate=True, until=None, seed=1)
    other = schedule(
        arms=[{"name": "bare"}, {"name": "naive", "pairs": None}, {"name": "mesh"}], gate=False, until="all"
    )
    first, second = run(tmp_path / "a", rows(3), schedule=one), run(tmp_path / "b", rows(3), schedule=other)
    assert compare(first, second).changed["schedule"] == [
        "arms.naive.pairs: 20 -> none",
        "arms.bare: only in the second",
        "gate: yes -> no",
        "until: none -> all",
        "seed: only in the first (1)",
    ]
    turned = run(tmp_path / "c", rows(3), schedule=schedule(**{**one["resolved"], "arms": arms[::-1]}))
    assert compare(first, turned).changed["schedule"] == ["the same entries in another order"]


def test_what_one_run_has_and_the_other_has_not_is_one_line(tmp_path: Path) -> None:
    first, second = run(tmp_path / "a", rows(3), floor=0.1), run(tmp_path / "b", rows(3))
    assert compare(first, second).changed == {"calibration": ["only in the first"]}


def test_the_tables_have_units_and_fit_a_terminal(tmp_path: Path) -> None:
    first, second = run(tmp_path / "a", rows(40, 0), floor=0.02), run(tmp_path / "b", rows(50, 2, 1000, prefix="x"))
    lines = list(told(compare(first, second)))
    assert max(map(len, lines)) <= 120
    at = lines.index("duplicate_effect_rate, % of intended effects; noise floor 2.00 (A/A of the calibration)")
    assert lines[at + 1].split()[:5] == ["arm", "pairs", "first", "second", "difference"]
    assert "95 % interval" in lines[at + 1]
    assert lines[at + 2].split()[:5] == ["naive", "40*", "0.00", "18.18", "18.18"]
    tokens = lines.index(
        "work_destroyed_per_fault, tokens per scheduled fault; noise floor 100 (A/A of the calibration)"
    )
    assert lines[tokens + 2].split()[:5] == ["naive", "40*", "0", "500", "500"]  # of two faults
    assert lines[-1] == "of 2 comparisons: 1 beyond noise, 1 cannot be told from noise"


def test_a_run_that_is_not_judged_cannot_be_compared(tmp_path: Path) -> None:
    first, second = run(tmp_path / "a", rows(3)), run(tmp_path / "b", rows(3))
    (second / "rows.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"the run has no rows.jsonl; first: agentmesh score"):
        compare(first, second)


# --- the verdict of a live replication ----------------------------------------------------------------------------


def test_live_runs_replicate_by_equivalence_and_the_same_decision(tmp_path: Path) -> None:
    first, second = run(tmp_path / "a", rows(60, 1)), run(tmp_path / "b", rows(60, 1))
    assert judge(first, second, RULE, []).verdict == "REPLICATED"
    other = run(tmp_path / "c", rows(60, 1), decision="GO")
    found = judge(first, other, RULE, [])
    assert found.verdict == "NOT_REPLICATED"
    assert found.differences == ("the kill criterion is STOP in the first run and GO in the second",)


def test_live_runs_of_too_few_pairs_are_not_replicated(tmp_path: Path) -> None:
    found = judge(run(tmp_path / "a", rows(10)), run(tmp_path / "b", rows(10)), RULE, [])
    assert found.verdict == "NOT_REPLICATED"
    assert found.because.startswith("naive, duplicate_effect_rate: not shown to agree within 0.1")


def test_a_rule_about_no_arm_is_not_passed(tmp_path: Path) -> None:
    nobody = Rule(test="equivalence", arms=())
    found = judge(run(tmp_path / "a", rows(60)), run(tmp_path / "b", rows(60)), nobody, [])
    assert found.verdict == "NOT_REPLICATED"
    assert found.differences == ("there is no registered arm to compare",)


def test_another_environment_is_said_with_the_comparison(tmp_path: Path) -> None:
    around = ["python: 3.11 in the bundle, 3.12 here"]
    found = judge(run(tmp_path / "a", rows(60)), run(tmp_path / "b", rows(60)), RULE, around)
    assert found.verdict == "DIFFERENT_ENVIRONMENT"
    assert found.because.endswith("python: 3.11 in the bundle, 3.12 here; with that, all tests are passed")
    assert len(found.equivalence) == 2
