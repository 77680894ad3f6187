"""What the truth says of checks, defects and models, so that no number rests on an arm's word for them."""

from __future__ import annotations

from collections import Counter
from typing import get_type_hints

import msgspec
import pytest
from msgspec.structs import replace

from arms import ARMS
from faults import FAULTS
from harness.core.records import Event, Oracle, ScoredTrial, SealedTrial
from harness.core.roles import Arm, ArmContext, Task
from harness.core.seams import Layer, NextModel, NextTool, PassThrough
from harness.core.types import ModelCall, Ok, Outcome, ToolCall, Verdict
from harness.metrics import METRICS
from harness.pool import run_trial_sim
from harness.score import score
from harness.simulate import run_sim
from harness.trial import Parts, TrialResult
from tests.sim.test_relay import EVERYBODY, FIRST_MISSING, QUIET, relay
from tests.sim.test_trials import spec
from workloads import WORKLOADS
from workloads.oracles import ORACLES
from workloads.relay.facts import facts


def around(layer: Layer, arm: str = "naive_contained") -> Arm:
    """The arm with one more layer, outermost."""
    base = ARMS[arm]
    return replace(base, layers=lambda ctx: (layer, *base.layers(ctx)))


def run(arm: Arm, fault: str = "none", variant: str = "", seed: int = 5) -> TrialResult:
    values = Parts(WORKLOADS["codegen"], arm, FAULTS[fault] if fault != "none" else None)
    return run_sim(spec(arm.name, fault, variant, seed), values)


def judged(result: TrialResult, oracle: Oracle) -> ScoredTrial:
    return score(SealedTrial(record=result.record, trace=tuple(result.trace), truth=tuple(result.truth)), oracle)


def told(log: list[Event], kind: str) -> list[dict]:
    return [e.data for e in log if e.kind == kind]


# --- runs of checks -----------------------------------------------------------------------------------------------


def test_without_faults_every_answer_is_what_the_check_came_to() -> None:
    result = run(ARMS["naive"])
    came_to = {data["call_id"]: data["passed"] for data in told(result.truth, "checked")}
    answers = {data["call_id"]: data["passed"] for data in told(result.trace, "outcome") if "passed" in data}
    assert answers == came_to
    assert set(came_to.values()) == {True, False}
    assert all(set(data) == {"check", "delegation", "call_id", "passed"} for data in told(result.truth, "checked"))


@pytest.mark.parametrize("seed", range(6))
def test_a_turned_answer_is_the_opposite_of_what_the_check_came_to(seed: int) -> None:
    result = run(ARMS["naive"], "nondeterminism", "flip", seed)
    turned = {data["call_id"] for data in told(result.truth, "suffered")}
    came_to = {data["call_id"]: data["passed"] for data in told(result.truth, "checked")}
    answers = {data["call_id"]: data["passed"] for data in told(result.trace, "outcome") if "passed" in data}
    assert turned
    assert {id for id in answers if answers[id] != came_to[id]} == turned
    scored = judged(result, ORACLES["codegen"])
    assert METRICS["flaky_answers_believed"].of(scored) == len(turned)


def test_a_run_whose_monitor_broke_still_came_to_something_and_one_that_hangs_does_not() -> None:
    raised = run(ARMS["naive"], "nondeterminism", "monitor_raises")
    broken = {data["call_id"] for data in told(raised.truth, "suffered")}
    assert broken
    assert broken <= {data["call_id"] for data in told(raised.truth, "checked")}
    hung = run(ARMS["bare"], "hung_check", "hung_after_work")
    stopped = {data["call_id"] for data in told(hung.truth, "suffered")}
    assert stopped
    assert not stopped & {data["call_id"] for data in told(hung.truth, "checked")}


class Confident(PassThrough):
    """Answers the acceptance without running it."""

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        if call.args.get("check") == "acceptance":
            return Ok(value={"passed": True, "failing": []}, verdict=Verdict.EXECUTED)
        return await next(call)


def test_an_acceptance_that_nobody_ran_is_no_success() -> None:
    honest, confident = run(around(PassThrough())), run(around(Confident()))
    assert judged(honest, ORACLES["codegen"]).success
    assert {data["status"] for data in told(confident.trace, "delegation_end")} == {"done"}
    assert not judged(confident, ORACLES["codegen"]).success


class Repeating(PassThrough):
    """Runs every check twice."""

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        if call.tool == "run_check":
            await next(call)
        return await next(call)


def test_runs_that_an_arm_makes_by_itself_are_counted() -> None:
    def runs(arm: Arm) -> Counter[str]:
        result = run(arm)
        names = Counter(data["check"] for data in told(result.truth, "checked"))
        assert METRICS["checks_run"].of(judged(result, ORACLES["codegen"])) == names.total()
        return names

    once, twice = runs(around(PassThrough())), runs(around(Repeating()))
    assert twice == once + once


# --- defects ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", QUIET[:3])
def test_the_truth_names_the_defective_components_and_tells_nobody_else(seed: int) -> None:
    result = run_trial_sim(relay("naive_contained", seed=seed))
    assert told(result.truth, "defective") == [{"components": list(facts(seed).defective)}]
    assert "defective" not in msgspec.json.encode(result.trace).decode()
    assert not told(run(ARMS["naive"]).truth, "defective")


def test_an_arm_is_handed_no_task() -> None:
    assert Task not in get_type_hints(ArmContext).values()
    assert "defective" in Task.__struct_fields__
    assert "defective" not in {name for part in (ArmContext, Arm) for name in part.__struct_fields__}


def test_who_wakes_everybody_wakes_bystanders_and_who_looks_does_not() -> None:
    def value(arm: str, name: str, seed: int) -> object:
        return METRICS[name].of(judged(run_trial_sim(relay(arm, seed=seed)), ORACLES["relay"]))  # type: ignore[arg-type]

    for seed in QUIET[:3]:
        mine = len(facts(seed).defective)
        names = ("bystanders_woken", "true_owner_nominated", "blast_radius")
        assert [value(FIRST_MISSING, name, seed) for name in names] == [0.0, 1.0, mine]
        assert [value(EVERYBODY, name, seed) for name in names] == [5.0 - mine, 1.0, 5.0]


# --- models -------------------------------------------------------------------------------------------------------


class Lavish(PassThrough):
    """Asks a model of its own choice."""

    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome:
        return await next(replace(call, request={**call.request, "model": "scripted-strong"}))


def test_tokens_of_a_model_of_the_arms_own_choice_are_shown_apart() -> None:
    of, oracle = METRICS["tokens_on_stronger_model"].of, ORACLES["codegen"]
    plain, lavish = run(around(PassThrough())), run(around(Lavish()))
    assert {data["model"] for data in told(plain.truth, "billed")} > {"scripted"}  # services buy another one
    assert of(judged(plain, oracle)) == 0.0
    scored = judged(lavish, oracle)
    assert of(scored) == scored.work.billed > 0
