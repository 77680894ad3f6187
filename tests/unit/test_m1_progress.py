"""The progress breaker: which sessions go in circles, which only look like it, and checks that hang or are slow."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from arms.mesh.m1_progress import (
    IDLE_TURNS_MAX,
    REPEATS_MAX,
    STALL_MS,
    WATCH_MS,
    Evidence,
    ProgressBreaker,
    Session,
    repeats,
)
from harness.core.clock import Clock
from harness.core.types import Attempt, DelegationOutcome, Err, Json, ModelCall, Ok, Outcome, Refused, ToolCall, Verdict
from tests.unit.armbench import Notes, attempt, context, model, on_virtual_time, run, tool


def history(text: str) -> list[Evidence]:
    """`A1 B2` is a call of A with the result 1, then one of B with the result 2."""
    return [Evidence(word[0], word[1:]) for word in text.split()]


@pytest.mark.parametrize(
    ("past", "call", "loop"),
    [
        ("", "A", False),
        ("A1", "A", False),
        ("A1 A1", "A", False),
        ("A1 A1 A1", "A", True),
        ("A1 A1 A1 A1 A1", "A", True),
        ("A1 A1 A1", "B", False),
        ("A1 A1 B1 A1", "A", False),
        ("B1 A1 A1 A1", "A", True),
        ("A1 A1 A2", "A", False),  # the results change: it may be waiting for something
        ("A1 A2 A1", "A", False),
        ("A1 A2 A2 A2", "A", True),  # and then nothing changes any more
        ("A1 B1 A1 B1", "A", False),
        ("A1 B1 A1 B1 A1", "B", False),
        ("A1 B1 A1 B1 A1 B1", "A", True),
        ("A1 B1 A1 B1 A1 B1", "B", False),
        ("C1 A1 B1 A1 B1 A1 B1", "A", True),
        ("A1 B1 A1 B2 A1 B3", "A", False),  # every round finds something else
        ("A1 B1 A2 B1 A1 B1", "A", False),
        ("A1 B1 C1 A1 B1 C1 A1 B1 C1", "A", True),
        ("A1 B1 C1 A1 B1 C1 A1 B1 C2", "A", False),
        ("A1 B1 C1 D1 A1 B1 C1 D1 A1 B1 C1 D1", "A", False),  # longer than what is taken for a circle
        ("A1 A1 B1 A1 A1 B1 A1 A1 B1", "A", False),  # an edit, its check, and the check once more
    ],
)
def test_a_loop_is_identical_calls_with_identical_results(past: str, call: str, loop: bool) -> None:
    assert (repeats(history(past), call) is not None) is loop


class Talk:
    """A session of one agent with the breaker around its tools."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.layer = ProgressBreaker(context(note=self.notes))
        self.reached = 0

    def use(self, name: str, result: Json = None, answer: Outcome | None = None, **args: Json) -> Outcome:
        async def beyond(call: ToolCall) -> Outcome:
            self.reached += 1
            return answer or Ok(value={"text": "the same"} if result is None else result)

        return on_virtual_time(self.layer.on_tool(tool(name, args=args), beyond))

    def turn(self) -> Outcome:
        async def beyond(call: ModelCall) -> Outcome:
            return Ok(value={})

        return run(self.layer.on_model(model(), beyond))

    def refused_at(self, calls: Iterator[dict[str, Any]], most: int = 54) -> int | None:
        """The number of the first call that was refused, counted from 1; None when `most` went through."""
        for number, call in enumerate(itertools.islice(calls, most), 1):
            if isinstance(self.use(**call), Refused):
                return number
        return None


def test_the_loop_of_54_identical_successes_ends_with_the_fourth_call() -> None:
    talk = Talk()
    assert talk.refused_at(itertools.repeat({"name": "read", "path": "a.py"})) == REPEATS_MAX == 4
    assert talk.reached == 3
    assert talk.notes.kinds() == ["progress-trip"]


def test_a_circle_of_two_calls_ends_with_the_fourth_round() -> None:
    talk = Talk()
    calls = itertools.cycle([{"name": "read", "path": "a.py"}, {"name": "grep", "pattern": "x", "path": ""}])
    assert talk.refused_at(calls) == 7


@pytest.mark.parametrize(
    "volatile",
    [
        {"request_id": "r{n}"},
        {"token": "0000000{n}-1111-4222-8333-444444444444"},
        {"since": "2026-01-01T00:00:0{n}Z"},
        {"path": "a.py", "at": 1_760_000_000_00},
    ],
)
def test_a_loop_that_differs_only_in_a_volatile_field_is_one(volatile: dict[str, Json]) -> None:
    def spelt(n: int) -> dict[str, Json]:
        return {k: v.format(n=n) if isinstance(v, str) else v * 10 + n for k, v in volatile.items()}

    talk = Talk()
    calls = ({"name": "grep", "pattern": "x", **spelt(n % 10)} for n in itertools.count())
    assert talk.refused_at(calls) == 4


@pytest.mark.parametrize(
    "calls",
    [
        ({"name": "list", "path": "", "result": {"rows": n}} for n in itertools.count()),
        ({"name": "read", "path": f"{n}.py"} for n in itertools.count()),
        ({"name": "edit", "path": "a.py", "old": f"v{n}", "new": f"v{n + 1}"} for n in itertools.count()),
    ],
    ids=["polling", "looking around", "repairing"],
)
def test_calls_that_bring_something_new_are_no_loop(calls: Iterator[dict[str, Any]]) -> None:
    assert Talk().refused_at(calls) is None


def test_a_file_that_changed_may_be_read_again_and_again() -> None:
    def calls() -> Iterator[dict[str, Any]]:
        for n in itertools.count():
            yield {"name": "edit", "path": "a.py", "old": "x", "new": "y", "result": {"digest": f"d{n}"}}
            yield {"name": "read", "path": "a.py", "result": {"content": f"v{n}", "digest": f"d{n}"}}

    assert Talk().refused_at(calls()) is None


def test_saying_that_one_is_done_is_never_a_loop() -> None:
    assert Talk().refused_at(itertools.repeat({"name": "done", "status": "complete"})) is None


def test_a_check_that_fails_alike_is_a_loop_and_one_that_converges_is_not() -> None:
    crash = {"passed": False, "failing": ["test_a"]}
    assert Talk().refused_at(itertools.repeat({"name": "run_check", "check": "unit", "result": crash})) == 4
    converging = ({"passed": False, "failing": [f"t{i}" for i in range(9 - n % 10)]} for n in range(9))
    calls = ({"name": "run_check", "check": "unit", "result": result} for result in converging)
    assert Talk().refused_at(calls) is None


# --- turns --------------------------------------------------------------------------------------------------------


def turns_until_refused(talk: Talk, each: Callable[[int], dict[str, Any] | None], most: int = 40) -> int | None:
    for n in range(most):
        if isinstance(talk.turn(), Refused):
            return n
        call = each(n)
        if call is not None:
            talk.use(**call)
    return None


def test_a_session_that_only_talks_ends_after_four_turns() -> None:
    assert turns_until_refused(Talk(), lambda n: None) == IDLE_TURNS_MAX == 4


def test_reading_the_same_bytes_is_no_news_and_reading_other_bytes_of_the_file_is() -> None:
    same = [{"name": "read", "path": "a.py"}, {"name": "read", "path": "b.py"}, {"name": "read", "path": "c.py"}]
    assert turns_until_refused(Talk(), lambda n: same[(n * n) % 3]) == 2 + IDLE_TURNS_MAX
    assert turns_until_refused(Talk(), lambda n: {"name": "read", "path": "a.py", "result": {"digest": n}}) is None


def test_news_resets_the_count_of_idle_turns() -> None:
    def call(n: int) -> dict[str, Any] | None:
        return {"name": "read", "path": f"{n}.py"} if n % 4 == 3 else None

    assert turns_until_refused(Talk(), call) is None


def test_a_stalled_attempt_is_stopped_with_its_verdict_and_the_next_one_starts_afresh() -> None:
    talk = Talk()

    def attempted(status: str, calls: int) -> Callable[[Attempt], Awaitable[DelegationOutcome]]:
        async def go(asked: Attempt) -> DelegationOutcome:
            for _ in range(calls):
                await talk.layer.on_tool(tool("read", attempt=asked.number), _same)
            return DelegationOutcome(status=status)  # type: ignore[arg-type]

        return go

    stopped = run(talk.layer.on_delegate(attempt(), attempted("failed", 5)))
    assert (stopped.status, stopped.verdict) == ("stopped", Verdict.STALLED)
    assert run(talk.layer.on_delegate(attempt(number=2), attempted("failed", 3))).status == "failed"
    assert run(talk.layer.on_delegate(attempt(number=3), attempted("done", 5))).status == "done"
    assert talk.layer._sessions == {}


async def _same(call: ToolCall) -> Outcome:
    return Ok(value={"text": "the same"})


def test_a_session_remembers_phases_and_delegations_apart() -> None:
    talk = Talk()
    for name in ("d", "e"):
        for _ in range(3):
            assert isinstance(run(talk.layer.on_tool(tool("read", name), _same)), Ok)
    assert {key[0] for key in talk.layer._sessions} == {"d", "e"}
    assert all(isinstance(s, Session) for s in talk.layer._sessions.values())


# --- checks that hang, and checks that are slow -------------------------------------------------------------------


def watched(lasts_ms: float, progress_ms: float | None) -> tuple[Outcome, float, bool]:
    """A check that lasts so long and shows a unit of progress so often (None: never): what came of it, after how many
    nominal milliseconds, and whether it was left alone."""
    clock = Clock()
    left_alone = False

    async def check(call: ToolCall) -> Outcome:
        nonlocal left_alone
        await clock.sleep_ms(lasts_ms)
        left_alone = True
        return Ok(value={"passed": True})

    async def main() -> tuple[Outcome, float]:
        def progress(call_id: str) -> int:
            return 1 if progress_ms is None else int(clock.now_ms() // progress_ms)

        layer = ProgressBreaker(context(now_ms=clock.now_ms, sleep_ms=clock.sleep_ms, progress=progress))
        outcome = await layer.on_tool(tool("run_check"), check)
        return outcome, clock.now_ms()

    outcome, now_ms = on_virtual_time(main())
    return outcome, now_ms, left_alone


def test_a_check_without_progress_is_ended_and_that_is_no_certain_failure() -> None:
    outcome, now_ms, left_alone = watched(1e9, None)
    assert isinstance(outcome, Err)
    assert (outcome.code, outcome.definite, outcome.verdict) == ("no-progress", False, Verdict.STALLED)
    assert STALL_MS <= now_ms <= STALL_MS + 2 * WATCH_MS
    assert not left_alone


@pytest.mark.parametrize(("lasts_ms", "progress_ms"), [(STALL_MS / 2, None), (20 * STALL_MS, STALL_MS / 2)])
def test_a_check_that_is_short_or_gets_on_is_left_alone_however_slow_it_is(
    lasts_ms: float, progress_ms: float | None
) -> None:
    outcome, now_ms, left_alone = watched(lasts_ms, progress_ms)
    assert isinstance(outcome, Ok)
    assert now_ms == lasts_ms
    assert left_alone


def test_progress_that_stops_is_no_progress() -> None:
    outcome, now_ms, _ = watched(1e9, 1e8)
    assert isinstance(outcome, Err)
    assert now_ms <= STALL_MS + 2 * WATCH_MS
