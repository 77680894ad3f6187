"""Where the status of a run is looked at again: when it is begun, continued and ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import evaluate, seal, status
from harness.evaluate import Overrides
from harness.manifest import manifest
from harness.seal import CODE
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
    monkeypatch.setattr(status, "runs_with_seed", lambda seed, results: ("results/main/earlier",))
    live, sim = (confirmed(evaluate.plan(path)) for path in (SMOKE, SIM))
    found = evaluate._for_the_first_time(live)
    assert found is not None
    assert found["status"]["because"] == ("its seed was run before, in results/main/earlier",)
    assert evaluate._for_the_first_time(sim) == sim.registration


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
