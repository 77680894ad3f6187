"""Whole trials with real processes, sockets and servers: evidence, residues, and agreement with the sim world."""

from collections import Counter
from pathlib import Path

import pytest

from harness.core.records import Event
from harness.live.executor import LiveExecutor
from harness.pool import run_trial_sim
from harness.schedule import Limits, PlannedFault, TrialSpec
from workloads.oracles import ORACLES

pytestmark = pytest.mark.live

SHARED = [
    ("naive", "none", ""),
    ("journaled", "none", ""),
    ("mesh", "none", ""),
    ("naive", "nondeterminism", "flip"),
    ("mesh", "nondeterminism", "flip"),
    ("mesh", "hung_check", "hung_after_work"),
    ("naive", "network_partition", "transport_limit"),
    ("mesh", "network_partition", "transport_limit"),
    ("mesh", "provider_interruption", "rate_limited"),
    ("naive", "staging_crash", "effect_unacknowledged"),
    ("mesh", "staging_crash", "effect_unrecorded"),
    ("journaled_probe", "staging_crash", "effect_unacknowledged"),
    ("mesh", "orchestrator_restart", "between_turns"),
]
"""Scenarios that both worlds can run. A crash also hits whatever runs beside the struck delegation, at a moment that
differs between worlds, so there only the struck delegation is compared; and a cut with a duration hits as many later
calls as are made in that time, which differs too, so only cuts of one call are compared."""


DEADLY = ("staging_crash", "orchestrator_restart")
"""One fault a trial: what the first one interrupts elsewhere may be the place of the second, in one of the worlds."""


def spec(arm: str, fault: str, variant: str, world: str) -> TrialSpec:
    faults = () if fault == "none" else (PlannedFault(fault=fault, variant=variant),) * (1 if fault in DEADLY else 2)
    return TrialSpec(
        schedule="test",
        index=0,
        workload="codegen",
        arm=arm,
        world=world,
        mode="tdd",
        variation=3,
        seed=3,
        fault_class=fault,
        faults=faults,
        limits=Limits(nominal_ms=1_800_000, lag_ms=100_000),
        time_scale=0.2 if world == "live" else 1.0,
        settle_ms=300_000,
        idempotency_keys=False,
        pair="p",
        id=f"{arm}-{fault}-{variant}",
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module")
def live(folder: Path) -> dict[str, tuple]:
    """Every shared scenario, run once in the live world."""
    patch = pytest.MonkeyPatch()
    patch.setenv("TMPDIR", str(folder))
    executor = LiveExecutor(jobs=4, workers=1)
    for cell in SHARED:
        executor.submit(spec(*cell, "live"))
    done = {}
    try:
        for finished in executor.results():
            assert finished.record is not None, finished.trouble
            done[finished.spec.id] = (finished.record, list(finished.trace), list(finished.truth))
    finally:
        executor.close()
        patch.undo()
    return done


def sequence(trace: list[Event], delegation: str) -> list[tuple]:
    """What a delegation did and was told, without anything that differs between two executions: each check's effects
    as a set (their order is drawn), with their verdicts; other tools by name; commits; and how it ended."""
    oracle = ORACLES["codegen"]
    outcomes = {e.data["call_id"]: e.data for e in trace if e.kind == "outcome"}
    steps: list[tuple] = []
    for event in trace:
        data = event.data
        if event.kind == "delegation_end" and data["delegation"] == delegation:
            steps.append(("end", data["status"], data["code"]))
        if event.kind != "call" or data["site"]["delegation"] != delegation or data["call_id"] not in outcomes:
            continue
        told = outcomes[data["call_id"]]
        answer = told["verdict"] or told["result"]
        if data["call"] == "effect":
            steps.append((data["boundary"], oracle.natural_keys(data), answer))
        elif data["call"] == "tool":
            steps.append((data["tool"], data["args"].get("check", ""), answer))
        elif data["call"] == "commit":
            steps.append((data["step"], data["site"]["phase"], answer))
    return steps


def compared(truth: list[Event], trace: list[Event]) -> list[str]:
    """Delegations whose sequences must agree: all of them, or after crashes the one that was struck, if it was one."""
    if not any(e.kind == "exit" for e in truth):
        return sorted(e.data["delegation"] for e in trace if e.kind == "delegation_end")
    struck = {e.data["delegation"] for e in truth if e.kind == "fault" and e.data["state"] == "fired"}
    return sorted(struck) if len(struck) == 1 else []


def held(truth: list[Event]) -> Counter[str]:
    """What the services hold at the end, by natural key."""
    keys = ORACLES["codegen"].natural_keys
    return Counter(key for e in truth if e.kind == "effect" for key in keys(e.data))


def checked(truth: list[Event]) -> Counter[tuple]:
    """What the runs of checks came to, before any fault."""
    told = (e.data for e in truth if e.kind == "checked")
    return Counter((data["delegation"], data["check"], data["passed"]) for data in told)


@pytest.mark.parametrize("cell", [c for c in SHARED if c[1] in ("none", "nondeterminism", "hung_check")], ids="-".join)
def test_checks_really_come_to_the_same_in_both_worlds(live: dict, cell: tuple) -> None:
    _, trace, truth = live["-".join(cell)]
    assert checked(truth) == checked(list(run_trial_sim(spec(*cell, "sim")).truth))
    assert (("acceptance", "acceptance", True) in checked(truth)) is ORACLES["codegen"].accepted(3, 3, accepted(trace))


def accepted(trace: list[Event]) -> dict[str, str]:
    last = {e.data["delegation"]: e.data["files"] for e in trace if e.kind == "checkpoint"}
    return {path: digest for files in last.values() for path, digest in files.items()}


@pytest.mark.parametrize("cell", SHARED, ids="-".join)
def test_a_live_trial_ends_with_its_faults_observed_and_nothing_left(live: dict, cell: tuple) -> None:
    record, _, truth = live["-".join(cell)]
    assert (record.status, record.because) == ("ended", "")
    assert record.exposure["observed"] == record.exposure["fired"]
    if cell[1] in ("staging_crash", "orchestrator_restart"):
        exits = [e.data["signal"] for e in truth if e.kind == "exit"]
        assert len(exits) == record.exposure["fired"]
        assert set(exits) <= {"SIGKILL", "SIGTERM"}


@pytest.mark.parametrize("cell", [c for c in SHARED if c[1] == "none"], ids="-".join)
def test_without_faults_the_services_hold_the_twelve_effects(live: dict, cell: tuple) -> None:
    truth = live["-".join(cell)][2]
    assert sum(e.kind == "effect" for e in truth) == 12


@pytest.mark.parametrize("cell", SHARED, ids="-".join)
def test_sim_and_live_agree_per_delegation(live: dict, cell: tuple) -> None:
    _, trace, truth = live["-".join(cell)]
    sim = run_trial_sim(spec(*cell, "sim"))
    fired = {e.data["fault"] for e in truth if e.kind == "fault" and e.data["state"] == "fired"}
    assert fired == {e.data["fault"] for e in sim.truth if e.kind == "fault" and e.data["state"] == "fired"}
    for delegation in compared(truth, trace):
        assert sequence(trace, delegation) == sequence(list(sim.trace), delegation), delegation
    if not any(e.kind == "exit" for e in truth) and cell[0] == "mesh":
        assert held(truth) == held(list(sim.truth))


def test_real_time_within_the_layers_and_what_the_store_holds_are_measured(live: dict) -> None:
    for name, (_, trace, truth) in live.items():
        ended = [e.data for e in trace if e.kind == "outcome"]
        assert all(data["arm_us"] >= 0 for data in ended)
        assert sum(data["arm_us"] for data in ended) > 0
        (stored,) = [e.data for e in truth if e.kind == "stored"]
        assert bool(stored["tables"]) is not name.startswith(("naive", "bare"))


def test_the_canary_never_crosses_a_seam_live(live: dict) -> None:
    for _, trace, truth in live.values():
        (canary,) = [e.data["token"] for e in truth if e.kind == "canary"]
        assert all(canary not in str(e.data) for e in trace)


def test_no_temporary_folder_is_left(live: dict, folder: Path) -> None:
    assert list(folder.iterdir()) == []
