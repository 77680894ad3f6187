"""Whole trials on virtual time: determinism, exposure, and what each arm does to each fault."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from arms import ARMS
from faults import FAULTS
from harness.core.records import Event
from harness.pool import run_trial_sim
from harness.schedule import Limits, PlannedFault, TrialSpec

ROOT = Path(__file__).resolve().parents[2]


def spec(arm: str, fault: str = "none", variant: str = "", seed: int = 1, variation: int = 3) -> TrialSpec:
    faults = () if fault == "none" else (PlannedFault(fault=fault, variant=variant),) * 2
    return TrialSpec(
        schedule="test",
        index=0,
        workload="codegen",
        arm=arm,
        world="sim",
        mode="tdd",
        variation=variation,
        seed=seed,
        fault_class=fault,
        faults=faults,
        limits=Limits(nominal_ms=1_800_000),
        time_scale=1.0,
        settle_ms=300_000,
        idempotency_keys=False,
        pair=f"p{seed}",
        id=f"{arm}-{fault}-{variant}-{seed}",
    )


def digest(result) -> str:
    return hashlib.sha256(msgspec.msgpack.encode([result.record, result.trace, result.truth])).hexdigest()


def effects(truth: list[Event]) -> list[str]:
    return [e.data["boundary"] for e in truth if e.kind == "effect"]


CELLS = [(arm, fault) for arm in ARMS for fault in FAULTS]

DIGESTS = """
import sys
from tests.sim.test_trials import CELLS, digest, spec
from faults import FAULTS
from harness.pool import run_trial_sim
for arm, fault in CELLS:
    print(arm, fault, digest(run_trial_sim(spec(arm, fault, FAULTS[fault].variants[0]))))
"""


def test_same_seed_same_bytes_under_two_hash_seeds_for_every_arm_and_fault() -> None:
    outputs = []
    for hash_seed in ("1", "4242"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", DIGESTS], cwd=ROOT, env=env, capture_output=True, text=True, check=True
        )
        outputs.append(done.stdout.splitlines())
    assert len(outputs[0]) == len(CELLS)
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("arm", ARMS)
def test_without_faults_every_arm_does_the_twelve_effects_once(arm: str) -> None:
    result = run_trial_sim(spec(arm, seed=5))
    ends = [e.data["status"] for e in result.trace if e.kind == "delegation_end"]
    assert (result.record.status, ends, len(effects(result.truth))) == ("ended", ["done"] * 5, 12)


@pytest.mark.parametrize(("fault", "variant"), [(f, v) for f, c in FAULTS.items() for v in c.variants])
def test_every_variant_fires_and_is_seen_by_the_side_that_suffers(fault: str, variant: str) -> None:
    results = [run_trial_sim(spec("naive", fault, variant, seed)) for seed in range(3)]
    assert all(r.record.status == "ended" for r in results)
    assert sum(r.record.exposure["fired"] for r in results) >= 3
    assert sum(r.record.exposure["observed"] for r in results) >= 3


@pytest.mark.parametrize("variant", ["effect_unacknowledged", "effect_unrecorded"])
def test_an_effect_that_was_not_recorded_is_had_twice_by_naive_and_once_by_mesh(variant: str) -> None:
    """Only pairs whose faults hit neither the one event with an undeclared volatile field nor a hook, which no
    boundary can be asked about, nor a download, whose bytes are lost with the process."""
    seeds = [s for s in range(24) if not {"acceptance", "hook", "registry"} & _struck(s, variant)]
    naive = sum(len(effects(run_trial_sim(spec("naive", "staging_crash", variant, s)).truth)) for s in seeds)
    mesh = sum(len(effects(run_trial_sim(spec("mesh", "staging_crash", variant, s)).truth)) for s in seeds)
    assert seeds
    assert naive > 12 * len(seeds)
    assert mesh == 12 * len(seeds)


def _struck(seed: int, variant: str) -> set[str]:
    truth = run_trial_sim(spec("naive", "staging_crash", variant, seed)).truth
    fired = [e.data for e in truth if e.kind == "fault" and e.data["state"] == "fired"]
    return {data[part] for data in fired for part in ("delegation", "name")}


def test_a_pair_meets_the_same_faults_in_both_arms() -> None:
    def armed(arm: str) -> list:
        truth = run_trial_sim(spec(arm, "network_partition", "transport_reset", 9)).truth
        return [e.data for e in truth if e.kind == "fault" and e.data["state"] == "armed"]

    assert armed("naive") == armed("mesh")


def test_bare_arm_is_stuck_by_a_check_that_never_returns() -> None:
    record = run_trial_sim(spec("bare", "hung_check", "hung")).record
    assert (record.status, record.because) == ("stuck", "time limit")


@pytest.mark.parametrize("arm", ["naive", "mesh", "journaled"])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_canary_never_crosses_a_seam(arm: str, fault: str) -> None:
    result = run_trial_sim(spec(arm, fault, FAULTS[fault].variants[-1]))
    (canary,) = [e.data["token"] for e in result.truth if e.kind == "canary"]
    assert canary not in msgspec.json.encode(result.trace).decode()


def test_legitimate_repeats_polls_and_slow_convergence_are_left_alone_by_the_mesh() -> None:
    for seed in range(20):
        result = run_trial_sim(spec("mesh", seed=seed))
        verdicts = {e.data["verdict"] for e in result.trace if e.kind == "outcome"}
        assert verdicts == {"executed"}
        assert len(effects(result.truth)) == 12
