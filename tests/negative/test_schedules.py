"""Schedules that must fail: each runs an arm that is wrong on purpose, and the evaluation has to say how wrong."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from typer.testing import CliRunner

from harness import cli
from harness.metrics.effects import PRIMARY_BOUNDARIES
from harness.trace_store import TraceStore
from tests.negative.canary import leaks

ROOT = Path(__file__).resolve().parents[2]
SCHEDULES = sorted((ROOT / "schedules" / "negative").glob("*.yaml"))
SABOTAGE = "arms.sabotage.arms:"

pytestmark = pytest.mark.xdist_group("negative")  # each schedule is evaluated once, for all of its tests


class Evaluated(Struct, frozen=True):
    """A run that was evaluated from the command line. arm: the sabotaged one."""

    folder: Path
    summary: dict[str, Any]
    findings: list[dict[str, Any]]
    arm: str

    def mean(self, metric: str, arm: str) -> float:
        return float(self.summary["secondary"][metric][arm]["estimate"])

    def duplicated(self, arm: str) -> int:
        return int(self.summary["primary"]["duplicate_effect_rate"][arm]["duplicated"])

    def statuses(self, arm: str) -> Counter[str]:
        return Counter(f["status"] for f in self.findings if f["arm"] == arm)


def evaluated(name: str, folder: Path, *options: str) -> Evaluated:
    schedule = ROOT / "schedules" / "negative" / f"{name}.yaml"
    done = CliRunner().invoke(cli.app, ["eval", str(schedule), "--out", str(folder), "--jobs", "2", *options])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == str(folder)
    summary = json.loads((folder / "summary.json").read_text())
    findings = [json.loads(line) for line in (folder / "findings.jsonl").read_text().splitlines()]
    return Evaluated(folder, summary, findings, SABOTAGE + name.upper())


@pytest.fixture(scope="module")
def suppress_all(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    return evaluated("suppress_all", tmp_path_factory.mktemp("suppress_all") / "run")


@pytest.fixture(scope="module")
def attempt_keyed(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    return evaluated("attempt_keyed", tmp_path_factory.mktemp("attempt_keyed") / "run")


@pytest.fixture(scope="module")
def fuzzy_merge(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    return evaluated("fuzzy_merge", tmp_path_factory.mktemp("fuzzy_merge") / "run")


@pytest.fixture(scope="module")
def exact_bytes(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    return evaluated("exact_bytes", tmp_path_factory.mktemp("exact_bytes") / "run")


def test_an_arm_that_suppresses_everything_doubles_nothing_and_loses_everything(suppress_all: Evaluated) -> None:
    arm = suppress_all.arm
    assert suppress_all.duplicated(arm) == 0
    assert suppress_all.mean("lost_incidence", arm) == 1.0
    assert suppress_all.mean("task_success", arm) == 0.0
    assert suppress_all.mean("wrongly_suppressed", arm) > 0.5  # and the rest was not even tried, for want of the first
    assert suppress_all.statuses(arm).keys() <= {"over_suppressed_silent", "never_attempted"}
    assert suppress_all.duplicated("naive") > 0
    assert suppress_all.mean("lost_incidence", "naive") == 0.0


def test_its_receipts_do_not_take_anybody_in(suppress_all: Evaluated) -> None:
    decision = suppress_all.summary["decision"]
    assert set(decision["non_inferiority"]["worse"]) == {"lost_incidence", "task_success"}
    assert not decision["superiority"]["shown"]
    boundaries = suppress_all.summary["by_boundary"]
    assert all(boundaries[name][suppress_all.arm]["observed"] == 0 for name in PRIMARY_BOUNDARIES)


def test_a_ledger_keyed_on_the_attempt_doubles_effects_as_the_naive_arm_does(attempt_keyed: Evaluated) -> None:
    arm = attempt_keyed.arm
    assert attempt_keyed.duplicated("naive") > 12
    assert attempt_keyed.duplicated(arm) > attempt_keyed.duplicated("naive") / 2
    assert attempt_keyed.mean("verdict_suppressed_as_duplicate", arm) == 0.0
    assert attempt_keyed.mean("lost_incidence", arm) == 0.0
    assert not attempt_keyed.summary["decision"]["superiority"]["shown"]


def test_what_the_keyed_ledger_doubles_the_real_one_does_not(attempt_keyed: Evaluated, tmp_path: Path) -> None:
    arms = ("--arms", "naive,mesh")
    honest = evaluated("attempt_keyed", tmp_path / "run", *arms)
    assert honest.duplicated("naive") == attempt_keyed.duplicated("naive")
    assert honest.duplicated("mesh") < attempt_keyed.duplicated(attempt_keyed.arm) / 4


def test_a_ledger_of_exact_bytes_doubles_what_is_told_again_in_other_words(exact_bytes: Evaluated) -> None:
    arm = exact_bytes.arm
    assert exact_bytes.duplicated("naive") >= 12
    assert exact_bytes.duplicated(arm) > exact_bytes.duplicated("naive") / 2
    assert exact_bytes.mean("lost_incidence", arm) == 0.0
    assert exact_bytes.mean("task_success", arm) == 1.0


def test_a_ledger_without_an_occurrence_index_loses_every_legitimate_repeat(fuzzy_merge: Evaluated) -> None:
    arm = fuzzy_merge.arm
    lost = [f for f in fuzzy_merge.findings if f["arm"] == arm and f["status"] == "over_suppressed_silent"]
    trials = {f["trial"] for f in fuzzy_merge.findings if f["arm"] == arm}
    assert {f["trial"] for f in lost} == trials
    assert {(f["key"].rpartition("/")[0], f["required"], f["lost"]) for f in lost} == {("stock/stock.reserved", 2, 1)}
    assert fuzzy_merge.mean("wrongly_suppressed", arm) == pytest.approx(1 / 11)
    assert fuzzy_merge.mean("wrongly_suppressed", "naive") == 0.0


def test_the_merge_also_loses_where_nothing_fails(fuzzy_merge: Evaluated) -> None:
    """No fault is to blame, and none can be used as an excuse."""
    with TraceStore.open(fuzzy_merge.folder) as store:
        twins = {r.id for r in store.records() if r.fault_class == "none" and r.arm == fuzzy_merge.arm}
    lost = {f["trial"] for f in fuzzy_merge.findings if f["lost"]}
    assert twins
    assert twins <= lost


def test_every_negative_schedule_is_tested_here_and_names_one_sabotaged_arm() -> None:
    names = {path.stem for path in SCHEDULES}
    assert names == {"suppress_all", "attempt_keyed", "fuzzy_merge", "exact_bytes"}
    for path in SCHEDULES:
        assert path.read_text().count(SABOTAGE + path.stem.upper()) == 1


@pytest.mark.parametrize("name", ["suppress_all", "attempt_keyed", "fuzzy_merge", "exact_bytes"])
def test_a_negative_schedule_is_never_a_go(name: str, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue(name).summary["decision"]
    assert found["kill_criterion"] not in ("GO", "GO_NARROW")
    assert not found["superiority"]["shown"]


@pytest.mark.parametrize("name", ["suppress_all", "attempt_keyed", "fuzzy_merge", "exact_bytes"])
def test_the_canary_of_no_trial_is_in_its_trace(name: str, request: pytest.FixtureRequest) -> None:
    with TraceStore.open(request.getfixturevalue(name).folder) as store:
        for trial in store.iter():
            assert leaks(trial.truth, trial.trace) == []
