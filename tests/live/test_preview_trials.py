"""Whole trials of the shop that is really booted: every fault class in both arms, and agreement with the sim world."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.core.records import Event, SealedTrial, TrialRecord
from harness.live.executor import LiveExecutor
from harness.pool import run_trial_sim
from harness.schedule import TrialSpec
from harness.score import score
from harness.world.preview import chromium
from tests.browser import browser  # noqa: F401 (a fixture)
from tests.live.test_execution_live import sequence
from tests.live.test_trials import checked, spec
from workloads.oracles import ORACLES
from workloads.preview.facts import POOL, facts

pytestmark = pytest.mark.live

NAME = "preview"
ARMS = ("naive", "mesh")
FAULTS = (
    ("staging_crash", "effect_unacknowledged"),
    ("orchestrator_restart", "between_turns"),
    ("hung_check", "hung_after_work"),
    ("network_partition", "transport_limit"),
    ("provider_interruption", "rate_limited"),
    ("nondeterminism", "flip"),
)
ALL_FOUR = next(seed for seed in range(99) if facts(seed).defects == POOL)

Cell = tuple[str, str, str]
"""Arm, fault class and variant."""

Done = tuple[TrialRecord, list[Event], list[Event]]

QUIET: list[Cell] = [(arm, "none", "") for arm in ARMS]
STRUCK: list[Cell] = [(arm, *fault) for fault in FAULTS for arm in ARMS]
CONTRADICTORY = "tests.live.contradictory:CONTRADICTORY"


def trial(cell: Cell, world: str, workload: str = NAME) -> TrialSpec:
    one = spec(*cell, world)
    seed = ALL_FOUR if cell in QUIET else aimed(*cell[1:])
    return replace(one, workload=workload, seed=seed, id=f"{one.id}-{workload}")


@functools.cache
def aimed(fault: str, variant: str) -> int:
    """A seed with which a fault that strikes checks strikes the preview in both arms; for any other, some seed."""
    if fault not in ("hung_check", "nondeterminism"):
        return 3

    def strikes(arm: str, seed: int) -> bool:
        aimed_at = replace(spec(arm, fault, variant, "sim"), workload=NAME, seed=seed)
        fired = [e.data for e in run_trial_sim(aimed_at).truth if e.kind == "fault" and e.data["state"] == "fired"]
        return any(data["delegation"] == "delivery" and data["phase"] == "acceptance" for data in fired)

    return next(seed for seed in range(200) if all(strikes(arm, seed) for arm in ARMS))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Done]]:
    """Record, trace and truth of each trial, by its id, run once in the live world."""
    patch = pytest.MonkeyPatch()
    folder: Path = tmp_path_factory.mktemp("live")
    patch.setenv("TMPDIR", str(folder))
    executor = LiveExecutor(jobs=4, workers=1)
    for cell in (*QUIET, *STRUCK):
        executor.submit(trial(cell, "live"))
    if chromium.program():
        executor.submit(trial(QUIET[0], "live", CONTRADICTORY))
    done: dict[str, Done] = {}
    try:
        for finished in executor.results():
            assert finished.record is not None, finished.trouble
            done[finished.spec.id] = finished.record, list(finished.trace), list(finished.truth)
    finally:
        executor.close()
        patch.undo()
    yield done
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("cell", STRUCK, ids=lambda cell: f"{cell[0]} {cell[1]}")
def test_a_trial_with_a_fault_ends_valid_and_the_fault_is_seen(live: dict[str, Done], cell: Cell) -> None:
    record, trace, truth = live[trial(cell, "live").id]
    assert record.status == "ended", record.because
    assert record.exposure["fired"] >= 1
    assert record.exposure["observed"] == record.exposure["fired"]
    score(SealedTrial(record=record, trace=tuple(trace), truth=tuple(truth)), ORACLES[NAME])


@pytest.mark.parametrize("cell", QUIET, ids=lambda cell: cell[0])
def test_both_worlds_do_the_same_with_all_four_defects(live: dict[str, Done], cell: Cell) -> None:
    record, trace, truth = live[trial(cell, "live").id]
    sim = run_trial_sim(trial(cell, "sim"))
    for delegation in ("catalog", "orders", "delivery"):
        assert sequence(trace, delegation) == sequence(list(sim.trace), delegation), delegation
    assert checked(truth) == checked(list(sim.truth))
    scored = score(SealedTrial(record=record, trace=tuple(trace), truth=tuple(truth)), ORACLES[NAME])
    assert {f.status for f in scored.findings} == {"exactly_once"}
    assert scored.success


@pytest.mark.usefixtures("browser")
def test_a_trial_in_which_the_two_instruments_disagree_is_invalid_and_says_why(live: dict[str, Done]) -> None:
    record, _, _ = live[trial(QUIET[0], "live", CONTRADICTORY).id]
    assert record.status == "invalid"
    assert "nothing may be built on check preview" in record.because
    assert "in a browser" in record.because
