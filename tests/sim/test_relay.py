"""Whole trials of the relay on virtual time: failures that are routed, edits of bystanders, loops, and one event."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from faults import FAULTS
from harness.core.records import Event, ScoredTrial, SealedTrial
from harness.incidents import files
from harness.incidents.kinds import trial
from harness.pool import run_trial_sim
from harness.runner import Result
from harness.schedule import Limits, TrialSpec
from harness.score import score
from tests.sim.test_trials import digest, spec
from workloads.oracles import ORACLES
from workloads.relay.facts import facts

INCIDENTS = Path(__file__).resolve().parents[2] / "schedules" / "incidents"
EVERYBODY, FIRST_MISSING = "tests.sim.wakingarms:EVERYBODY", "tests.sim.wakingarms:FIRST_MISSING"
QUIET = (0, 2, 4, 8, 14, 16, 17, 19)
"""Seeds in which nobody drifts."""


def relay(arm: str, fault: str = "none", variant: str = "", seed: int = 0, variation: int = 3) -> TrialSpec:
    one = spec(arm, fault, variant, seed, variation)
    return replace(one, workload="relay", limits=Limits(nominal_ms=3_600_000, tokens=900_000, turns=2000))


def run(arm: str, seed: int, variation: int = 3) -> Result:
    return run_trial_sim(relay(arm, seed=seed, variation=variation))


def answers(trace: list[Event], check: str) -> list[dict]:
    return [e.data for e in trace if e.kind == "note" and e.data["note"] == "answer" and e.data["check"] == check]


def woken(trace: list[Event]) -> set[str]:
    ids = {e.data["delegation"] for e in trace if e.kind == "attempt"}
    return {id.removeprefix("repair/") for id in ids if id.startswith("repair/")}


def judged(result: Result) -> ScoredTrial:
    sealed = SealedTrial(record=result.record, trace=tuple(result.trace), truth=tuple(result.truth))
    return score(sealed, ORACLES["relay"])


# --- the harness --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["bare", "naive", "journaled_probe", "mesh", "mesh_without_probe"])
@pytest.mark.parametrize("fault", ["none", *FAULTS])
def test_every_fault_runs_in_every_arm_without_a_bug_of_ours(arm: str, fault: str) -> None:
    variants = FAULTS[fault].variants if fault != "none" else ("",)
    for seed, variant in enumerate(variants[:4]):
        result = run_trial_sim(relay(arm, fault, variant, seed))
        assert result.record.status in ("ended", "stuck"), result.record.because
        assert not [e for e in result.trace if e.kind == "arm_error"]


@pytest.mark.parametrize(("fault", "variant"), [(f, v) for f, c in FAULTS.items() for v in c.variants])
def test_every_variant_fires_at_the_sites_of_every_kind_of_instance(fault: str, variant: str) -> None:
    assert [facts(seed).flow_first for seed in (0, 2, 9)] == [False, False, True]
    for seed in (0, 2, 9):
        exposure = run_trial_sim(relay("naive_contained", fault, variant, seed)).record.exposure
        assert exposure["fired"] >= 1, seed


def test_same_seed_same_bytes() -> None:
    for arm in ("naive", EVERYBODY):
        assert digest(run(arm, 3)) == digest(run(arm, 3))


# --- failures that are routed -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", QUIET)
def test_the_first_missing_checkpoints_are_those_of_the_defective_components(seed: int) -> None:
    result = run(FIRST_MISSING, seed)
    assert woken(result.trace) == set(facts(seed).defective)
    scored = judged(result)
    assert scored.success
    assert all(f.lost == 0 for f in scored.findings)


@pytest.mark.parametrize("seed", QUIET)
def test_as_many_tests_fail_as_components_are_defective_and_then_none(seed: int) -> None:
    seen = answers(run(FIRST_MISSING, seed).trace, "acceptance")
    assert len(seen[0]["failing"]) == len(facts(seed).defective)
    assert seen[-1]["failing"] == []
    assert len(seen[-1]["points"]) == 15
    assert len({point[0] for point in seen[-1]["points"]}) == 3


def test_waking_everybody_regresses_bystanders_which_only_acceptance_sees() -> None:
    edited = {seed: _bystanders_edited(run(EVERYBODY, seed), seed) for seed in QUIET}
    assert sum(map(bool, edited.values())) > len(QUIET) / 2
    again = [answers(run(EVERYBODY, seed).trace, "acceptance") for seed in QUIET]
    assert any(set(later["failing"]) - set(seen[0]["failing"]) for seen in again for later in seen[1:])


def _bystanders_edited(result: Result, seed: int) -> list[str]:
    mine = {f"repair/{c}" for c in facts(seed).defective}
    turns = [e.data for e in result.trace if e.kind == "turn" and e.data["delegation"].startswith("repair/")]
    return [turn["delegation"] for turn in turns if turn["writes"] and turn["delegation"] not in mine]


@pytest.mark.parametrize("variation", range(6))
def test_every_wording_has_the_twelve_effects(variation: int) -> None:
    scored = judged(run(FIRST_MISSING, 2, variation))
    assert {f.status for f in scored.findings} <= {"exactly_once", "duplicate"}
    assert sum(f.required for f in scored.findings) == 12
    assert scored.success


# --- loops --------------------------------------------------------------------------------------------------------


def test_some_turns_drift_in_about_half_of_the_trials_and_the_agent_finds_back() -> None:
    seeds = range(20, 44)
    results = [run(FIRST_MISSING, seed) for seed in seeds if not facts(seed).flow_first]
    drifted = [sum(e.data.get("drifting", False) for e in r.truth if e.kind == "billed") for r in results]
    assert 0.25 < sum(map(bool, drifted)) / len(drifted) < 0.85
    lost = [r for r, n in zip(results, drifted, strict=True) if n]
    assert sum(judged(r).success for r in lost) > len(lost) / 2


def test_nothing_of_a_drift_can_be_seen_from_inside() -> None:
    trace = run("naive", 6).trace
    assert "drifting" not in msgspec.json.encode(trace).decode()


# --- incidents ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["naive", "mesh"])
def test_events_of_six_runs_accumulate_unless_repeats_are_suppressed(side: str) -> None:
    incident = files.load(INCIDENTS / "I03.yaml")
    result = files.play(incident, side, "sim")  # type: ignore[arg-type]
    assert result.missed == ""
    assert result.played.facts["other_service"] == 2
    assert result.played.count >= 6 or side == "mesh"


@pytest.mark.parametrize("name", ["I04_trial", "I05_trial"])
@pytest.mark.parametrize("side", ["naive", "mesh"])
def test_routing_incidents_tell_waking_everybody_from_waking_the_owner(name: str, side: str) -> None:
    incident = files.load(INCIDENTS / f"{name}.yaml")
    played = trial.play({**incident.story, "naive": EVERYBODY}, side, "sim", FIRST_MISSING)  # type: ignore[arg-type]
    expected = incident.expect.naive if side == "naive" else incident.expect.mesh
    assert replace(expected, verdict=None).misses(played) == ""
    assert played.facts["accepted"] >= (side == "mesh")
