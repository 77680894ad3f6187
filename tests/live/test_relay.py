"""The relay with real processes: checkpoints across them, receipts, and agreement with the sim world."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.core.records import Event
from harness.live.executor import LiveExecutor
from harness.pool import run_trial_sim
from harness.schedule import TrialSpec
from tests.live.test_trials import sequence, spec
from workloads.relay.facts import COMPONENTS, facts

pytestmark = pytest.mark.live

FLOW_FIRST = next(seed for seed in range(100) if facts(seed).flow_first)
WAKING = "tests.sim.wakingarms:FIRST_MISSING"
CELLS = [("naive", 2), ("mesh", 4), ("naive", FLOW_FIRST), ("mesh", FLOW_FIRST), (WAKING, 0), (WAKING, 19)]


def relay(arm: str, seed: int, world: str) -> TrialSpec:
    one = spec(arm, "none", "", world)
    limits = replace(one.limits, tokens=900_000)
    return replace(one, workload="relay", seed=seed, id=f"{arm}-{seed}", limits=limits)


Logs = dict[tuple[str, int], tuple[list[Event], list[Event]]]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logs]:
    """Trace and truth of each cell, run once in the live world."""
    patch = pytest.MonkeyPatch()
    folder: Path = tmp_path_factory.mktemp("live")
    patch.setenv("TMPDIR", str(folder))
    executor = LiveExecutor(jobs=2, workers=1)
    for cell in CELLS:
        executor.submit(relay(*cell, "live"))
    done: Logs = {}
    try:
        for finished in executor.results():
            assert finished.record is not None, finished.trouble
            assert (finished.record.status, finished.record.because) == ("ended", "")
            done[finished.spec.arm, finished.spec.seed] = list(finished.trace), list(finished.truth)
    finally:
        executor.close()
        patch.undo()
    yield done
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("cell", CELLS)
def test_sim_and_live_agree_per_delegation(live: Logs, cell: tuple[str, int]) -> None:
    trace = live[cell][0]
    sim = list(run_trial_sim(relay(*cell, "sim")).trace)
    for delegation in (*COMPONENTS, *(f"repair/{c}" for c in COMPONENTS), "acceptance"):
        assert sequence(trace, delegation) == sequence(sim, delegation), delegation


@pytest.mark.parametrize("cell", CELLS)
def test_the_models_drift_alike_in_both_worlds(live: Logs, cell: tuple[str, int]) -> None:
    def drifted(truth: list[Event]) -> set[tuple]:
        billed = [e.data for e in truth if e.kind == "billed"]
        return {(data["site"], data["nth"]) for data in billed if data.get("drifting")}

    assert drifted(live[cell][1]) == drifted(list(run_trial_sim(relay(*cell, "sim")).truth))


@pytest.mark.parametrize("cell", CELLS)
def test_the_truth_names_the_defective_components_and_the_models(live: Logs, cell: tuple[str, int]) -> None:
    truth = live[cell][1]
    assert [e.data["components"] for e in truth if e.kind == "defective"] == [list(facts(cell[1]).defective)]
    assert all(e.data["model"] for e in truth if e.kind == "billed")


@pytest.mark.parametrize("cell", CELLS)
def test_receipts_are_three_digests_and_a_workspace_that_did_not_change_has_one(
    live: Logs, cell: tuple[str, int]
) -> None:
    for trace in (live[cell][0], list(run_trial_sim(relay(*cell, "sim")).trace)):
        runs = {e.data["call_id"]: e.data for e in trace if e.kind == "call" and e.data.get("tool") == "run_check"}
        got = {e.data["call_id"]: e.data["receipt"] for e in trace if e.kind == "outcome" and e.data["call_id"] in runs}
        assert all(len(receipt.split("|")) == 3 for receipt in got.values())
        first = [got[id] for id, run in runs.items() if run["args"]["check"] == "acceptance" and run["attempt"] == 1]
        assert len(set(first)) in (0, 1)
        assert len(set(got.values())) > 10


def test_events_accumulate_on_the_naive_side_alone(live: Logs) -> None:
    def queued(arm: str) -> int:
        truth = live[arm, FLOW_FIRST][1]
        return sum(e.kind == "effect" and e.data.get("stream") == "mail" for e in truth)

    assert queued("naive") > 5
    assert queued("mesh") == 1


@pytest.mark.parametrize("seed", [0, 19])
def test_processes_report_the_checkpoints_that_the_sim_world_says(live: Logs, seed: int) -> None:
    def told(trace: list[Event]) -> list[dict]:
        notes = [e.data for e in trace if e.kind == "note" and e.data["note"] == "answer"]
        return sorted(notes, key=lambda note: note["check"])  # delegations side by side have no order

    trace = live[WAKING, seed][0]
    assert told(trace) == told(list(run_trial_sim(relay(WAKING, seed, "sim")).trace))
    before, *_, after = (one for one in told(trace) if one["check"] == "acceptance")
    assert len(before["failing"]) == len(facts(seed).defective)
    assert (after["failing"], len(after["points"])) == ([], 15)
