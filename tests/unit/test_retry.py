"""Bounded retry: which errors are tried again, how long it waits, and that chance depends on names alone."""

from __future__ import annotations

import pytest

from arms.common.defaults import DELEGATION_ATTEMPTS, EFFECT_RETRY, MODEL_RETRY
from arms.common.retry import Retry, RetryDelegation, RetryPolicy
from harness.core import rng
from harness.core.types import Attempt, DelegationOutcome, Err, Ok, Outcome, Refused, Verdict
from tests.unit.armbench import Time, attempt, context, effect, model, run, tool

POLICY = RetryPolicy(attempts_max=4, base_ms=100, max_ms=250, retry_on=("busy",))
BUSY = Err(code="busy", definite=False)


@pytest.mark.parametrize(
    ("outcome", "model_again", "effect_again"),
    [
        (Ok(), False, False),
        (Refused(verdict=Verdict.STALLED, because="x"), False, False),
        (Err(code="http-429", definite=True), True, True),
        (Err(code="http-503", definite=True), True, True),
        (Err(code="ejected", definite=True), True, True),
        (Err(code="connection-reset", definite=False), True, False),  # an effect may have happened
        (Err(code="truncated", definite=False), True, False),
        (Err(code="timeout", definite=False), True, False),
        (Err(code="monitor-error", definite=False), False, False),
        (Err(code="no-progress", definite=False), False, False),
    ],
)
def test_what_certainly_did_not_happen_is_tried_again_and_a_model_also_after_a_lost_answer(
    outcome: Outcome, model_again: bool, effect_again: bool
) -> None:
    assert (MODEL_RETRY.wants(outcome), EFFECT_RETRY.wants(outcome)) == (model_again, effect_again)


def tried(answers: list[Outcome], policy: RetryPolicy = POLICY, call_id: str = "m1", draw: float | None = None):  # type: ignore[no-untyped-def]
    """The outcome, how many answers were taken, and the pauses."""
    time, left = Time(), list(answers)

    async def beyond(call: object) -> Outcome:
        return left.pop(0)

    more = {} if draw is None else {"draw": lambda *name: draw}
    layer = Retry(context(time=time, **more), model=policy)
    outcome = run(layer.on_model(model(call_id=call_id), beyond))
    return outcome, len(answers) - len(left), time.slept


@pytest.mark.parametrize(
    ("answers", "taken"),
    [
        ([Ok()], 1),
        ([BUSY, Ok()], 2),
        ([BUSY, BUSY, BUSY, Ok()], 4),
        ([BUSY, BUSY, BUSY, BUSY, Ok()], 4),  # given up
        ([BUSY, Err(code="gone", definite=False), Ok()], 2),
        ([Refused(verdict=Verdict.EXHAUSTED, because="x"), Ok()], 1),
        ([Err(code="http-503", definite=True), Ok()], 1),  # this policy names no certain error
    ],
)
def test_it_tries_until_it_is_answered_or_the_number_of_tries_is_used_up(answers: list[Outcome], taken: int) -> None:
    outcome, count, slept = tried(answers)
    assert (outcome, count) == (answers[taken - 1], taken)
    assert len(slept) == taken - 1


@pytest.mark.parametrize(("draw", "pauses"), [(0.0, [0, 0, 0]), (0.5, [50, 100, 125]), (1.0, [100, 200, 250])])
def test_pauses_grow_up_to_a_bound_and_are_uniform_below_it(draw: float, pauses: list[float]) -> None:
    assert tried([BUSY] * 4, draw=draw)[2] == pytest.approx(pauses)


def test_a_pause_is_drawn_by_the_name_of_its_call_and_number() -> None:
    first, again, other = (tried([BUSY] * 4, call_id=name)[2] for name in ("a", "a", "b"))
    caps = [100, 200, 250]
    assert first == pytest.approx([rng.draw(1, "backoff", "a", n) * cap for n, cap in enumerate(caps, 1)])
    assert first == again
    assert all(x != y for x, y in zip(first, other, strict=True))


def test_a_seam_without_a_policy_is_left_alone() -> None:
    asked: list[str] = []

    async def beyond(call: object) -> Outcome:
        asked.append(type(call).__name__)
        return BUSY

    layer = Retry(context(), effect=POLICY)
    run(layer.on_model(model(), beyond))
    run(layer.on_tool(tool("run_check"), beyond))
    run(layer.on_effect(effect(), beyond))
    assert asked == ["ModelCall", "ToolCall", *["EffectCall"] * 4]


# --- delegations --------------------------------------------------------------------------------------------------


def attempts(statuses: list[str], first: Attempt) -> tuple[DelegationOutcome, list[Attempt], list[float]]:
    time, seen, left = Time(), [], list(statuses)

    async def beyond(asked: Attempt) -> DelegationOutcome:
        seen.append(asked)
        return DelegationOutcome(status=left.pop(0), code=f"code{len(seen)}")  # type: ignore[arg-type]

    layer = RetryDelegation(context(time=time), attempts_max=DELEGATION_ATTEMPTS, base_ms=1_000, max_ms=3_000)
    return run(layer.on_delegate(first, beyond)), seen, time.slept


@pytest.mark.parametrize(
    ("statuses", "number", "numbers", "ended"),
    [
        (["done"], 1, [1], "done"),
        (["failed", "done"], 1, [1, 2], "done"),
        (["failed"] * 9, 1, [1, 2, 3, 4], "failed"),
        (["stopped", "done"], 1, [1], "stopped"),  # somebody decided so
        (["failed"] * 9, 3, [3, 4], "failed"),  # resumed: the tries before the crash count
        (["failed"] * 9, 4, [4], "failed"),
    ],
)
def test_a_failed_delegation_is_run_again_a_few_times_and_a_stopped_one_is_not(
    statuses: list[str], number: int, numbers: list[int], ended: str
) -> None:
    outcome, seen, slept = attempts(statuses, attempt(number=number))
    assert (outcome.status, [a.number for a in seen]) == (ended, numbers)
    caps = [min(3_000, 1_000 * 2 ** (n - 1)) for n in numbers[:-1]]
    assert len(slept) == len(caps)
    assert all(0 <= pause < cap for pause, cap in zip(slept, caps, strict=True))


def test_a_new_attempt_starts_afresh_and_is_told_why_the_others_failed() -> None:
    resumed = Attempt(delegation=attempt().delegation, number=1, resumed=True, keep_workspace=True, notes=("old",))
    _, seen, _ = attempts(["failed", "failed", "done"], resumed)
    assert [(a.resumed, a.keep_workspace, a.notes) for a in seen] == [
        (True, True, ("old",)),
        (False, False, ("old", "code1")),
        (False, False, ("old", "code1", "code2")),
    ]
