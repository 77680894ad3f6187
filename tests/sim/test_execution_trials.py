"""Whole trials of the test laboratory on virtual time: suites with a temper, and what each arm makes of them."""

from __future__ import annotations

import functools
import hashlib
import itertools

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
from workloads.test_execution.facts import COMPONENTS, LATENT, SUITES, UNITS, facts
from workloads.test_execution.repository import SERVICES, SOURCE_PATH
from workloads.test_execution.task import UNTIL_KILLED

NAME = "test_execution"
STUCK = "workloads.test_execution.task:UNTIL_KILLED"
STRICT = "arms.naive.grid:SHORT_TIMEOUTS"
SEEDS = range(12)


def laboratory(arm: str, fault: str = "none", variant: str = "", seed: int = 1, workload: str = NAME) -> TrialSpec:
    return replace(spec(arm, fault, variant, seed), workload=workload)


@functools.cache
def run(arm: str, seed: int, workload: str = NAME) -> Result:
    return run_trial_sim(laboratory(arm, seed=seed, workload=workload))


def judged(result: Result) -> ScoredTrial:
    sealed = SealedTrial(record=result.record, trace=tuple(result.trace), truth=tuple(result.truth))
    return score(sealed, ORACLES[NAME])


def verdicts(trace: list[Event]) -> set[str]:
    return {e.data["verdict"] for e in trace if e.kind == "outcome"}


def came_to(truth: list[Event], check: str) -> list[bool]:
    return [e.data["passed"] for e in truth if e.kind == "checked" and e.data["check"] == check]


def kinds(seed: int) -> dict[str, str]:
    return {component: facts(seed).tempers[target].kind for component, target in SUITES.items()}


# --- the harness --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["bare", "naive", "naive_contained", "journaled", "journaled_probe", "mesh"])
def test_without_faults_every_arm_has_the_twelve_effects_once_and_does_the_task(arm: str) -> None:
    for seed in SEEDS:
        result = run(arm, seed)
        scored = judged(result)
        assert (result.record.status, len(effects(result.truth)), scored.success) == ("ended", 12, True)
        assert {f.status for f in scored.findings} == {"exactly_once"}


def test_a_trial_costs_what_the_others_cost() -> None:
    billed = [judged(run("naive", seed)).work.billed for seed in SEEDS]
    assert 20_000 < sum(billed) / len(billed) < 35_000


@pytest.mark.parametrize(("fault", "variant"), [(f, v) for f, c in FAULTS.items() for v in c.variants])
def test_every_variant_fires_and_is_seen_by_the_side_that_suffers(fault: str, variant: str) -> None:
    for arm in ("naive", "mesh"):
        for seed in range(2):
            result = run_trial_sim(laboratory(arm, fault, variant, seed))
            exposure = result.record.exposure
            assert result.record.status == "ended"
            assert exposure["fired"] >= 1
            assert exposure["observed"] == exposure["fired"]
            assert not [e for e in result.trace if e.kind == "arm_error"]


def test_same_seed_same_bytes() -> None:
    for arm in ("naive", "mesh"):
        assert digest(run(arm, 3)) == digest(run_trial_sim(laboratory(arm, seed=3)))


# --- suites with a temper -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["naive", "mesh"])
def test_a_flaky_suite_fails_in_the_runs_that_were_drawn_in_every_arm(arm: str) -> None:
    reds = 0
    for seed in SEEDS:
        component = next(c for c, kind in kinds(seed).items() if kind == "flaky")
        fails_on = facts(seed).tempers[SUITES[component]].fails_on
        seen = came_to(run(arm, seed).truth, f"suite_{component}")
        assert seen == [nth not in fails_on for nth in range(1, len(seen) + 1)]
        reds += seen.count(False)
    assert reds >= 2


def test_numbers_of_runs_go_on_over_restarts() -> None:
    seen = []
    for seed in range(8):
        result = run_trial_sim(laboratory("naive", "nondeterminism", "flip", seed))
        fails_on = facts(seed).tempers[UNITS["shop"]].fails_on
        boots = came_to(result.truth, "unit_shop")
        seen += [passed for nth, passed in enumerate(boots, 1) if nth in fails_on]
    assert seen
    assert not any(seen)


def test_the_mesh_takes_flaky_suites_for_what_they_are_and_suppresses_the_repeats() -> None:
    quarantined = [seed for seed in SEEDS if "quarantined" in verdicts(run("mesh", seed).trace)]
    assert quarantined
    assert all(verdicts(run("naive", seed).trace) == {"executed"} for seed in SEEDS)


def test_nobody_ends_a_healthy_suite_but_a_guard_that_is_too_strict() -> None:
    ended = {"timed-out", "refused-as-stalled"}
    assert not any(verdicts(run(arm, seed).trace) & ended for arm in ("naive", "mesh") for seed in SEEDS)
    strict = [seed for seed in SEEDS if verdicts(run(STRICT, seed).trace) & ended]
    assert 0 < len(strict) < len(SEEDS)


def test_ending_a_healthy_suite_after_its_work_has_effects_twice() -> None:
    assert any(len(effects(run(STRICT, seed).truth)) > 12 for seed in SEEDS)


def test_an_order_dependent_suite_is_mended_where_it_met_the_order_and_green_elsewhere() -> None:
    mended = {}
    for seed in SEEDS:
        last = {e.data["delegation"]: e.data["files"] for e in run("naive", seed).trace if e.kind == "checkpoint"}
        right = hashlib.sha256(SERVICES["payments"].encode()).hexdigest()
        mended[seed] = last["payments"][SOURCE_PATH["payments"]] == right
        if 1 in facts(seed).tempers[UNITS["payments"]].reversed_on:
            assert mended[seed], LATENT.test
    assert set(mended.values()) == {True, False}


def test_a_suite_that_accepts_one_event_never_passes_again_once_it_has_seen_two() -> None:
    """After a crash between the event and its record, naive publishes it anew, and the mesh does not."""

    def struck(seed: int) -> bool:
        truth = run_trial_sim(laboratory("naive", "staging_crash", "effect_unrecorded", seed)).truth
        fired = [e.data for e in truth if e.kind == "fault" and e.data["state"] == "fired"]
        return any(data["delegation"] == "mail" and data["name"] == "transport" for data in fired)

    seeds = list(itertools.islice((seed for seed in range(60) if struck(seed)), 2))
    assert seeds
    for seed in seeds:
        naive, mesh = (
            run_trial_sim(laboratory(arm, "staging_crash", "effect_unrecorded", seed)) for arm in ("naive", "mesh")
        )
        letters = [e for e in naive.truth if e.kind == "effect" and e.data.get("stream") == "mail"]
        assert len(letters) > 1
        assert not any(came_to(naive.truth, "suite_mail"))
        assert not judged(naive).success
        assert came_to(mesh.truth, "suite_mail")[-1]
        mailed = [f for f in judged(mesh).findings if f.key.startswith("mail/")]
        assert [f.status for f in mailed] == ["exactly_once"]


def test_the_hook_leaves_a_checksum_beside_the_manifest_which_is_committed() -> None:
    for arm in ("naive", "mesh"):
        trace, where = run(arm, 2).trace, facts(2).hook_in
        files = [e.data["files"] for e in trace if e.kind == "checkpoint" and e.data["delegation"] == where][-1]
        checksum = f"{files[f'{where}/manifest.json']}\n"
        assert files[f"{where}/manifest.sha256"] == hashlib.sha256(checksum.encode()).hexdigest()


# --- suites that never return -------------------------------------------------------------------------------------


def stuck(seed: int) -> tuple[bool, bool]:
    """Whether the suite that never returns has done its work by then, and whether it shows signs of life."""
    found = UNTIL_KILLED.facts(seed).tempers
    (how,) = (found[target] for target in (SUITES[c] for c in COMPONENTS) if found[target].stuck_on)
    return how.stuck_after, how.paced


def one(after: bool, paced: bool) -> int:
    return next(seed for seed in range(99) if stuck(seed) == (after, paced))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("paced", [False, True])
def test_a_suite_that_never_returns_is_ended_by_a_wall_clock_and_run_again(after: bool, paced: bool) -> None:
    result = run("naive", one(after, paced), STUCK)
    assert result.record.status == "ended"
    assert "timed-out" in verdicts(result.trace)
    assert (len(effects(result.truth)) > 12) is after


@pytest.mark.parametrize("after", [False, True])
def test_the_mesh_ends_it_for_want_of_progress_and_no_other(after: bool) -> None:
    silent = run("mesh", one(after, False), STUCK)
    assert silent.record.status == "ended"
    assert "refused-as-stalled" in verdicts(silent.trace)
    assert len(effects(silent.truth)) == 12
    assert run("mesh", one(after, True), STUCK).record.status == "stuck"


def test_an_arm_that_waits_for_ever_is_stuck() -> None:
    assert run("bare", one(True, False), STUCK).record.status == "stuck"
