"""Whole trials of the generated shop on virtual time: what each arm makes of green builds that do not work."""

from __future__ import annotations

import functools

import pytest
from msgspec.structs import replace

from faults import FAULTS
from harness.core.records import Event, ScoredTrial, SealedTrial
from harness.pool import run_trial_sim
from harness.runner import Result
from harness.schedule import TrialSpec
from harness.score import score
from tests.sim.test_trials import digest, effects, spec
from workloads.oracles import ORACLES
from workloads.preview.facts import TARGET, facts

NAME = "preview"
SEEDS = range(12)


def shop(arm: str, fault: str = "none", variant: str = "", seed: int = 1, level: int = 3) -> TrialSpec:
    return replace(spec(arm, fault, variant, seed), workload=NAME, variation=level)


@functools.cache
def run(arm: str, seed: int) -> Result:
    return run_trial_sim(shop(arm, seed=seed))


def judged(result: Result) -> ScoredTrial:
    sealed = SealedTrial(record=result.record, trace=tuple(result.trace), truth=tuple(result.truth))
    return score(sealed, ORACLES[NAME])


def came_to(truth: list[Event], check: str) -> list[bool]:
    return [e.data["passed"] for e in truth if e.kind == "checked" and e.data["check"] == check]


def edits(trace: list[Event]) -> int:
    """How many places an agent mended."""
    return sum(mode == "edit" for e in trace if e.kind == "turn" for _, _, mode in e.data["writes"])


@pytest.mark.parametrize("arm", ["bare", "naive", "naive_contained", "journaled", "journaled_probe", "mesh"])
def test_without_faults_every_arm_has_the_twelve_effects_once_and_does_the_task(arm: str) -> None:
    for seed in SEEDS:
        result = run(arm, seed)
        scored = judged(result)
        assert (result.record.status, len(effects(result.truth)), scored.success) == ("ended", 12, True)
        assert {f.status for f in scored.findings} == {"exactly_once"}


@pytest.mark.parametrize("arm", ["naive", "mesh"])
@pytest.mark.parametrize("level", range(6))
def test_every_variation_level_words_the_same_effects(arm: str, level: int) -> None:
    for seed in range(4):
        scored = judged(run_trial_sim(shop(arm, seed=seed, level=level)))
        assert scored.success
        assert {f.status for f in scored.findings} == {"exactly_once"}


def test_a_trial_costs_what_the_others_cost() -> None:
    billed = [judged(run("naive", seed)).work.billed for seed in SEEDS]
    assert 20_000 < sum(billed) / len(billed) < 30_000


@pytest.mark.parametrize("arm", ["naive", "mesh"])
def test_every_build_is_green_and_the_acceptance_finds_what_was_planted(arm: str) -> None:
    for seed in SEEDS:
        result = run(arm, seed)
        assert all(came_to(result.truth, check) == [True] for check in ("build", "unit_catalog", "unit_orders"))
        runs = came_to(result.truth, "preview")
        assert len(runs) in ((2,) if arm == "naive" else (2, 3))  # the mesh may ask again before it believes a red
        assert (any(runs[:-1]), runs[-1]) == (False, True)
        assert edits(list(result.trace)) == len(facts(seed).defects)


@pytest.mark.parametrize(("fault", "variant"), [(f, v) for f, c in FAULTS.items() for v in c.variants])
def test_every_variant_fires_and_is_seen_by_the_side_that_suffers(fault: str, variant: str) -> None:
    for arm in ("naive", "mesh"):
        for seed in range(2):
            result = run_trial_sim(shop(arm, fault, variant, seed))
            exposure = result.record.exposure
            assert result.record.status == "ended"
            assert exposure["fired"] >= 1
            assert exposure["observed"] == exposure["fired"]
            assert not [e for e in result.trace if e.kind == "arm_error"]


def test_same_seed_same_bytes() -> None:
    for arm in ("naive", "mesh"):
        assert digest(run(arm, 3)) == digest(run_trial_sim(shop(arm, seed=3)))


def test_a_shop_that_is_believed_to_work_and_does_not_is_no_success() -> None:
    """A preview whose verdict is turned lets a defect through in some arm; the oracle is not told so by the check."""
    flipped = []
    for seed in range(40):
        result = run_trial_sim(shop("naive", "nondeterminism", "flip", seed))
        runs = came_to(result.truth, "preview")
        if runs and not runs[-1]:
            flipped.append(judged(result).success)
    assert flipped
    assert not any(flipped)


def test_the_mark_of_a_test_is_the_preview_s() -> None:
    assert all(defect.test.startswith(f"{TARGET}::") for seed in SEEDS for defect in facts(seed).defects)
