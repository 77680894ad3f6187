"""The four kinds of defect: a seed gives each, both arms mend it in the sim world, and a repair that fails is seen."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from harness.core.records import ScoredTrial, SealedTrial
from harness.pool import run_trial_sim
from harness.schedule import Limits, TrialSpec
from harness.score import score
from workloads.repository_mutation import packages, script
from workloads.repository_mutation.facts import FAMILIES, facts
from workloads.repository_mutation.operators import Mutant
from workloads.repository_mutation.oracle import ORACLE
from workloads.repository_mutation.prepare import prepare
from workloads.repository_mutation.task import REPOSITORY_MUTATION

ARMS = ("naive", "mesh")
TOKENS = range(15_000, 26_000)
"""What a trial costs in which nothing fails."""

SPEC = TrialSpec(
    schedule="test",
    index=0,
    workload="repository_mutation",
    arm="naive",
    world="sim",
    mode="tdd",
    variation=3,
    seed=0,
    fault_class="none",
    faults=(),
    limits=Limits(nominal_ms=1_800_000, lag_ms=100_000),
    time_scale=1.0,
    settle_ms=300_000,
    idempotency_keys=False,
    pair="p",
    id="i",
)


@pytest.fixture(scope="module")
def seeds() -> dict[str, int]:
    """A seed of each family."""
    prepare()
    return {facts(seed).family: seed for seed in reversed(range(60))}


def played(arm: str, seed: int, variation: int = 3) -> ScoredTrial:
    result = run_trial_sim(replace(SPEC, arm=arm, seed=seed, variation=variation))
    return score(SealedTrial(record=result.record, trace=tuple(result.trace), truth=tuple(result.truth)), ORACLE)


def edited(trial: ScoredTrial) -> dict[str, list[str]]:
    """The files that each delegation edited, in order, with what was refused."""
    found: dict[str, list[str]] = {}
    for event in trial.trial.trace:
        if event.kind == "call" and event.data.get("tool") == "edit":
            found.setdefault(event.data["site"]["delegation"], []).append(event.data["args"]["path"])
    return found


def paths(*mutants: Mutant) -> list[str]:
    return [m.path for m in mutants]


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("family", FAMILIES)
def test_both_arms_mend_every_family_at_every_level_and_the_judge_says_so(
    seeds: dict[str, int], family: str, arm: str
) -> None:
    for variation in range(6):
        trial = played(arm, seeds[family], variation)
        assert (trial.trial.record.status, trial.success) == ("ended", True), variation
        assert Counter(f.status for f in trial.findings) == {"exactly_once": 12}
        assert trial.work.billed in TOKENS


@pytest.mark.parametrize("arm", ARMS)
def test_two_defects_of_one_delegation_are_both_its_own(seeds: dict[str, int], arm: str) -> None:
    f = facts(seeds["multi_file"])
    assert edited(played(arm, seeds["multi_file"])) == {"mend": paths(*f.mend)}
    assert len(f.mend) == 2


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("family", ["routing", "wrong_test"])
def test_two_components_mend_one_defect_each(seeds: dict[str, int], family: str, arm: str) -> None:
    f = facts(seeds[family])
    assert edited(played(arm, seeds[family])) == {"mend": paths(*f.mend), "review": paths(*f.review)}
    assert packages.within(f.review[0].path, f.locked.tests) is (family == "wrong_test")


def test_a_clamp_of_the_mesh_yields_when_it_is_asked_again(seeds: dict[str, int]) -> None:
    f, free, clamped = facts(seeds["clamp"]), played("naive", seeds["clamp"]), played("mesh", seeds["clamp"])
    assert f.diagnosed != f.mend[0].path
    assert edited(free) == {"mend": paths(*f.mend)}
    assert edited(clamped) == {"mend": paths(*f.mend) * 2}
    assert free.verdicts.keys() == {"executed"}
    assert clamped.verdicts["rejected-by-gate"] == 1


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_agent_that_mends_nothing_is_told_from_one_that_does(
    seeds: dict[str, int], family: str, arm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "mending", lambda original, mutant: ("\n", "\n"))
    trial = played(arm, seeds[family])
    assert trial.trial.record.status == "ended"
    assert trial.success is False
    assert {f.boundary for f in trial.findings if f.status == "never_attempted"} >= {"repository", "transport"}


def test_a_branch_of_the_review_has_all_that_was_mended_so_far(seeds: dict[str, int]) -> None:
    for family in ("routing", "wrong_test"):
        task = REPOSITORY_MUTATION.task(seeds[family], 3)
        f = facts(seeds[family])
        trial = played("naive", task.seed)
        pushes = [e.data for e in trial.trial.truth if e.kind == "effect" and e.data["boundary"] == "repository"]
        tree = {p["ref"]: p["tree"] for p in pushes}
        assert tree[f"refs/heads/{f.branch('review')}"] == tree["refs/heads/main"]
        assert tree[f"refs/heads/{f.branch('mend')}"] != tree["refs/heads/main"]
