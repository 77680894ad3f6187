"""The tree with real processes: what its hops hand up, and how they are verified, is what it is in the sim world."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.core.records import ScoredTrial, SealedTrial
from harness.live.executor import LiveExecutor
from harness.pool import run_trial_sim
from harness.runner import Result
from harness.schedule import TrialSpec
from harness.score import score
from tests.live.test_trials import sequence, spec
from workloads.brief_tree.facts import HOPS, ROOT, Parameters, facts
from workloads.brief_tree.oracle import ORACLE

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-trials")]


def troubled(seed: int) -> bool:
    """Whether the verifier of some hop is right to complain and another one is not."""
    f = facts(seed, Parameters())
    slips = {f.slip(hop, 0, 0) for hop in f.verified}
    return bool(slips & {"no_date", "extra"}) and "unsorted" in slips and not f.wrong


SEED = next(seed for seed in range(2000) if troubled(seed))
CELLS = ("naive", "mesh")


def tree(arm: str, world: str) -> TrialSpec:
    one = spec(arm, "none", "", world)
    limits = replace(one.limits, tokens=900_000, lag_ms=60_000)
    return replace(one, workload="brief_tree", seed=SEED, id=f"{arm}-{SEED}", limits=limits)


def judged(result: Result) -> ScoredTrial:
    return score(SealedTrial(record=result.record, trace=tuple(result.trace), truth=tuple(result.truth)), ORACLE)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ScoredTrial]]:
    """The trial of each arm, run once in the live world."""
    patch = pytest.MonkeyPatch()
    folder: Path = tmp_path_factory.mktemp("live")
    patch.setenv("TMPDIR", str(folder))
    executor = LiveExecutor(jobs=1, workers=1)
    for arm in CELLS:
        executor.submit(tree(arm, "live"))
    done: dict[str, ScoredTrial] = {}
    try:
        for finished in executor.results():
            assert finished.record is not None, finished.trouble
            assert (finished.record.status, finished.record.because) == ("ended", "")
            trial = SealedTrial(record=finished.record, trace=tuple(finished.trace), truth=tuple(finished.truth))
            done[finished.spec.arm] = score(trial, ORACLE)
    finally:
        executor.close()
        patch.undo()
    yield done
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("arm", CELLS)
def test_sim_and_live_agree_on_every_hop(live: dict[str, ScoredTrial], arm: str) -> None:
    sim = judged(run_trial_sim(tree(arm, "sim")))
    assert live[arm].hops == sim.hops
    assert [f.status for f in live[arm].findings] == ["exactly_once"] * 11
    assert live[arm].success == sim.success
    for delegation in (*HOPS, ROOT):
        assert sequence(list(live[arm].trial.trace), delegation) == sequence(list(sim.trial.trace), delegation)


def test_real_verifiers_complain_of_a_mistake_and_of_none(live: dict[str, ScoredTrial]) -> None:
    flagged = [one.brief_satisfied for one in live["naive"].hops if one.flagged]
    assert set(flagged) == {True, False}
