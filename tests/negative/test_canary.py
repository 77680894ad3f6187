"""Truth does not leak into what an orchestrator or an arm can see; and if it did, the check would say so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from arms import ARMS
from faults import FAULTS
from harness.core import rng
from harness.core.roles import Arm, Completion, Task
from harness.core.seams import NextEffect, NextModel, NextTool, PassThrough
from harness.core.types import EffectCall, ModelCall, Ok, Outcome, ToolCall
from harness.runner import parts
from harness.schedule import TrialSpec
from harness.simulate import run_sim
from harness.trial import Parts, TrialResult
from tests.negative.canary import leaks, listened
from tests.sim.test_trials import spec
from workloads.codegen.task import Codegen


def run(trial: TrialSpec, arm: Arm | None = None, workload: Codegen | None = None) -> tuple[TrialResult, list[Any]]:
    """A trial with a listener at every seam, and what it heard."""
    heard: list[Any] = []
    made = parts(trial)
    values = Parts(workload or made[0], listened(arm or made[1], heard), made[2])
    return run_sim(trial, values), heard


def token(trial: TrialSpec) -> str:
    return rng.token(trial.seed, "canary", trial.id)


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_canary_never_crosses_a_seam(arm: str, fault: str) -> None:
    result, heard = run(spec(arm, fault, FAULTS[fault].variants[0], seed=3))
    assert len(heard) > 100
    assert leaks(result.truth, heard) == []
    assert leaks(result.truth, result.trace) == []


def test_the_listener_changes_nothing() -> None:
    trial = spec("mesh", "staging_crash", "effect_unacknowledged", seed=3)
    plain, heard = run_sim(trial, Parts(*parts(trial))), run(trial)[0]
    assert heard.record == plain.record
    assert heard.truth == plain.truth
    assert [e for e in heard.trace if e.kind != "onion"] == [e for e in plain.trace if e.kind != "onion"]  # its layers


# --- planted leaks ------------------------------------------------------------------------------------------------


class Leak(PassThrough):
    """Knows the canary, as it never should, and lets it out in one place."""

    def __init__(self, where: str, secret: str) -> None:
        self._where, self._secret = where, secret

    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome:
        if self._where == "request":
            call = replace(call, request={**call.request, "user": self._secret})
        outcome = await next(call)
        if self._where == "answer" and isinstance(outcome, Ok):
            outcome = replace(outcome, value={**outcome.value, "content": f"I saw {self._secret}."})
        return outcome

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        outcome = await next(call)
        if self._where == "result" and isinstance(outcome, Ok) and isinstance(outcome.value, Mapping):
            outcome = replace(outcome, value={**outcome.value, "hint": [{"deep": self._secret.upper()}]})
        return outcome

    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome:
        if self._where == "payload":
            call = replace(call, payload={**call.payload, "x": self._secret})
        outcome = await next(call)
        return replace(outcome, receipt=self._secret) if self._where == "receipt" else outcome  # type: ignore[call-arg]


@pytest.mark.parametrize("where", ["request", "answer", "result", "payload", "receipt"])
def test_a_leak_through_an_arm_is_caught_wherever_it_is(where: str) -> None:
    trial = spec("bare", seed=3)
    leaking = replace(ARMS["bare"], layers=lambda context: (Leak(where, token(trial)),))
    result, heard = run(trial, leaking)
    assert leaks(result.truth, heard)


class Gossip(Codegen):
    """A model that was told what no model may know, and writes it into a file where nobody looks."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def reply(self, task: Task, request: dict[str, Any], nth: int, stream: int) -> Completion:
        told = super().reply(task, request, nth, stream)
        calls = []
        for name, arguments in told.tool_calls:
            args = json.loads(arguments)
            if name == "write":
                args["content"] += " " * 1_000 + self._secret
            calls.append((name, json.dumps(args)))
        return replace(told, tool_calls=tuple(calls))


def test_a_leak_into_a_long_text_is_caught_at_the_seam_although_the_trace_cuts_it() -> None:
    trial = spec("bare", seed=3)
    result, heard = run(trial, workload=Gossip(token(trial)))
    assert leaks(result.truth, heard)
    assert leaks(result.truth, [event for event in result.trace if event.kind == "call"]) == []


def test_a_truth_without_a_canary_proves_nothing() -> None:
    with pytest.raises(AssertionError, match="no canary"):
        leaks([], [])
