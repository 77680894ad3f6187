"""A run ends as soon as its rule allows, at a pair that no number of workers and no interruption can move."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import analysis, evaluate
from harness.core.errors import ConfigError, HarnessBug
from harness.evaluate import Overrides
from harness.report.provenance import without_provenance
from harness.watching import Judge
from tests.sim.test_resume import ROOT, SCHEDULE, Harness, until

DERIVED = ("findings.jsonl", "rows.jsonl", "metrics.csv", "summary.json", "report.md", "report.html")
PAIRS, LEAST = 40, 6


@pytest.fixture
def schedule(tmp_path: Path) -> Path:
    """A registration whose threshold is so low that harm is material after a few pairs."""
    text = (ROOT / "schedules/prereg/kill-criterion-001.yaml").read_text()
    low = text.replace("duplicate_effect_rate: 0.01 ", "duplicate_effect_rate: 0.0002 ")
    assert low != text
    registration = tmp_path / "registration.yaml"
    registration.write_text(low.replace("pairs_min: 60", f"pairs_min: {LEAST}"))
    path = tmp_path / "schedule.yaml"
    named = SCHEDULE.replace("schedules/prereg/kill-criterion-001.yaml", str(registration))
    path.write_text(named.replace("pairs: 8", f"pairs: {PAIRS}").replace("[naive, mesh, journaled]", "[naive, mesh]"))
    return path


def held(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def derived(folder: Path) -> dict[str, bytes]:
    found = {name: (folder / name).read_bytes() for name in DERIVED}
    return {**found, "report.html": without_provenance(found["report.html"])}


def test_a_run_ends_where_its_rule_says_whatever_was_run_beyond(schedule: Path, tmp_path: Path) -> None:
    runs = {}
    for jobs in ("1", "3"):
        runs[jobs] = tmp_path / jobs
        Harness(runs[jobs], schedule, "--until", "kill_criterion", "--jobs", jobs).end()
    summary = held(runs["1"] / "run", "summary.json")
    stopping = summary["stopping"]
    assert LEAST <= stopping["stop_at"] == stopping["stopped_at"] == summary["pairs"] < PAIRS
    assert summary["decision"]["kill_criterion"] == "GO"
    assert summary["decision"]["decided_at_pair"] == summary["pairs"]
    assert derived(runs["1"] / "run") == derived(runs["3"] / "run")
    rows = [json.loads(line) for line in (runs["3"] / "run" / "rows.jsonl").read_text().splitlines()]
    assert max(row["index"] for row in rows) == summary["pairs"] - 1


def test_a_killed_run_ends_at_the_very_pair_of_one_that_was_not(schedule: Path, tmp_path: Path) -> None:
    whole = Harness(tmp_path / "a", schedule, "--until", "kill_criterion", "--jobs", "2")
    whole.end()
    killed = Harness(tmp_path / "b", schedule, "--until", "kill_criterion", "--jobs", "2")
    killed.kill(3)
    until(lambda: not killed.processes())  # the judge leaves with it, too
    killed.end("--resume")
    assert derived(killed.out) == derived(whole.out)
    before = killed.sealed()
    killed.end("--resume")  # it ended: nothing is run again, and nothing changes
    assert killed.sealed() == before
    assert derived(killed.out) == derived(whole.out)


def test_a_run_that_was_cut_where_it_pleased_somebody_is_invalid(schedule: Path, tmp_path: Path) -> None:
    run = Harness(tmp_path / "a", schedule, "--until", "kill_criterion", "--jobs", "2")
    run.end()
    right = held(run.out, "summary.json")["pairs"]
    manifest = held(run.out, "manifest.json")
    manifest["stopping"]["stopped_at"] = right - 1
    (run.out / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    analysis.score(run.out, lambda *_: None)
    decision = analysis.report(run.out)["decision"]
    assert decision["kill_criterion"] == "INVALID"
    assert any(f"ended after pair {right - 1}" in reason for reason in decision["failed_gates"])


def test_a_judge_whose_run_is_dead_leaves_without_a_word(schedule: Path, tmp_path: Path) -> None:
    run = Harness(tmp_path / "a", schedule, "--until", "kill_criterion", "--jobs", "2")
    run.end()
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "harness.judge", str(run.out), "kill_criterion"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE, cwd=ROOT)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_run_is_not_continued_by_another_rule(schedule: Path, tmp_path: Path) -> None:
    run = Harness(tmp_path / "a", schedule, "--until", "kill_criterion", "--jobs", "2")
    run.end()
    plan = evaluate.plan(schedule, Overrides(until="all_pairs"), judged=True)
    with pytest.raises(ConfigError, match="kill_criterion"):
        evaluate.open_run(plan, jobs=2, out=run.out, resume=True)


def test_unknown_rules_and_rules_without_a_registration_are_refused(schedule: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="full_claim"):
        evaluate.plan(schedule, Overrides(until="ful_claim"))
    bare = tmp_path / "bare.yaml"
    bare.write_text("".join(x for x in schedule.read_text().splitlines(True) if "preregistration" not in x))
    with pytest.raises(ConfigError, match="needs a preregistration"):
        evaluate.plan(bare, Overrides(until="full_claim"))


def test_a_judge_that_fails_is_a_failure_of_the_harness_and_no_decision(tmp_path: Path) -> None:
    judge = Judge(tmp_path / "no run here", "kill_criterion")
    try:
        with pytest.raises(HarnessBug, match="judge"):
            judge.conclude()
    finally:
        judge.close()
