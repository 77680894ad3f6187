"""The progress breaker: which sessions go in circles, which only look like it, and checks that hang or are slow."""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from arms.mesh import m1_progress
from arms.mesh.control import kinds
from arms.mesh.control.breaker import POLICY
from arms.mesh.m1_progress import IDLE_TURNS_MAX, STALL_MS, WATCH_MS, ProgressBreaker, Session
from arms.mesh.sessions import Evidence, ended, repeats, reworded, shape_of, tells
from harness.core.clock import Clock
from harness.core.types import (
    Attempt,
    DelegationOutcome,
    EffectContract,
    Err,
    Json,
    ModelCall,
    Ok,
    Outcome,
    Poll,
    Refused,
    ToolCall,
    Verdict,
)
from harness.incidents.layerbench import on_virtual_time
from tests.unit.armbench import Notes, Time, attempt, context, model, run, tool


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

    def __init__(self, observations: Any = None, **contract: Any) -> None:
        self.notes, self.time = Notes(), Time()
        declared = EffectContract(**contract)
        given = context(note=self.notes, time=self.time, contract=declared)
        self.layer = ProgressBreaker(given, observations)
        self.reached = 0

    def use(
        self, tool_name: str, result: Json = None, answer: Outcome | None = None, *, takes_ms: float = 0.0, **args: Json
    ) -> Outcome:
        async def beyond(call: ToolCall) -> Outcome:
            self.reached += 1
            self.time.now += takes_ms
            return answer or Ok(value={"text": "the same"} if result is None else result)

        return on_virtual_time(self.layer.on_tool(tool(tool_name, args=args), beyond))

    def turn(self, messages: list[Json] | None = None, wants: int = 0) -> Outcome:
        async def beyond(call: ModelCall) -> Outcome:
            return Ok(value={"tool_calls": [{}] * wants})

        return run(self.layer.on_model(model({"messages": messages or []}), beyond))

    def refused_at(self, calls: Iterator[dict[str, Any]], most: int = 54) -> int | None:
        """The number of the first call that was refused, counted from 1; None when `most` went through."""
        for number, call in enumerate(itertools.islice(calls, most), 1):
            if isinstance(self.use(**call), Refused):
                return number
        return None


def test_the_loop_of_54_identical_successes_ends_with_the_fourth_call() -> None:
    talk = Talk()
    assert talk.refused_at(itertools.repeat({"tool_name": "read", "path": "a.py"})) == POLICY.session.repeats_max == 4
    assert talk.reached == 3
    ((kind, told),) = talk.notes
    assert (kind, told["scope"], told["decision"]) == ("progress-decision", "session", "trip")
    assert (told["delegation"], told["attempt"], told["phase"], told["turn"]) == ("d", 1, "p", 0)
    assert "a.py" in told["evidence"][0]


def test_a_circle_of_two_calls_ends_with_the_fourth_round() -> None:
    talk = Talk()
    calls = itertools.cycle([{"tool_name": "read", "path": "a.py"}, {"tool_name": "grep", "pattern": "x", "path": ""}])
    assert talk.refused_at(calls) == 7


@pytest.mark.parametrize(
    "volatile",
    [
        {"request_id": "r{n}"},
        {"token": "0000000{n}-1111-4222-8333-444444444444"},
        {"since": "2026-01-01T00:00:0{n}Z"},
        {"path": "a.py", "at": 1_760_000_000_00},
        {"pattern": "TODO-176000000000{n}"},
        {"pattern": "since 2026-01-01T00:00:0{n}Z"},
        {"path": "run/0000000{n}-1111-4222-8333-444444444444/log"},
    ],
)
def test_a_loop_that_differs_only_in_a_volatile_field_is_one(volatile: dict[str, Json]) -> None:
    def spelt(n: int) -> dict[str, Json]:
        return {k: v.format(n=n) if isinstance(v, str) else v * 10 + n for k, v in volatile.items()}

    talk = Talk()
    calls = ({"tool_name": "grep", "word": "x", **spelt(n % 10)} for n in itertools.count())
    assert talk.refused_at(calls) == 4


@pytest.mark.parametrize(
    "calls",
    [
        ({"tool_name": "list", "path": "", "result": {"rows": n}} for n in itertools.count()),
        ({"tool_name": "read", "path": f"{n}.py"} for n in itertools.count()),
        ({"tool_name": "edit", "path": "a.py", "old": f"v{n}", "new": f"v{n + 1}"} for n in itertools.count()),
    ],
    ids=["polling", "looking around", "repairing"],
)
def test_calls_that_bring_something_new_are_no_loop(calls: Iterator[dict[str, Any]]) -> None:
    assert Talk().refused_at(calls) is None


def test_a_file_that_changed_may_be_read_again_and_again() -> None:
    def calls() -> Iterator[dict[str, Any]]:
        for n in itertools.count():
            yield {"tool_name": "edit", "path": "a.py", "old": "x", "new": "y", "result": {"digest": f"d{n}"}}
            yield {"tool_name": "read", "path": "a.py", "result": {"content": f"v{n}", "digest": f"d{n}"}}

    assert Talk().refused_at(calls()) is None


def test_saying_that_one_is_done_is_never_a_loop() -> None:
    assert Talk().refused_at(itertools.repeat({"tool_name": "done", "status": "complete"})) is None


def test_a_check_that_fails_alike_is_a_loop_and_one_that_converges_is_not() -> None:
    crash = {"passed": False, "failing": ["test_a"]}
    assert Talk().refused_at(itertools.repeat({"tool_name": "run_check", "check": "unit", "result": crash})) == 4
    converging = ({"passed": False, "failing": [f"t{i}" for i in range(9 - n % 10)]} for n in range(9))
    calls = ({"tool_name": "run_check", "check": "unit", "result": result} for result in converging)
    assert Talk().refused_at(calls) is None


# --- other words, the same question -------------------------------------------------------------------------------


def asks(tool_name: str, result: Json, **args: Json) -> Iterator[dict[str, Any]]:
    """Endless calls; `{n}` in an argument is their number."""
    for n in itertools.count():
        spelt = {k: v.format(n=n) if isinstance(v, str) else v for k, v in args.items()}
        yield {"tool_name": tool_name, "result": result, **spelt}


LET_THROUGH = POLICY.session.reworded_max


@pytest.mark.parametrize(
    "calls",
    [
        lambda: asks("shell", "same", cmd="check --tag word{n} --all"),
        lambda: asks("activity.search", {"hits": ["e1"]}, query="phrasing {n}", window="w1"),
        lambda: asks("shell", {"out": "tree"}, cmd="find . -depth {n}"),
    ],
)
def test_the_same_question_in_other_words_with_one_answer_is_refused_from_the_sixth_on(calls: Any) -> None:
    assert Talk().refused_at(calls()) == LET_THROUGH + 1 == 6


@pytest.mark.parametrize(
    "calls",
    [
        lambda: asks("dir.lookup", "[]", name="n{n}"),
        lambda: asks("dir.lookup", {"entry": "none"}, name="n{n}"),
        lambda: asks("read", {"content": "equal", "digest": "d"}, path="src/f{n}.py"),
        lambda: asks("order.get", {"entry": "none"}, id="9{n:012}"),  # thirteen digits, and no time of ours
        lambda: asks("chat.post", "ok", text="this is message {n}"),
        lambda: asks("chat.post", {"ok": True, "channel": "general"}, text="message no {n}", channel="general"),
        lambda: asks("grep", {"matches": []}, pattern="def f{n}", path=""),
        lambda: asks("edit", {"edited": "a.py"}, path="a.py", old="line {n} of it", new="another line {n}"),
        lambda: ({"tool_name": "search", "q": f"words {n}", "result": {"hits": [n]}} for n in itertools.count()),
    ],
)
def test_walking_through_things_posting_texts_and_finding_something_are_no_loop(calls: Any) -> None:
    assert Talk().refused_at(calls()) is None


def test_nothing_is_decided_on_answers_that_say_nothing_and_that_is_said_once() -> None:
    talk = Talk()
    assert talk.refused_at(asks("chat.post", "ok", text="this is message {n}")) is None
    assert [told["decision"] for _, told in talk.notes] == ["withheld"]
    assert talk.notes[0][1]["constant"] == ['"ok"']


@pytest.mark.parametrize(
    ("between", "at"),
    [
        ({"tool_name": "note.think", "text": "next step", "result": "ok"}, 8),  # says nothing: the count goes on
        ({"tool_name": "read", "path": "a.py", "result": {"digest": "d1"}}, 11),  # new the first time only
        (None, 6),
    ],
)
def test_other_calls_in_between_reset_the_count_only_by_news(between: dict[str, Any] | None, at: int) -> None:
    def calls() -> Iterator[dict[str, Any]]:
        for n in itertools.count():
            if between is not None and n in (3, 4):
                yield between
            yield {"tool_name": "shell", "cmd": f"status; find . -n {n}", "result": "tree"}

    assert Talk().refused_at(calls()) == at


def test_the_count_of_rewordings_is_over_a_window_and_back_to_the_last_news() -> None:
    def past(text: str) -> list[Evidence]:
        kinds = {"S": ("s", True, False), "N": ("n", True, True), "o": ("o", True, False), "m": ("s", False, False)}
        return [Evidence(f"c{i}", "r", *kinds[letter]) for i, letter in enumerate(text)]

    assert reworded(past("SSS"), "s") == 3
    assert reworded(past("SSoSoS"), "s") == 4
    assert reworded(past("SSNSS"), "s") == 2
    assert reworded(past("SmS"), "s") == 2
    assert reworded(past("S" + "o" * POLICY.session.window_calls), "s") == 0
    assert reworded(past("SSS"), "") == 0
    changed = [*past("SS"), Evidence("c", "other", "s"), *past("S")]
    assert reworded(changed, "s") == 1


def test_a_shape_keeps_identifiers_and_leaves_texts_out() -> None:
    assert shape_of("search", {"q": "some words", "n": 7}) == shape_of("search", {"q": "other words here", "n": 7.0})
    assert shape_of("search", {"q": "some words", "n": 7}) != shape_of("search", {"q": "some words", "n": 8})
    assert shape_of("search", {"q": "word"}) == ""
    assert shape_of("result.submit", {"text": "all of it"}) == shape_of("write", {"text": "all of it"}) == ""


@pytest.mark.parametrize(
    ("result", "args", "says"),
    [
        ("ok", {}, False),
        ({"status": "accepted", "to": "ann"}, {"to": "ann"}, False),
        ({"matches": []}, {}, False),
        ({"id": 7}, {}, True),
        ("same", {"cmd": "x"}, True),
    ],
)
def test_a_result_says_something_when_it_is_neither_acknowledgement_nor_echo(
    result: Json, args: Json, says: bool
) -> None:
    assert tells(result, args) is says


def test_answers_out_of_the_ledger_count_like_any_other() -> None:
    talk = Talk()
    vouched = Ok(value={"id": 7}, verdict=Verdict.SUPPRESSED)
    assert [type(talk.use("crm.add", answer=vouched, account=7)) for _ in range(4)] == [Ok, Ok, Ok, Refused]


# --- waiting ------------------------------------------------------------------------------------------------------


def poll_until(talk: Talk, n: int, takes_ms: float, name: str = "job.look", **args: Json) -> list[str]:
    """What came of so many equal calls: `ok`, or the verdict they were refused with."""
    said = [talk.use(name, {"is": "pending"}, takes_ms=takes_ms, **args) for _ in range(n)]
    return ["ok" if isinstance(one, Ok) else str(one.verdict) for one in said]


DECLARED = (Poll(tool="job.look", until="done", deadline_ms=15_000),)


def test_a_declared_poll_is_bounded_by_its_deadline_from_the_first_answer_on() -> None:
    talk = Talk(polls=DECLARED)
    # the first answer is there at 5 s; the call at 20 s is in time, and the one at 25 s is the last look
    assert poll_until(talk, 7, 5_000) == ["ok"] * 6 + ["exhausted-budget"]
    assert isinstance(talk.layer._sessions["d", 1, "p"].stop, Refused)
    assert [(told["scope"], told["decision"]) for _, told in talk.notes] == [("wait", "trip")]
    assert poll_until(Talk(), 6, 5_000) == ["ok"] * 3 + ["refused-as-stalled"] * 3


def test_a_poll_of_a_check_is_declared_by_the_name_of_the_check() -> None:
    talk = Talk(polls=(Poll(tool="run_check slow", until="passed"),))
    assert poll_until(talk, 9, 1, "run_check", check="slow") == ["ok"] * 9
    assert poll_until(talk, 4, 1, "run_check", check="unit")[-1] == "refused-as-stalled"


@pytest.mark.parametrize("until", ["done", ""])
def test_a_poll_ends_with_its_answer_and_the_same_call_is_ordinary_from_then_on(until: str) -> None:
    talk = Talk(polls=(Poll(tool="job.look", until=until, deadline_ms=1_000),))
    poll_until(talk, 5, 100)
    said = [talk.use("job.look", {"is": "done"}, takes_ms=5_000) for _ in range(5)]
    assert [type(one) for one in said][:3] == [Ok] * 3
    assert said[-1].verdict is Verdict.STALLED  # type: ignore[union-attr]


def test_a_poll_in_too_much_haste_is_an_ordinary_call() -> None:
    hasty = (Poll(tool="job.look", until="done", interval_ms=500),)
    assert poll_until(Talk(polls=hasty), 9, 500) == ["ok"] * 9
    assert "refused-as-stalled" in poll_until(Talk(polls=hasty), 9, 1)


def test_a_waiting_tool_that_nobody_declared_may_be_asked_with_time_between_for_a_while() -> None:
    usual = kinds.POLICY.waits
    said = poll_until(Talk(), usual.polls_max + 9, usual.interval_min_ms, "job.status")
    assert said[: usual.polls_max] == ["ok"] * usual.polls_max
    assert said[-1] == "refused-as-stalled"
    assert poll_until(Talk(), 6, 1, "job.status")[-1] == "refused-as-stalled"


def test_turns_of_waiting_are_not_idle() -> None:
    talk = Talk(polls=DECLARED)
    for _ in range(9):
        assert isinstance(talk.turn(), Ok)
        talk.use("job.look", {"is": "pending"}, takes_ms=100)


def test_a_file_may_be_read_once_more_after_the_conversation_was_cut_short() -> None:
    def told(n: int) -> list[Json]:
        return [{"role": "user", "content": "x"}] * n

    def reads(talk: Talk, n: int) -> list[type]:
        return [type(talk.use("read", {"digest": "d"}, path="f")) for _ in range(n)]

    talk = Talk()
    talk.turn(told(8))
    assert reads(talk, 3) == [Ok] * 3
    talk.turn(told(2))
    assert reads(talk, 2) == [Ok, Refused]
    grown = Talk()
    grown.turn(told(2))
    reads(grown, 3)
    grown.turn(told(8))
    assert reads(grown, 1) == [Refused]


def test_evidence_of_a_check_in_quarantine_is_not_counted() -> None:
    class Quarantine:
        def quarantined(self, delegation: str) -> str | None:
            return "it contradicts itself"

    failing = {"passed": False, "failing": ["t1"]}
    talk = Talk(Quarantine())
    assert talk.refused_at(asks("run_check", failing, check="unit")) is None
    assert talk.refused_at(asks("read", {"digest": "d"}, path="f")) == 4


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
    same = [
        {"tool_name": "read", "path": "a.py"},
        {"tool_name": "read", "path": "b.py"},
        {"tool_name": "read", "path": "c.py"},
    ]
    assert turns_until_refused(Talk(), lambda n: same[(n * n) % 3]) == 2 + IDLE_TURNS_MAX
    assert turns_until_refused(Talk(), lambda n: {"tool_name": "read", "path": "a.py", "result": {"digest": n}}) is None


def test_news_resets_the_count_of_idle_turns() -> None:
    def call(n: int) -> dict[str, Any] | None:
        return {"tool_name": "read", "path": f"{n}.py"} if n % 4 == 3 else None

    assert turns_until_refused(Talk(), call) is None


def gated(verdict: str, n: int = 1) -> list[Json]:
    """A conversation whose last turn was refused."""
    told = json.dumps({"error": verdict, "refused": True})
    return [{"role": "assistant"}, *[{"role": "tool", "content": told}] * n]


@pytest.mark.parametrize("verdict", ["rejected-by-gate", "awaiting-waiver", "routed", "abstained"])
def test_turns_that_a_gate_refused_say_nothing_about_progress(verdict: str) -> None:
    talk = Talk()
    for _ in range(20):
        assert isinstance(talk.turn(gated(verdict), wants=1), Ok)


def test_other_refusals_and_mixed_turns_are_judged() -> None:
    for messages in (gated("exhausted-budget"), [*gated("routed"), {"role": "tool", "content": '{"error": "x"}'}]):
        talk = Talk()
        assert [type(talk.turn(messages, wants=2)) for _ in range(6)][-1] is Refused


def test_calls_that_never_came_this_far_were_refused_further_out() -> None:
    talk = Talk()
    assert all(isinstance(talk.turn(wants=1), Ok) for _ in range(20))


def test_a_gate_that_refuses_further_in_is_no_loop_and_no_idle_turn() -> None:
    talk = Talk()
    gate = Refused(verdict=Verdict.AWAITING_WAIVER, because="x")
    for _ in range(9):
        assert isinstance(talk.turn(wants=1), Ok)
        assert talk.use("run_check", answer=gate, check="unit") is gate


def test_a_session_that_was_stopped_does_not_go_on_and_is_not_done() -> None:
    talk = Talk()
    talk.refused_at(itertools.repeat({"tool_name": "read", "path": "a.py"}), most=4)
    assert isinstance(talk.use("done", status="complete"), Refused)
    assert isinstance(talk.turn(), Refused)
    assert talk.notes.kinds() == ["progress-decision"]  # said once


STALL = Refused(verdict=Verdict.STALLED, because="a circle")
LATE = Refused(verdict=Verdict.EXHAUSTED, because="waited too long")


@pytest.mark.parametrize(
    ("status", "verdict", "stop", "delivered", "expected"),
    [
        ("failed", None, None, False, ("failed", None)),
        ("failed", None, STALL, False, ("stopped", Verdict.STALLED)),
        ("stopped", Verdict.STALLED, STALL, False, ("stopped", Verdict.STALLED)),
        ("stopped", Verdict.EXHAUSTED, STALL, False, ("stopped", Verdict.EXHAUSTED)),
        ("stopped", Verdict.FENCED, STALL, False, ("stopped", Verdict.FENCED)),
        ("stopped", Verdict.FENCED, STALL, True, ("stopped", Verdict.FENCED)),
        ("failed", None, LATE, False, ("stopped", Verdict.EXHAUSTED)),
        ("failed", None, STALL, True, ("done", None)),
        ("stopped", Verdict.STALLED, STALL, True, ("done", None)),
        ("failed", None, None, True, ("failed", None)),
        ("done", None, STALL, False, ("done", None)),
    ],
)
def test_stalled_exhausted_and_fenced_are_told_apart(
    status: Any, verdict: Verdict | None, stop: Refused | None, delivered: bool, expected: tuple
) -> None:
    outcome = ended(DelegationOutcome(status=status, verdict=verdict), stop, delivered)
    assert (outcome.status, outcome.verdict) == expected


def test_a_result_that_was_handed_up_stays_handed_up() -> None:
    talk = Talk()

    async def _inside(asked: Attempt) -> DelegationOutcome:
        for _ in range(6):
            await talk.layer.on_tool(tool("result.submit", args={"data": "R"}), _accepted)
        return DelegationOutcome(status="failed")

    assert run(talk.layer.on_delegate(attempt(), _inside)).status == "done"


async def _accepted(call: ToolCall) -> Outcome:
    return Ok(value="accepted")


def test_without_its_guards_the_loops_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(m1_progress, "repeats", lambda history, call: None)
    assert Talk().refused_at(itertools.repeat({"tool_name": "read", "path": "a.py"})) is None
    monkeypatch.setattr(m1_progress, "reworded", lambda history, shape: 0)
    assert Talk().refused_at(asks("shell", "same", cmd="check --tag word{n} --all")) is None


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
