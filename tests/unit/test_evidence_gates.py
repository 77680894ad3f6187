"""Gates of a sealed registration: opportunities, calibration, specifications that speak of the harness itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harness import evaluate
from harness.calibration.checks import CHECKS
from harness.report.gates import failed_gates
from harness.report.prereg import Prereg, load_prereg
from harness.report.rows import Row
from harness.specs import registered
from tests.unit.synthetic import manifest, row

CALIBRATION = Path(__file__).parents[2] / "schedules" / "calibration"
PREREG = load_prereg(Path(__file__).parents[2] / "schedules" / "prereg" / "kill-criterion-003.yaml")
CLASSES, LEAST = tuple(PREREG.faults), PREREG.design.pairs_min


def control(pairs: int, classes: Sequence[str] = CLASSES, **more: Any) -> list[Row]:
    return [row("naive", n, classes[n % len(classes)], **more) for n in range(pairs)]


def failed(rows: Sequence[Row], prereg: Prereg = PREREG, calibration: dict[str, Any] | None = None) -> list[str]:
    return failed_gates(rows, [[one] for one in rows], manifest(800, ("naive",), prereg), prereg, calibration)


def calibrated(**checks: bool) -> dict[str, Any]:
    assert PREREG.calibration is not None
    passed = {**dict.fromkeys(PREREG.calibration.must_pass, True), **checks}
    checked = [{"name": name, "passed": value} for name, value in passed.items()]
    floor, schedules = {"pairs": PREREG.calibration.noise_floor_pairs}, PREREG.calibration.schedules
    return {"checks": checked, "noise_floor": floor, "schedules": schedules}


def test_the_names_that_are_registered_exist() -> None:
    assert PREREG.calibration is not None
    assert set(PREREG.calibration.must_pass) == {check.name for check in CHECKS}
    assert set(PREREG.gates.spec_violations) < {spec.id for spec in registered()}


def test_the_calibration_schedules_are_the_registered_ones() -> None:
    assert PREREG.calibration is not None
    found = {path.stem: evaluate.plan(path).sha256 for path in CALIBRATION.glob("*.yaml")}
    assert found == PREREG.calibration.schedules
    other = {**calibrated(), "schedules": {**found, "no_fault": "0" * 64}}
    said = "calibration: made on other schedules than the registered ones: no_fault"
    assert failed(control(LEAST), calibration=other) == [said]


def test_a_manifest_that_names_another_size_or_rule_than_its_run_was_started_with_is_found() -> None:
    rows = control(LEAST)
    held = manifest(800, ("naive",), PREREG)
    held["schedule"]["resolved"] = {"pairs": 800, "mix": {n: {"weight": e.weight} for n, e in PREREG.faults.items()}}

    def said(**changes: Any) -> list[str]:
        return failed_gates(rows, [[one] for one in rows], {**held, **changes}, PREREG)

    assert said() == said(stopping={"until": "kill_criterion"}) == []
    assert said(pairs=60) == ["the run says that it has 60 pairs, its schedule 800"]
    assert said(stopping={"until": "all_pairs"}) == [
        "the run ended by the rule all_pairs, and was started with kill_criterion"
    ]
    assert said(stopping={"until": "full_claim"}, overrides={"until": "full_claim"}) == []


def test_an_arm_of_the_comparison_may_not_spoil_more_of_its_own_trials() -> None:
    rows = [*control(LEAST), *(row("other", n, CLASSES[n % 6]) for n in range(LEAST))]
    spoiled = [replace(one, status="invalid", because="x") if one.index in (4, 10, 17, 23) else one for one in rows]
    spoiled = [old if new.arm == "other" else new for old, new in zip(rows, spoiled, strict=True)]
    found = failed_gates(spoiled[:LEAST], [[one] for one in spoiled], manifest(800, ("naive",), PREREG), PREREG)
    assert found == ["6.7% of the trials of naive are invalid, at most 5.0%"]


def test_a_run_in_which_everything_was_met_and_passed_fails_no_gate() -> None:
    assert failed(control(LEAST), calibration=calibrated()) == []


def test_a_class_that_never_fired_is_named_and_so_is_a_control_that_hardly_met_a_fault() -> None:
    (missing,) = failed(control(LEAST, CLASSES[1:]))
    assert missing == f"fault classes that fired in fewer than 1 control trials: {CLASSES[0]} (0)"
    met = replace(PREREG, gates=replace(PREREG.gates, exposed_share_min=0.0))
    rows = [replace(one, exposed=one.index < 29) for one in control(LEAST)]
    assert failed(rows, met) == ["a fault fired in 29 control trials, 30 are registered as the least"]


def test_too_few_pairs_are_too_little_data_and_no_broken_gate() -> None:
    assert failed(control(LEAST - 1, CLASSES[:1])) == []


def test_a_check_of_the_calibration_that_failed_or_was_not_made_makes_the_data_invalid() -> None:
    rows = control(LEAST)
    assert failed(rows, calibration=calibrated(idempotent=False)) == ["calibration: the check idempotent failed"]
    short = calibrated()
    short["checks"] = [check for check in short["checks"] if check["name"] != "no_fault"]
    assert failed(rows, calibration=short) == ["calibration: the check no_fault is registered and was not made"]
    assert failed(rows, calibration=calibrated(same_arm_twice_live=False)) == []  # nothing hangs on a few live pairs


@pytest.mark.parametrize(("floor", "made"), [({"pairs": 199}, 199), ({"not_applicable": "not run"}, 0)])
def test_a_noise_floor_of_fewer_pairs_than_registered_makes_the_data_invalid(floor: dict[str, Any], made: int) -> None:
    said = [f"calibration: the noise floor is of {made} pairs, 200 are registered"]
    assert failed(control(LEAST), calibration={**calibrated(), "noise_floor": floor}) == said


def test_a_broken_specification_counts_where_it_is_registered() -> None:
    rows = control(LEAST)
    rows[3] = replace(rows[3], violations={"phases_in_order": 2, "other": 1})
    assert failed(rows) == []
    named = replace(PREREG, gates=replace(PREREG.gates, spec_violations=("phases_in_order", "billed_once")))
    assert failed(rows, named) == [f"specification phases_in_order is broken in 1 trials ({rows[3].trial})"]
