"""The calibration itself, run once: every check comes out as expected, a broken one is reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from typer import Typer
from typer.testing import CliRunner

from harness import calibration
from harness.calibration import form, runs
from harness.calibration.checks import CHECKS, EXACT_BYTES, PLANTED
from harness.calibration.form import Calibration, Check, Judged
from harness.commands import calibrate
from harness.core.records import NotApplicable
from harness.trace_store import TraceStore

pytestmark = pytest.mark.xdist_group("calibration")  # its runs are made once, for all of its tests

OTHER = {
    "all found": "wrong",
    "no harm": "harm",
    "no difference": "difference",
    "INCONCLUSIVE": "GO",
    "INVALID": "VALID",
    "VALID": "INVALID",
    "STOP": "GO",
    "fewer duplicates": "as many duplicates",
    "as many duplicates": "fewer duplicates",
    "loses effects": "fewer duplicates",
}


def silent(done: int, total: int, note: str) -> None:
    pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("calibration")


@pytest.fixture(scope="module")
def judged(folder: Path) -> dict[str, Judged]:
    return runs.judge(folder, 2, silent)


@pytest.fixture(scope="module")
def found(judged: dict[str, Judged]) -> Calibration:
    return runs.assess(judged)


def named(found: Calibration, name: str) -> Check:
    return next(check for check in found.checks if check.name == name)


@pytest.mark.parametrize("planned", CHECKS, ids=[check.name for check in CHECKS])
def test_every_check_comes_out_as_expected(planned: form.Planned, found: Calibration) -> None:
    check = named(found, planned.name)
    assert check.got == planned.expected, check.because
    assert found.passed


@pytest.mark.parametrize("planned", CHECKS, ids=[check.name for check in CHECKS])
def test_a_check_that_expects_something_else_fails_and_the_calibration_with_it(
    planned: form.Planned, judged: dict[str, Judged]
) -> None:
    wrong = replace(planned, expected=OTHER[planned.expected])
    others = tuple(check for check in CHECKS if check.name != planned.name)
    broken = runs.assess(judged, checks=(*others, wrong))
    assert not broken.passed
    assert [check.name for check in broken.failed] == [planned.name]


def test_repeats_were_sent_to_the_keyed_tables_and_left_no_row(folder: Path, judged: dict[str, Judged]) -> None:
    """STOP because nobody repeats anything would prove nothing."""
    sent = kept = 0
    with TraceStore.open(folder / "idempotent") as store:
        for trial in store.iter():
            at_database = [e.kind for e in trial.truth if e.data.get("boundary") == "database"]
            sent, kept = sent + at_database.count("crossed"), kept + at_database.count("effect")
    rows = judged["idempotent"].rows["naive"]
    assert sum(row.duplicated for row in rows) == 0
    assert sent - kept > len(rows)
    assert kept <= 11 * len(rows)


def test_stop_is_decided_within_the_registered_pairs_and_not_on_the_last_one(found: Calibration) -> None:
    numbers = named(found, "idempotent").numbers
    assert 60 <= int(numbers["decided_at_pair"]) < int(numbers["pairs"]) <= 800
    assert float(numbers["e_stop"]) >= 20


def test_the_ledger_of_exact_bytes_loses_only_where_work_is_told_in_other_words(found: Calibration) -> None:
    varied, unvaried = named(found, "exact_bytes").numbers, named(found, "exact_bytes_unvaried").numbers
    assert varied["duplicated"] == varied["duplicated_control"]
    assert unvaried["duplicated"] == 0


def test_the_noise_floor_is_below_the_harm_that_the_control_does(found: Calibration, judged: dict[str, Judged]) -> None:
    floor, rows = found.floor, judged["same_arm_twice"].rows["naive"]
    assert not isinstance(floor, NotApplicable)
    assert floor.pairs == len(rows) == 200
    assert 0 < floor.duplicate_effect_rate < sum(row.duplicated for row in rows) / (11 * len(rows))
    assert 0 < floor.work_destroyed_per_fault < sum(row.work.destroyed for row in rows) / (2 * len(rows))


def test_an_oracle_that_misses_planted_harm_is_reported(
    folder: Path, judged: dict[str, Judged], monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness import score

    monkeypatch.setattr(score, "selftest", lambda oracle, trial: ["a row doubled: missed"])
    again = runs.judge(folder, 1, silent, checks=[c for c in CHECKS if c.schedule == PLANTED])
    broken = runs.assess({**judged, **again})
    assert [check.name for check in broken.failed] == ["planted_harm"]
    assert "missed" in broken.failed[0].because


def test_a_run_with_a_trial_too_few_of_the_wrong_ledger_is_no_proof(judged: dict[str, Judged]) -> None:
    """On two pairs nothing is shown, and what is not shown does not pass."""
    run = judged["unvaried"]
    less = replace(run, rows={**run.rows, EXACT_BYTES: run.rows[EXACT_BYTES][:2]})
    broken = runs.assess({**judged, "unvaried": less})
    assert "exact_bytes_unvaried" in [check.name for check in broken.failed]


def test_the_same_seeds_give_the_same_bytes_whoever_runs_them(
    folder: Path, judged: dict[str, Judged], tmp_path: Path
) -> None:
    checks = [check for check in CHECKS if check.schedule == PLANTED]
    one = runs.assess({PLANTED: judged[PLANTED]}, checks=checks)
    two = runs.assess(runs.judge(None, 1, silent, checks=checks), checks=checks)
    for name, made in (("one", one), ("two", two)):
        calibration.write(tmp_path / f"{name}.json", made)
    text = (tmp_path / "one.json").read_text()
    assert text == (tmp_path / "two.json").read_text()
    assert str(folder) not in text


def test_the_command_says_what_failed_and_exits_with_1(
    found: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Typer()
    calibrate.add(app)
    failing = replace(found.checks[0], got="wrong", passed=False)
    for made, code in ((found, 0), (replace(found, passed=False, checks=(failing, *found.checks[1:])), 1)):
        monkeypatch.setattr(calibration, "run", lambda *_, made=made, **__: made)
        done = CliRunner().invoke(app, ["--out", str(tmp_path)])
        assert done.exit_code == code, done.output
        assert calibration.read(tmp_path / "calibration.json") == made
        assert ("calibration failed: planted_harm" in done.output) is bool(code)
