"""Every metric: its value on a clean trial, and a sabotaged trial that moves it the wrong way."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from harness import metrics as package
from harness.core.records import (
    Event,
    Finding,
    HopAttempt,
    Metric,
    NotApplicable,
    ScoredTrial,
    SealedTrial,
    TrialRecord,
    Work,
)
from harness.core.types import BOUNDARIES, Verdict
from harness.metrics import METRICS
from harness.metrics.blame import BLAME
from harness.metrics.breaker import BREAKER
from harness.metrics.effects import PRIMARY_BOUNDARIES
from harness.metrics.overhead import OVERHEAD, SEAMS, quantile
from harness.metrics.recognition import RECOGNITION
from harness.report.rows import row_of

RECORD = TrialRecord(
    id="t1",
    pair="p1",
    index=0,
    workload="codegen",
    arm="mesh",
    world="live",
    seed=1,
    variation=3,
    fault_class="orchestrator_restart",
    variant="between_turns",
    faults_scheduled=2,
    status="ended",
    exposure={"scheduled": 2, "fired": 2},
    duration_ms=1_000.0,
    real_s=3.0,
)


def finding(boundary: str, key: str = "a", required: int = 2, **more: object) -> Finding:
    counts = {"observed": required, "duplicated": 0, "lost": 0}
    return Finding(boundary=boundary, key=key, required=required, **(counts | more))  # type: ignore[arg-type]


def event(seq: int, at_ms: float, kind: str, /, epoch: int = 0, **data: object) -> Event:
    return Event(seq, at_ms, epoch, kind, {"epoch": epoch, **data} if kind == "exit" else data)


def check_call(seq: int, at_ms: float) -> Event:
    return event(seq, at_ms, "call", call="tool", call_id=f"c{seq}", tool="run_check", site={"name": "run_check"})


TRACE = (
    event(1, 0, "epoch"),
    event(2, 1, "attempt", delegation="orders", attempt=1, depth=1),
    check_call(3, 5),
    event(4, 8, "outcome", call_id="c3"),
    check_call(5, 20),
    event(6, 40, "epoch", epoch=1),
    event(7, 60, "checkpoint", epoch=1),
    event(8, 61, "note", epoch=1, note="in-doubt", says="present"),
)
TRUTH = (
    event(1, 2, "billed", prompt_tokens=100, completion_tokens=20),
    event(2, 6, "effect", boundary="transport", receipt="r1"),
    event(3, 21, "effect", boundary="database", receipt="r2"),
    event(4, 22, "effect", boundary="hook", receipt="r3"),
    event(5, 30, "exit", signal="SIGKILL"),
    event(6, 70, "billed", prompt_tokens=50, completion_tokens=10),
    event(7, 71, "fault", fault=0, state="armed", strike={"delegation": "orders"}),
    event(8, 72, "stored", tables={"ledger": [3, 300], "spend": [1, 100]}, tenants={"acme": 200, "bolt": 100}),
)
CLEAN = ScoredTrial(
    trial=SealedTrial(record=RECORD, trace=TRACE, truth=TRUTH),
    findings=tuple(finding(boundary) for boundary in BOUNDARIES),
    work=Work(
        billed=1000, live=900, charged=60, destroyed_lenient=50, turns_destroyed=1, writes_destroyed=1, direct=40
    ),
    success=True,
    verdicts={"executed": 10, "reconciled": 1},
    exposed=True,
    clean={"orders": True, "stock": True, "shop": True},
    budget_tokens=1500,
    hops=(HopAttempt(hop="orders", number=1, schema_valid=True, brief_satisfied=True),),
    hops_planned=1,
)


def value(name: str, scored: ScoredTrial) -> float:
    found = METRICS[name].of(scored)
    assert not isinstance(found, NotApplicable), found
    return found


def with_finding(**changes: object) -> ScoredTrial:
    """The clean trial with its transport finding changed."""
    return replace(CLEAN, findings=(finding("transport", **changes), *CLEAN.findings[1:]))


def with_work(**changes: int) -> ScoredTrial:
    return replace(CLEAN, work=replace(CLEAN.work, **changes))


def with_trace(*more: Event, without: str = "") -> ScoredTrial:
    kept = tuple(e for e in TRACE if e.kind != without)
    return replace(CLEAN, trial=replace(CLEAN.trial, trace=(*kept, *more)))


def with_record(**changes: object) -> ScoredTrial:
    return replace(CLEAN, trial=replace(CLEAN.trial, record=replace(RECORD, **changes)))


def stored(**changes: object) -> ScoredTrial:
    """The clean trial with a store of another size."""
    old = next(e.data for e in TRUTH if e.kind == "stored")
    truth = (*TRUTH, event(9, 90, "stored", **{**old, **changes}))
    return replace(CLEAN, trial=replace(CLEAN.trial, truth=truth))


SABOTAGE: dict[str, ScoredTrial] = {
    "duplicate_incidence": with_finding(observed=3, duplicated=1),
    "duplicates_transport": with_finding(observed=3, duplicated=1),
    "duplicates_gross": with_finding(observed=9, duplicated=2),
    "lost_incidence": with_finding(observed=1, lost=1, status="lost_in_flight"),
    "stale": with_finding(observed=3, duplicated=1, stale=1),
    "wrongly_suppressed": with_finding(observed=0, lost=2, status="over_suppressed_silent"),
    "falsely_rejected": with_finding(observed=0, lost=2, status="false_reject"),
    "phantom": replace(CLEAN, findings=(*CLEAN.findings, finding("database", "x", 0, observed=3, status="phantom"))),
    "foreign_receipts": with_trace(event(9, 99, "note", kind="score", foreign_receipts=2)),
    "task_success": replace(CLEAN, success=False),
    "work_destroyed_tokens": with_work(charged=600),
    "work_destroyed_per_fault": with_work(spontaneous=600),
    "work_destroyed_lenient": with_work(destroyed_lenient=600),
    "work_spontaneous_tokens": with_work(spontaneous=600),
    "turns_destroyed": with_work(turns_destroyed=9),
    "writes_destroyed": with_work(writes_destroyed=9),
    "dead_end_tokens": with_work(dead_end=100),
    "tokens_billed": with_work(billed=5000),
    "time_to_recover": with_trace(event(9, 500, "checkpoint", epoch=1), without="checkpoint"),
    "task_success_at_budget": replace(CLEAN, work=replace(CLEAN.work, billed=1501)),
    "trial_nominal_ms": with_record(duration_ms=9_000.0),
    "trial_real_s": with_record(real_s=9.0),
    "work_direct_tokens": with_work(direct=50),
    "work_reaction_tokens": with_work(charged=600),
    "work_amplification": with_work(charged=600),
    "in_doubt_waived": with_trace(
        event(9, 62, "call", call="effect", call_id="e1"),
        event(10, 63, "outcome", call_id="e1", verdict="awaiting-waiver"),
    ),
    "fault_spread": replace(CLEAN, clean={"orders": False, "stock": False, "shop": True}),
    "ledger_bytes": stored(tables={"ledger": [9, 900]}),
    "ledger_bytes_per_tenant": stored(tenants={"acme": 900}),
    "ledger_bytes_per_1000_effects": stored(tables={"ledger": [9, 900]}),
    **dict.fromkeys(
        ("hop_attempts_clean", "hops_clean"), replace(CLEAN, hops=(replace(CLEAN.hops[0], brief_satisfied=False),))
    ),
    "in_doubt_resolved": with_trace(event(9, 62, "note", note="in-doubt", says="unknown")),
}


@pytest.mark.parametrize("name", list(SABOTAGE))
def test_sabotage_moves_the_metric_the_wrong_way(name: str) -> None:
    before, after = value(name, CLEAN), value(name, SABOTAGE[name])
    assert METRICS[name].better in ("lower", "higher")
    assert after > before if METRICS[name].better == "lower" else after < before


def test_every_judging_metric_has_its_sabotage() -> None:
    elsewhere = {f"duplicates_{boundary}" for boundary in BOUNDARIES}  # the same function, tested per boundary below
    elsewhere |= set(BREAKER)  # in test_metrics_breaker
    elsewhere |= {"blast_radius", "bystanders_woken", "true_owner_nominated"}  # in test_metrics_routing
    elsewhere |= {"tokens_in_loops", "flaky_answers_believed"}  # in test_metrics_ground
    elsewhere |= {"checks_run", "tokens_on_stronger_model"}  # there, too
    elsewhere |= {"declaration_divergence"}  # in test_metrics_divergence
    elsewhere |= set(BLAME) | set(RECOGNITION) | set(OVERHEAD)  # in test_metrics_blame, test_recognition, below
    elsewhere |= {name for name in METRICS if name.startswith("tokens_timed_out")}  # in test_metrics_timeouts
    assert {n for n, m in METRICS.items() if m.better != "neither"} <= set(SABOTAGE) | elsewhere


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_duplicate_shows_at_its_own_boundary_only(boundary: str) -> None:
    sabotaged = replace(
        CLEAN, findings=tuple(replace(f, observed=3, duplicated=int(f.boundary == boundary)) for f in CLEAN.findings)
    )
    found = {name: value(f"duplicates_{name}", sabotaged) for name in BOUNDARIES}
    assert found == {name: 0.5 if name == boundary else 0.0 for name in BOUNDARIES}
    assert value("duplicate_incidence", sabotaged) == (0.0 if boundary == "hook" else 1 / 10)


def test_suppressing_everything_wins_duplicates_and_shows_as_loss() -> None:
    silent = tuple(replace(f, observed=0, lost=f.required, status="over_suppressed_silent") for f in CLEAN.findings)
    sabotaged = replace(CLEAN, findings=silent)
    assert value("duplicate_incidence", sabotaged) == 0.0
    assert value("lost_incidence", sabotaged) == value("wrongly_suppressed", sabotaged) == 1.0
    assert value("falsely_rejected", sabotaged) == 0.0


def test_merging_two_intents_counts_as_wrongly_suppressed() -> None:
    assert value("wrongly_suppressed", with_finding(observed=1, lost=1, status="wrongly_merged")) == 1 / 10


def test_phantoms_are_no_duplicates() -> None:
    assert value("duplicates_gross", SABOTAGE["phantom"]) == 0.0
    assert value("duplicate_incidence", SABOTAGE["phantom"]) == 0.0


@pytest.mark.parametrize("verdict", list(Verdict))
def test_each_verdict_is_counted_by_itself(verdict: Verdict) -> None:
    name = f"verdict_{verdict.value.replace('-', '_')}"
    loud = replace(CLEAN, verdicts={verdict.value: 7})
    assert value(name, loud) == 7.0
    assert sum(value(f"verdict_{v.value.replace('-', '_')}", loud) for v in Verdict) == 7.0


@pytest.mark.parametrize("lie", [-100, "many"])
def test_an_arm_cannot_speak_for_the_score(lie: object) -> None:
    own = event(9, 99, "note", kind="score", foreign_receipts=2)
    told = event(8, 98, "note", note="score", kind="score", foreign_receipts=lie)
    assert value("foreign_receipts", with_trace(told, own)) == 2


def test_in_doubt_falls_back_on_verdicts_without_notes() -> None:
    quiet = replace(with_trace(without="note"), verdicts={"reconciled": 1, "awaiting-waiver": 3})
    assert (value("in_doubt", quiet), value("in_doubt_resolved", quiet)) == (4.0, 0.25)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([("exit", 30, 0), ("epoch", 40, 1), ("checkpoint", 60, 1)], 30.0),
        ([("exit", 30, 0), ("checkpoint", 35, 0), ("epoch", 40, 1), ("checkpoint", 60, 1)], 30.0),  # of the dead one
        # a successor that dies before it got anywhere prolongs the outage and is none of its own
        ([("exit", 30, 0), ("epoch", 40, 1), ("exit", 50, 1), ("epoch", 60, 2), ("checkpoint", 90, 2)], 60.0),
        # two outages: 10 and 30
        (
            [
                *(("exit", 30, 0), ("epoch", 35, 1), ("checkpoint", 40, 1)),
                *(("exit", 50, 1), ("epoch", 60, 2), ("checkpoint", 80, 2)),
            ],
            20.0,
        ),
        ([("exit", 30, 0), ("epoch", 40, 1), ("delegation_end", 45, 1)], 15.0),  # only its end was left to do
        ([("exit", 30, 0), ("epoch", 40, 1)], 970.0),  # never: until the trial's end
        ([("exit", 30, 0), ("epoch", 40, 1), ("checkpoint", 60, 1), ("exit", 990, 1)], 30.0),  # nobody came after it
    ],
)
def test_recovery_is_from_the_first_death_to_the_next_durable_progress(events: list, expected: float) -> None:
    logs: dict[bool, list[Event]] = {False: [], True: []}
    for n, (kind, at_ms, epoch) in enumerate(events):
        logs[kind == "exit"].append(event(n, at_ms, kind, epoch=epoch, status="done"))
    trial = replace(CLEAN.trial, trace=tuple(logs[False]), truth=tuple(logs[True]))
    assert value("time_to_recover", replace(CLEAN, trial=trial)) == expected


def test_each_host_recovers_by_itself() -> None:
    """North dies at 30 and is back with a checkpoint at 60; what south does meanwhile is no recovery of north."""
    trace = (
        event(0, 0, "epoch", epoch=0, host="north"),
        event(1, 1, "epoch", epoch=1, host="south"),
        event(2, 35, "checkpoint", epoch=1),
        event(3, 40, "epoch", epoch=2, host="north"),
        event(4, 45, "checkpoint", epoch=1),
        event(5, 60, "checkpoint", epoch=2),
    )
    truth = (event(0, 30, "exit", epoch=0, signal="SIGKILL"), event(1, 70, "exit", epoch=1, signal="SIGKILL"))
    trial = replace(CLEAN.trial, trace=trace, truth=truth)
    assert value("time_to_recover", replace(CLEAN, trial=trial)) == 30.0


def test_success_counts_within_the_registered_budget_only() -> None:
    assert value("task_success_at_budget", replace(CLEAN, work=replace(CLEAN.work, billed=1500))) == 1.0
    assert value("task_success_at_budget", SABOTAGE["task_success_at_budget"]) == 0.0
    assert value("task_success_at_budget", replace(CLEAN, success=False)) == 0.0


def test_what_the_reaction_adds_to_a_fault() -> None:
    assert value("work_direct_tokens", CLEAN) == 40.0
    assert value("work_reaction_tokens", CLEAN) == 20.0
    assert value("work_amplification", CLEAN) == 0.5
    assert value("work_amplification", SABOTAGE["work_amplification"]) == 14.0


def test_each_doubt_is_counted_by_what_became_of_it() -> None:
    says = ("absent", "lost", "lost", "unknown")
    told = with_trace(*(event(9 + n, 62 + n, "note", note="in-doubt", says=answer) for n, answer in enumerate(says)))
    names = ("present", "absent", "lost", "unknown")
    assert [value(f"in_doubt_{name}", told) for name in names] == [1.0, 1.0, 2.0, 1.0]
    assert sum(value(f"in_doubt_{name}", told) for name in names) == value("in_doubt", told)
    assert value("in_doubt_resolved", told) == 0.8


def test_a_waiver_that_a_delegation_waits_for_is_no_second_effect() -> None:
    ended = event(11, 64, "delegation_end", delegation="orders", status="stopped", verdict="awaiting-waiver")
    waived = SABOTAGE["in_doubt_waived"]
    both = replace(waived, trial=replace(waived.trial, trace=(*waived.trial.trace, ended)))
    assert value("in_doubt_waived", both) == 1.0


def test_a_fault_spreads_to_delegations_that_it_was_not_aimed_at() -> None:
    assert value("fault_spread", replace(CLEAN, clean={"orders": False, "stock": True})) == 0.0
    assert value("fault_spread", SABOTAGE["fault_spread"]) == 0.5  # stock, of two scheduled faults
    fired = event(10, 80, "fault", fault=1, state="fired", delegation="stock", call_id="c3", fate="die")
    both = replace(SABOTAGE["fault_spread"], trial=replace(CLEAN.trial, truth=(*TRUTH, fired)))
    assert value("fault_spread", both) == 0.0


def test_a_store_is_measured_per_tenant_and_per_intended_effect() -> None:
    assert value("ledger_bytes", CLEAN) == 400.0
    assert value("ledger_bytes_per_tenant", CLEAN) == 150.0
    assert value("ledger_bytes_per_1000_effects", CLEAN) == pytest.approx(400 / 12 * 1000)  # twelve intended effects
    doubled = replace(CLEAN, findings=tuple(replace(f, observed=9, duplicated=2) for f in CLEAN.findings))
    assert value("ledger_bytes_per_1000_effects", doubled) == pytest.approx(400 / 12 * 1000)


@pytest.mark.parametrize("seam", list(SEAMS))
def test_a_slow_seam_shows_at_its_own_quantiles_only(seam: str) -> None:
    def crossed(slow_us: int) -> ScoredTrial:
        trace = []
        for n, (kind, us) in enumerate((kind, us) for kind in SEAMS for us in (1, 2, 3, 4)):
            trace.append(event(2 * n, n, "call", call=kind, call_id=f"c{n}"))
            trace.append(event(2 * n + 1, n, "outcome", call_id=f"c{n}", arm_us=us * slow_us if kind == seam else us))
        return replace(CLEAN, trial=replace(CLEAN.trial, trace=tuple(trace)))

    for kind in SEAMS:
        assert [value(f"overhead_{kind}_{q}", crossed(1)) for q in ("p50", "p99")] == [2.0, 4.0]
        expected = [200.0, 400.0] if kind == seam else [2.0, 4.0]
        assert [value(f"overhead_{kind}_{q}", crossed(100)) for q in ("p50", "p99")] == expected


def test_a_quantile_is_the_nearest_rank() -> None:
    values = [float(n) for n in range(1, 201)]
    assert [quantile(values, share) for share in (0.5, 0.99, 1.0)] == [100.0, 198.0, 200.0]
    assert quantile([7.0], 0.99) == quantile([7.0], 0.5) == 7.0


def test_depth_is_the_deepest_attempt() -> None:
    assert value("delegation_depth", with_trace(event(9, 9, "attempt", delegation="orders/verifier", depth=2))) == 2.0


NO_FAULT = replace(CLEAN, trial=replace(CLEAN.trial, record=replace(RECORD, faults_scheduled=0)))
NOT_APPLICABLE: list[tuple[str, ScoredTrial, str]] = [
    ("duplicate_incidence", replace(CLEAN, findings=()), "intends no effect"),
    ("work_destroyed_per_fault", NO_FAULT, "no fault"),
    ("time_to_recover", replace(CLEAN, trial=replace(CLEAN.trial, truth=())), "not restarted"),
    ("task_success_at_budget", replace(CLEAN, budget_tokens=0), "no token budget"),
    ("trial_real_s", with_record(world="sim"), "virtual"),
    ("work_amplification", with_work(direct=0), "no fault destroyed"),
    ("fault_spread", NO_FAULT, "no fault"),
    ("fault_spread", replace(CLEAN, clean={}), "not judged"),
    ("ledger_bytes", replace(CLEAN, trial=replace(CLEAN.trial, truth=TRUTH[:-1])), "recorded before"),
    ("ledger_bytes_per_tenant", replace(CLEAN, trial=replace(CLEAN.trial, truth=TRUTH[:-1])), "recorded before"),
    ("ledger_bytes_per_tenant", stored(tenants={}), "nothing by tenant"),
    ("ledger_bytes_per_1000_effects", replace(CLEAN, findings=()), "intends no effect"),
    ("overhead_model_p50", with_record(world="sim"), "virtual"),
    ("overhead_tool_p99", CLEAN, "recorded before"),
    ("overhead_commit_p50", CLEAN, "no call"),
    ("delegation_depth", with_trace(without="attempt"), "how deep"),
    ("in_doubt_resolved", replace(with_trace(without="note"), verdicts={}), "no effect was in doubt"),
]


@pytest.mark.parametrize(("name", "scored", "because"), NOT_APPLICABLE)
def test_what_cannot_be_told_is_said_and_not_zero(name: str, scored: ScoredTrial, because: str) -> None:
    found = METRICS[name].of(scored)
    assert isinstance(found, NotApplicable)
    assert because in found.because


@pytest.mark.parametrize("name", list(METRICS))
def test_the_registry_is_whole_and_pure(name: str) -> None:
    metric = METRICS[name]
    assert metric.name == name
    assert metric.unit
    assert metric.about
    assert metric.source
    assert metric.of(CLEAN) == metric.of(CLEAN)


def test_every_metric_of_the_folder_is_registered() -> None:
    listed = {id(metric) for metric in METRICS.values()}
    for path in Path(package.__file__).parent.glob("[a-z]*.py"):
        module = getattr(package, path.stem)
        found = [v for v in vars(module).values() if isinstance(v, Metric)]
        tables = [m for v in vars(module).values() if isinstance(v, dict) for m in v.values() if isinstance(m, Metric)]
        assert found or tables, path
        assert {id(metric) for metric in (*found, *tables)} <= listed, path


# --- the row that reports are made of -----------------------------------------------------------------------------


def test_a_row_keeps_what_the_report_needs() -> None:
    row = row_of(SABOTAGE["duplicate_incidence"])
    assert (row.intended, row.duplicated, row.lost) == (2 * len(PRIMARY_BOUNDARIES), 1, 0)
    assert (row.boundaries["hook"].intended, row.boundaries["transport"].gross) == (2, 1)
    assert set(row.metrics) == set(METRICS)
    assert row.invocations == ((1, 1), (2, 2))  # the hook's effect is not among them
    assert row.cost_curve == ((2, 120), (70, 180))


def test_the_row_of_an_invalid_trial_has_reasons_for_values() -> None:
    record = replace(RECORD, status="invalid", because="scheduler lag")
    row = row_of(replace(CLEAN, trial=replace(CLEAN.trial, record=record), findings=(), work=Work()))
    assert not row.valid
    assert all(isinstance(v, NotApplicable) and "scheduler lag" in v.because for v in row.metrics.values())
