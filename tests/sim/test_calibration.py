"""The calibration itself, run once: every check comes out as expected, a broken one is reported."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from msgspec.structs import replace
from typer import Typer
from typer.testing import CliRunner

from harness import calibration, evaluate
from harness.calibration import form, kept, runs
from harness.calibration.checks import CHECKS, EXACT_BYTES, PLANTED
from harness.calibration.form import Calibration, Check, Judged
from harness.commands import calibrate
from harness.console import Step
from harness.core.records import NotApplicable
from harness.trace_store import TraceStore

ROOT = Path(__file__).resolve().parents[2]
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


# --- a calibration that is continued ------------------------------------------------------------------------------


def test_a_run_that_is_judged_is_not_judged_again_unless_its_code_or_trials_are_others(
    folder: Path, judged: dict[str, Judged], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = [check for check in CHECKS if check.schedule == PLANTED]
    plan = runs._plan(PLANTED)
    shutil.copytree(folder / PLANTED, tmp_path / PLANTED)
    kept.note(tmp_path / PLANTED, plan)  # whoever edited files meanwhile: by the code at hand
    assert kept.is_judged(tmp_path / PLANTED, plan)
    scored: list[Path] = []
    score = runs.analysis.score
    monkeypatch.setattr(runs.analysis, "score", lambda folder, step: (scored.append(folder), score(folder, step)))
    monkeypatch.setattr(runs, "_plan", lambda name: plan)
    told: list[str] = []
    again = runs.judge(tmp_path, 1, lambda done, total, note: told.append(note), checks=checks)
    assert (again[PLANTED].rows, again[PLANTED].planted) == (judged[PLANTED].rows, ())
    assert (scored, told) == ([], ["calibration: the runs of 2 of 2 checks are judged already, nothing is run again"])

    assert plan.registration is not None
    code = {**plan.registration["digests"], "analysis_code": "5" * 64}
    other = replace(plan, registration={**plan.registration, "digests": code})
    assert not kept.is_judged(tmp_path / PLANTED, other)
    rows = tmp_path / PLANTED / "rows.jsonl"
    rows.write_bytes(rows.read_bytes().replace(b'"naive"', b'"mesh"', 1))
    assert not kept.is_judged(tmp_path / PLANTED, plan)
    assert runs.judge(tmp_path, 1, silent, checks=checks)[PLANTED].rows == judged[PLANTED].rows
    assert scored == [tmp_path / PLANTED]


def test_a_run_that_other_code_began_is_begun_anew(tmp_path: Path) -> None:
    plan = evaluate.plan(registered(tmp_path, "kill-criterion-001"))
    assert plan.registration is not None
    digests = plan.registration["digests"]
    older = replace(plan, registration={**plan.registration, "digests": {**digests, "harness_code": "5" * 64}})
    run = tmp_path / "run"
    assert not kept.is_of_other_code(run, plan)
    for this, begun_anew in ((older, True), (plan, True), (plan, False)):
        if run.exists():
            (run / "earlier").touch()
        runs._run_and_score(this, run, 1, silent)
        assert (run / "earlier").exists() is not begun_anew
        with TraceStore.open(run) as store:
            assert len(store.sealed_ids()) == len(plan.specs)
            assert store.manifest["preregistration"]["digests"] == this.registration["digests"]
    other = replace(plan, schedule=replace(plan.schedule, name="theirs"), registration=older.registration)
    assert not kept.is_of_other_code(run, other), "a run of something else is not ours to replace"


def test_it_says_how_far_it_is() -> None:
    plans: dict[str, Any] = {check.schedule: None for check in CHECKS}
    first, second, *_ = plans
    done = sum(check.schedule == first for check in CHECKS)
    said = f"calibration: the runs of {done} of {len(CHECKS)} checks are judged already, goes on with {second}"
    assert kept.told([first], plans, CHECKS) == said
    assert kept.told([], plans, CHECKS) == ""


SCHEDULE = """\
schema: agentmesh-schedule/1
name: small
version: 1
seed: 5
world: sim
workloads: {codegen: 1}
pairs: 3
arms: [naive, mesh]
faults: {mix: {hung_check: 1, staging_crash: 1}}
preregistration: kill.yaml
"""


def registered(tmp_path: Path, name: str) -> Path:
    text = (ROOT / "schedules" / "prereg" / f"{name}.yaml").read_text(encoding="utf-8")
    (tmp_path / "kill.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "s.yaml").write_text(SCHEDULE)
    return tmp_path / "s.yaml"


@contextmanager
def evaluation(folder: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "harness.cli", "eval", "s.yaml", "--out", "run", *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.terminate()


def ended(process: subprocess.Popen[str]) -> str:
    """What it says after SIGTERM."""
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    return said


def test_a_calibration_that_was_cut_off_goes_on_where_it_was(tmp_path: Path) -> None:
    registered(tmp_path, "kill-criterion-003")
    held = tmp_path / "run" / runs.SCRATCH / PLANTED
    with evaluation(tmp_path) as first:
        while not (held / kept.NOTE).exists() and first.poll() is None:
            time.sleep(0.05)
        assert "no trial is sealed yet in run; continue with the same command and --resume" in ended(first)
    before = (held / "rows.jsonl").stat()

    with evaluation(tmp_path, "--resume") as second:
        assert second.stderr is not None
        lines = list(before_words(second.stderr, "are judged already, goes on with"))
        assert not any("0/" in line for line in lines), "it does not look as if it began again"
        ended(second)
    after = (held / "rows.jsonl").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def before_words(stream: IO[str], words: str) -> Iterator[str]:
    """Lines until one has these words; fails when none has."""
    seen = []
    for line in stream:
        seen.append(line)
        if words in line:
            return
        yield line
    pytest.fail(f"{words!r} is not among {seen}")


# --- before a run -------------------------------------------------------------------------------------------------


def test_a_run_says_what_calibration_it_has(
    tmp_path: Path, found: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = evaluate.plan(registered(tmp_path, "kill-criterion-001"))
    monkeypatch.setattr(runs, "calibrate", lambda *_: found)
    with evaluate.open_run(plan, jobs=1, out=tmp_path / "none") as store:
        (said,) = calibrate.before_run(runs.of_run(plan, store, 1, shown))
        assert said == "calibration: none, the registration demands none"

    plan = evaluate.plan(registered(tmp_path, "kill-criterion-003"))
    with evaluate.open_run(plan, jobs=1, out=tmp_path / "some") as store:
        assert list(calibrate.before_run(runs.of_run(plan, store, 1, shown))) == [
            f"calibration: all {len(found.checks)} checks passed"
        ]
        (said,) = calibrate.before_run(runs.of_run(plan, store, 1, shown))
        assert said == "calibration: made before the first trial, when the run was started"
        store.update_manifest({"calibration": None})
        monkeypatch.setattr(store, "sealed_ids", lambda: {"a"})
        late = runs.of_run(plan, store, 1, shown)
        assert isinstance(late, calibration.Without)
        assert late.refused
        assert [line.partition(",")[0] for line in calibrate.before_run(late)] == [
            "calibration: none",
            "the run will be exploratory; start a new one without --resume to have a calibration before it",
        ]
        assert not store.manifest["calibration"]


@contextmanager
def shown(what: str) -> Iterator[Step]:
    yield silent


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
