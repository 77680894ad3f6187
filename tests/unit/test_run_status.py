"""Where the status of a run is looked at again: when it is begun, continued and ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import evaluate, seal, seeds
from harness.evaluate import Overrides
from harness.manifest import manifest
from harness.seal import CODE
from harness.seeds import SeedRun
from harness.status import read_status
from harness.trace_store import TraceStore

ROOT = Path(__file__).resolve().parents[2]
SMOKE, SIM = ROOT / "schedules" / "smoke.yaml", ROOT / "schedules" / "sim.yaml"


def confirmed(plan: Any) -> Any:
    """The plan as if its registration were sealed and everything as it was."""
    assert plan.registration is not None
    plan.registration["status"] = {"confirmatory": True, "because": []}
    return plan


def store(tmp_path: Path, plan: Any, **noted: Any) -> TraceStore:
    return TraceStore.create(tmp_path / "run", {**manifest(plan.schedule, plan.registration, {}, 1), **noted})


def test_a_second_live_run_of_a_seed_says_so_and_a_simulated_one_need_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "runs_with_seed", lambda seed, results, apart_from: (SeedRun("results/main/earlier"),))
    live, sim = (confirmed(evaluate.plan(path)) for path in (SMOKE, SIM))
    found = evaluate._for_the_first_time(live)
    assert found is not None
    assert found["status"]["because"] == ("its seed was run before, in results/main/earlier",)
    found = evaluate._for_the_first_time(sim)
    assert found is not None
    assert found["status"] == {"confirmatory": True, "because": ()}


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like a fresh clone: of all runs, there are only the released ones."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def release(clone: Path, held: TraceStore) -> None:
    """Hand out the manifest of a run, as the reference run is."""
    (clone / "results" / "reference").mkdir(parents=True, exist_ok=True)
    (clone / "results" / "reference" / "manifest.json").write_bytes((held.folder / "manifest.json").read_bytes())


def test_a_run_of_a_released_registration_on_another_clone_is_exploratory(clone: Path) -> None:
    plan = confirmed(evaluate.plan(SMOKE))
    with evaluate.open_run(plan, jobs=1, out=clone / "elsewhere" / "first") as first:
        assert read_status(first.manifest).confirmatory
        release(clone, first)
    with evaluate.open_run(plan, jobs=1, out=clone / "second") as second:
        (reason,) = read_status(second.manifest).because
    assert reason == "a run of its seed is released already, in results/reference"


def test_a_run_that_is_the_released_one_stays_what_it_was(clone: Path) -> None:
    plan = confirmed(evaluate.plan(SMOKE))
    with evaluate.open_run(plan, jobs=1, out=clone / "run") as held:
        release(clone, held)
    with evaluate.open_run(plan, jobs=1, out=clone / "run", resume=True) as held:
        assert read_status(held.manifest).confirmatory


def test_a_run_is_continued_after_another_of_its_seed_was_released(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = confirmed(evaluate.plan(SMOKE))
    with evaluate.open_run(plan, jobs=1, out=clone / "run"):
        pass
    monkeypatch.setattr("harness.manifest.wall_iso", lambda: "2026-12-01T00:00:00Z")
    with evaluate.open_run(plan, jobs=1, out=clone / "elsewhere" / "other") as other:
        release(clone, other)
    for _ in range(2):  # and says so once
        with evaluate.open_run(plan, jobs=1, out=clone / "run", resume=True) as held:
            (reason,) = read_status(held.manifest).because
    assert reason == "when the run was continued: a run of its seed is released already, in results/reference"


def test_code_that_changed_while_the_run_went_on_is_noted_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = confirmed(evaluate.plan(SIM))
    with store(tmp_path, plan) as held:
        evaluate._note_end(plan, held)
        assert read_status(held.manifest).confirmatory
        real = seal.sources()
        monkeypatch.setattr(seal, "sources", lambda: {**real, "arms": {"arms/bare.py": "5" * 64}})
        evaluate._note_end(plan, held)
        assert read_status(held.manifest).because == ("arms was changed while the run went on",)
    assert "arms" in CODE


def test_trials_that_were_lost_after_the_end_are_noted_when_they_are_run_again(tmp_path: Path) -> None:
    plan = confirmed(evaluate.plan(SIM, Overrides(pairs=1, arms=("naive", "mesh"))))
    with store(tmp_path, plan, ended="2026-01-01T00:00:00Z") as held:
        evaluate._note_status(plan, held)
        (reason,) = read_status(held.manifest).because
    assert reason == f"{len(plan.specs)} trials were lost after the run had ended, and were run again"
