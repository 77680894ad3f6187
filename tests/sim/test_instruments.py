"""Instruments on whole trials: what a sabotaged or badly behaved arm does shows, by the right amount, in the metric
made for it."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest
from msgspec.structs import replace

from harness.accounting import conserve as conserve_tokens
from harness.core.errors import HarnessBug
from harness.core.records import Event, NotApplicable, ScoredTrial, SealedTrial
from harness.effects import conserve as conserve_effects
from harness.effects import open_books
from harness.metrics import METRICS
from harness.metrics.blame import CELLS, name_of
from harness.pool import run_trial_sim
from harness.score import oracle_of, score
from tests.sim.test_trials import spec

SABOTAGE = "arms.sabotage.arms:"


@cache
def sealed(arm: str, fault: str = "none", variant: str = "", seed: int = 1, variation: int = 3) -> SealedTrial:
    result = run_trial_sim(spec(arm, fault, variant, seed, variation))
    return SealedTrial(record=result.record, trace=tuple(result.trace), truth=tuple(result.truth))


def judged(*names: object, **more: int) -> ScoredTrial:
    return score(sealed(*names, **more), oracle_of("codegen"))  # type: ignore[arg-type]


def value(name: str, scored: ScoredTrial) -> float:
    found = METRICS[name].of(scored)
    assert not isinstance(found, NotApplicable), found
    return found


def cells(guard: str, scored: ScoredTrial) -> list[float]:
    return [value(name_of(guard, cell), scored) for cell in CELLS]


@pytest.mark.parametrize(
    ("arm", "variant", "expected"),
    [
        ("naive", "hung", [2, 0, 0]),
        ("mesh", "hung", [2, 0, 0]),
        ("bare", "hung", [0, 2, 0]),  # nobody gives up, and the trial gets stuck
        ("naive", "slow", [0, 0, 2]),  # a wall clock kills checks that get on
        ("mesh", "slow", [0, 0, 0]),
    ],
)
def test_timeouts_are_blamed_by_what_the_check_really_did(arm: str, variant: str, expected: list) -> None:
    assert cells("stalls", judged(arm, "hung_check", variant))[:3] == expected


def test_a_breaker_that_shuts_longer_than_the_outage_kills_the_healthy() -> None:
    strict = judged("arms.naive.grid:STRICT_BREAKER", "network_partition", "transport_reset", seed=1)
    usual = judged("naive", "network_partition", "transport_reset", seed=1)
    assert value("verdict_ejected", strict) == cells("outages", strict)[0] + cells("outages", strict)[2] > 0
    assert cells("outages", strict)[2] > 10
    assert cells("outages", usual)[::2] == [0, 0]


def test_ledgers_that_merge_by_likeness_or_know_nothing_again_show() -> None:
    where = ("staging_crash", "effect_unacknowledged")
    naive, mesh = judged("naive", *where, seed=2), judged("mesh", *where, seed=2)
    fuzzy, keyed = (judged(SABOTAGE + name, *where, seed=2) for name in ("FUZZY_MERGE", "ATTEMPT_KEYED"))
    assert [value("fingerprint_collisions", s) for s in (naive, mesh, keyed, fuzzy)] == [0, 0, 0, 1]
    assert [value("fingerprint_miss", s) for s in (naive, mesh, keyed)] == [1, 0, 1]
    assert value("asked_again", mesh) > 0
    assert value("ledger_discrimination", mesh) == 1.0 > value("ledger_discrimination", fuzzy)
    assert value("ledger_discrimination", keyed) == value("ledger_discrimination", naive) == 0.5


def test_suppressing_everything_kills_the_healthy_and_collides_with_nothing() -> None:
    loud = judged(SABOTAGE + "SUPPRESS_ALL")
    assert cells("effects", loud)[2] == value("wrongly_suppressed", loud) * 11 > 0
    assert value("fingerprint_collision", loud) == 0.0
    assert cells("effects", judged("mesh"))[2:] == [0, 11]


def test_believed_flips_are_guilty_answers_that_were_spared() -> None:
    naive, mesh = (judged(arm, "nondeterminism", "flip") for arm in ("naive", "mesh"))
    assert cells("evidence", naive)[1] == value("flaky_answers_believed", naive) == 2
    assert cells("evidence", mesh)[1] == value("flaky_answers_believed", mesh)
    assert sum(cells("evidence", mesh)[:2]) == 2


def test_a_store_is_measured_from_outside_and_holds_nothing_of_the_orchestrators() -> None:
    stored = {arm: next(e.data for e in sealed(arm).truth if e.kind == "stored") for arm in ("bare", "naive", "mesh")}
    assert stored["bare"] == stored["naive"] == {"tables": {}, "tenants": {}}
    assert {"ledger", "leases"} <= set(stored["mesh"]["tables"])
    assert not {"attempts", "checkpoints", "ends"} & set(stored["mesh"]["tables"])
    assert value("ledger_bytes", judged("mesh")) == sum(held for _, held in stored["mesh"]["tables"].values()) > 10_000
    assert value("ledger_bytes", judged("naive")) == 0.0
    keyed = judged(SABOTAGE + "ATTEMPT_KEYED", "orchestrator_restart", "between_turns")
    assert value("ledger_bytes", keyed) > value("ledger_bytes", judged("mesh", "orchestrator_restart", "between_turns"))


def test_virtual_time_leaves_no_real_time_in_a_trace() -> None:
    trial = sealed("mesh", "staging_crash", "effect_before")
    assert not any("arm_us" in e.data for e in trial.trace)
    assert isinstance(METRICS["overhead_model_p50"].of(judged("mesh")), NotApplicable)


def test_the_end_of_a_stuck_trial_is_told_before_what_it_cancels() -> None:
    stuck = sealed("bare", "hung_check", "hung")
    assert stuck.record.status == "stuck"
    kinds = [e.kind for e in stuck.trace if e.kind in ("limit", "abandoned")]
    assert kinds[0] == "limit"
    assert kinds[1:] == ["abandoned"] * 2


@pytest.mark.parametrize("arm", ["naive", "mesh", "journaled"])
def test_a_process_that_was_killed_gave_nothing_up(arm: str) -> None:
    trial = sealed(arm, "staging_crash", "effect_unacknowledged")
    assert sum(e.kind == "exit" for e in trial.truth) == 2
    assert not any(e.kind == "abandoned" for e in trial.trace)


def test_armed_and_fired_faults_say_what_they_do() -> None:
    told = {
        e.data["state"]: e.data
        for e in sealed("naive", "network_partition", "transport_blackhole").truth
        if e.kind == "fault" and e.data["fault"] == 0
    }
    assert {(told[s]["fate"], told[s]["how"], told[s]["ms"]) for s in ("armed", "fired")} == {
        ("cut", "blackhole", 12_000.0)
    }


# --- conservation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["naive", "mesh"])
def test_conservation_is_asserted_and_breaks_when_an_effect_or_a_token_is_lost(arm: str) -> None:
    trial = sealed(arm, "orchestrator_restart", "between_turns")
    scored = score(trial, oracle_of("codegen"))
    books = open_books(trial, oracle_of("codegen"))
    conserve_effects(scored.findings, books)
    conserve_tokens(scored.work, trial)
    with pytest.raises(HarnessBug, match="commits"):
        conserve_effects(scored.findings[1:], books)
    for part in ("live", "dead_end", "charged", "spontaneous", "billed"):
        off = replace(scored.work, **{part: getattr(scored.work, part) + 1})
        with pytest.raises(HarnessBug, match="tokens billed"):
            conserve_tokens(off, trial)


def test_strict_is_at_least_lenient_and_the_split_adds_up() -> None:
    for arm in ("bare", "naive", "mesh"):
        work = judged(arm, "staging_crash", "before_publish").work
        assert work.destroyed >= work.destroyed_lenient >= 0
        assert 0 <= work.direct <= work.charged


# --- old runs ---------------------------------------------------------------------------------------------------------


def test_a_trial_of_an_older_recorder_can_be_judged_and_says_what_it_does_not_know() -> None:
    trial = sealed("naive", "hung_check", "slow")

    def older(event: Event) -> Event:
        fired = event.data.get("state") == "fired"
        news = {"recorder", "how", "ms", "arm_us"} | (set() if fired else {"fate"})
        return replace(event, data={key: told for key, told in event.data.items() if key not in news})

    trace, truth = (
        tuple(older(e) for e in log if e.kind not in ("abandoned", "limit", "stored"))
        for log in (trial.trace, trial.truth)
    )
    old = score(replace(trial, trace=trace, truth=truth), oracle_of("codegen"))
    new = score(trial, oracle_of("codegen"))
    known = {n: v for n, m in METRICS.items() if not isinstance(v := m.of(new), NotApplicable)}
    lost = {n for n in known if isinstance(METRICS[n].of(old), NotApplicable)}
    assert {"tokens_timed_out", "ledger_bytes", "blame_stalls_healthy_killed"} <= lost
    assert {n: METRICS[n].of(old) for n in known if n not in lost} == {n: known[n] for n in known if n not in lost}
    assert msgspec.json.encode(old.findings) == msgspec.json.encode(new.findings)
