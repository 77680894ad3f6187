"""The tree on virtual time: what its rates say, and that each of them says it for the reason that it is said to.

Every finding stands twice: with its cause, and with the cause taken away as a parameter, where it must be gone.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from arms import ARMS
from faults import FAULTS
from harness import cli
from harness.core.records import HOP_STATES, ScoredTrial, SealedTrial
from harness.metrics.hops import hop_counts
from harness.pool import run_trial_sim
from harness.report.hops import hop_rates
from harness.report.rows import Row
from harness.score import score
from harness.simulate import run_sim
from harness.trial import Parts
from tests.sim.test_trials import spec
from workloads.brief_tree.facts import HOPS, Parameters, facts
from workloads.brief_tree.oracle import ORACLE, BriefTreeOracle
from workloads.brief_tree.task import BriefTree

SCHEDULE = Path(__file__).resolve().parents[2] / "schedules" / "brief_tree.yaml"
RUNS, FEW = 40, 12


def run(parameters: Parameters, seed: int, arm: str = "bare") -> ScoredTrial:
    """A trial without faults of the tree with these parameters."""
    planned = replace(spec(arm, seed=seed), workload="brief_tree")
    parts = Parts(workload=BriefTree(parameters), arm=ARMS[arm], fault_class=None)
    result = run_sim(planned, parts)
    trial = SealedTrial(record=result.record, trace=tuple(result.trace), truth=tuple(result.truth))
    return score(trial, BriefTreeOracle(parameters))


@cache
def rates(parameters: Parameters, runs: int = FEW) -> dict[str, Any]:
    """What is said of the hops of so many trials, one for each seed."""
    found = [run(parameters, seed) for seed in range(runs)]
    return hop_rates([row(scored) for scored in found])


def row(scored: ScoredTrial) -> Row:
    """A row without the metrics that nobody asks for here."""
    record = scored.trial.record
    head = {name: getattr(record, name) for name in ("pair", "index", "arm", "fault_class", "variant", "status")}
    return Row(trial=record.id, faults_scheduled=0, success=scored.success, hops=hop_counts(scored), **head)


CALM = Parameters(wrong_brief=0, slips=(), verified="all", fix_fails=0, regress=0)
"""Nothing goes wrong by itself."""

CAUGHT = replace(CALM, slips=(("no_date", 0.03),))
"""Mistakes that every verifier sees and every other attempt mends."""

MISLED = replace(CALM, wrong_brief=0.2)
"""Nothing goes wrong but that a brief is wrong."""


# --- what the rates say -------------------------------------------------------------------------------------------


def test_more_hops_end_up_clean_than_attempts_are() -> None:
    found = rates(CAUGHT, RUNS)
    assert found["per_hop"]["brief_satisfied"]["estimate"] > found["per_attempt"]["brief_satisfied"]["estimate"]
    assert found["states"]["retried"] > 0


def test_without_retries_hops_and_attempts_have_one_rate() -> None:
    found = rates(replace(CAUGHT, retries=0), RUNS)
    assert found["per_hop"] == found["per_attempt"]
    assert found["per_hop"]["brief_satisfied"]["estimate"] < 1


DEFINED = ("schema_valid", "brief_satisfied", "usable_downstream")


def clean_hops(scored: ScoredTrial) -> list[int]:
    counts = hop_counts(scored)
    assert counts is not None
    return [counts.by_hop[name] for name in DEFINED]


def test_no_stricter_definition_sees_a_wrong_brief() -> None:
    misled = [seed for seed in range(40) if facts(seed, MISLED).wrong][:3]
    assert len(misled) == 3
    for seed in misled:
        scored = run(MISLED, seed)
        assert (scored.success, clean_hops(scored)) == (False, [26, 26, 26])
        mended = run(CALM, seed)  # the same instance with the right brief
        assert (mended.success, clean_hops(mended)) == (True, [26, 26, 26])


@pytest.mark.parametrize(("slip", "first_seen_by"), [("bare_source", 0), ("swapped", 1), ("thin", 2)])
def test_stricter_definitions_do_tell_the_mistakes_of_a_hop_apart(slip: str, first_seen_by: int) -> None:
    """Else that they agree on a wrong brief would mean nothing."""
    clean = clean_hops(run(replace(CALM, slips=((slip, 0.3),)), seed=2))
    assert clean[:first_seen_by] == [26] * first_seen_by
    assert clean[first_seen_by] < 26


def test_retries_make_independence_of_attempts_foretell_too_little() -> None:
    found = rates(CAUGHT, RUNS)
    assert found["independence"]["per_attempt"]["estimate"] < found["run_success"]["ci_low"] - 0.2


def test_without_retries_it_foretells_what_happens() -> None:
    found = rates(replace(CAUGHT, retries=0), RUNS)
    told, seen = found["independence"]["per_attempt"]["estimate"], found["run_success"]
    assert seen["ci_low"] <= told <= seen["ci_high"]
    assert seen["estimate"] < 0.9


def test_wrong_briefs_make_independence_of_hops_foretell_too_much() -> None:
    found = rates(MISLED, RUNS)
    assert found["independence"]["per_hop"]["estimate"] > found["run_success"]["ci_high"]
    residual = found["residual"]
    assert residual["failed_runs"] == residual["all_hops_clean"] > 0


def test_without_wrong_briefs_it_foretells_what_happens() -> None:
    found = rates(CALM)
    assert found["independence"]["per_hop"]["estimate"] == found["run_success"]["estimate"] == 1
    assert found["residual"]["all_hops_clean"] == 0


def test_one_mistake_makes_several_hops_unclean_so_that_they_do_not_fail_independently() -> None:
    """What drifts is handed on: the hop, and all that it is handed up over."""
    drifting = replace(CALM, slips=(("swapped", 0.01),))
    found = [run(drifting, seed) for seed in range(12)]
    unclean = [[one.hop for one in scored.hops if not one.brief_satisfied] for scored in found]
    workers = [hops for hops in unclean if any(hop.count("-") == 2 for hop in hops)]
    assert workers
    for hops in workers:
        worker = next(hop for hop in hops if hop.count("-") == 2)
        assert {worker[:-2], worker[:-4]} <= set(hops)


# --- verifiers ----------------------------------------------------------------------------------------------------


def test_verifiers_miss_what_they_do_not_look_at() -> None:
    seen = rates(replace(CALM, slips=(("stale", 0.02),)))["verifier"]
    assert (seen["caught"], seen["catch_rate"]["estimate"]) == (0, 0)
    assert seen["missed"] > 0
    assert rates(CAUGHT)["verifier"]["catch_rate"]["estimate"] == 1


def test_a_false_alarm_does_harm_where_a_rework_may_break_what_was_right() -> None:
    alarmed = replace(CALM, slips=(("unsorted", 0.05),), regress=0.5)  # what regresses is one company too many
    seen = rates(alarmed)["verifier"]
    assert seen["false_alarms"] > seen["regressed"] > 0
    assert rates(alarmed)["run_success"]["estimate"] < 1
    harmless = rates(replace(alarmed, regress=0))
    assert harmless["verifier"]["false_alarms"] > harmless["verifier"]["regressed"] == 0
    assert harmless["run_success"]["estimate"] == 1


def test_a_mistake_that_comes_back_is_not_fixed_and_the_hop_is_abandoned() -> None:
    stubborn = rates(replace(CAUGHT, fix_fails=1))
    assert stubborn["verifier"]["fix_rate"]["estimate"] == 0
    assert stubborn["states"]["abandoned"] > 0
    assert rates(CAUGHT)["verifier"]["fix_rate"]["estimate"] == 1
    assert rates(CAUGHT)["states"]["abandoned"] == 0


def test_a_thin_return_is_as_asked_and_repaired_by_its_parent() -> None:
    thin = rates(replace(CALM, slips=(("thin", 0.03),)))
    assert thin["per_hop"]["brief_satisfied"]["estimate"] == 1
    assert thin["per_hop"]["usable_downstream"]["estimate"] < 1
    assert thin["usable"]["no"] == thin["states"]["repaired"] > 0
    assert thin["run_success"]["estimate"] == 1


# --- arms, faults, the schedule -----------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["naive", "mesh"])
def test_what_goes_wrong_by_itself_is_the_same_in_every_arm(arm: str) -> None:
    for seed in range(4):
        assert run(Parameters(), seed, arm).hops == run(Parameters(), seed).hops


@pytest.mark.parametrize("arm", ARMS)
def test_without_faults_every_arm_does_the_twelve_effects_once(arm: str) -> None:
    scored = run(CALM, 5, arm)
    assert scored.success
    assert [f.status for f in scored.findings] == ["exactly_once"] * 11
    assert {one.hop for one in scored.hops} == set(HOPS)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_variant_of_every_fault_meets_the_tree(fault: str) -> None:
    fired = 0
    for variant in FAULTS[fault].variants:
        result = run_trial_sim(replace(spec("naive", fault, variant, seed=7), workload="brief_tree"))
        assert result.record.status == "ended"
        fired += result.record.exposure["fired"]
    assert fired >= 1.5 * len(FAULTS[fault].variants)


def test_the_schedule_tells_of_its_hops(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = ["--pairs", "3", "--out", str(folder), "--jobs", "1"]
    done = CliRunner().invoke(cli.app, ["eval", str(SCHEDULE), *options])
    assert done.exit_code == 0, done.output
    hops = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["hops"]
    for arm in ("naive", "mesh"):
        for part in ("with_faults", "without_faults"):
            found = hops[arm][part]
            assert (found["trials"], found["hops_per_run"]) == (3, 26)
            assert tuple(found["states"]) == HOP_STATES
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert "What clean hops foretell of a run" in report
    assert "Verifiers of hops" in report


def test_the_default_tree_has_an_oracle_of_its_own_parameters() -> None:
    assert ORACLE.intents(4, 3) == BriefTreeOracle(Parameters()).intents(4, 3)
