"""Tokens discarded by timeout kills: which turns a kill takes with it, and what it is counted against."""

from __future__ import annotations

from msgspec.structs import replace

from harness.accounting import account
from harness.core.records import RECORDER, NotApplicable, ScoredTrial
from harness.metrics import METRICS
from tests.unit.handmade import FILE, SPEC, TOKENS, Story, accept, build


class Clocked(Story):
    """A story told by today's recorder. Each scheduled fault says what it does."""

    def __init__(self, *fates: dict) -> None:
        super().__init__()
        self.trace.clear()
        self.note("epoch", epoch=0, recorder=RECORDER)
        for n, fate in enumerate(fates):
            self.really("fault", fault=n, state="armed", strike={"delegation": "d"}, **fate)

    def kill(self, call_id: str, verdict: bool = True) -> None:
        """The arm ends this call by the clock, and says so or not."""
        self.note("abandoned", call_id=call_id)
        said = "timed-out" if verdict else None
        self.note("outcome", call_id=call_id, result="err", verdict=said, code="timeout", definite=False)

    def scored(self) -> ScoredTrial:
        trial = self.trial(faults_scheduled=1)
        facts = {"findings": (), "success": True, "verdicts": {}, "exposed": True}
        return ScoredTrial(trial=trial, work=account(trial), **facts)  # type: ignore[arg-type]


def turns(s: Clocked) -> tuple[float, float]:
    """direct and reaction, in turns."""
    values = [METRICS[f"tokens_timed_out_{part}"].of(s.scored()) for part in ("direct", "reaction")]
    assert METRICS["tokens_timed_out"].of(s.scored()) == sum(values)  # type: ignore[arg-type]
    return values[0] / TOKENS, values[1] / TOKENS  # type: ignore[operator, return-value]


def killed_check(s: Clocked, struck: bool = True, **more: bool) -> None:
    """A turn that does nothing but run a check, which the arm ends by the clock."""
    completion = s.ask()
    call_id = s.tool(completion)
    if struck:
        s.fire("hung_check", call_id, fate="hang")
    s.kill(call_id, **more)
    s.turn(replay=completion, asked=True)


def test_nothing_killed_nothing_lost() -> None:
    s = Clocked()
    s.begin()
    build(s)
    accept(s)
    assert turns(s) == (0, 0)


def test_a_killed_turn_is_lost_even_where_the_agent_got_through() -> None:
    for struck, expected in ((True, (1, 0)), (False, (0, 1))):
        s = Clocked()
        s.begin()
        killed_check(s, struck)
        build(s)
        accept(s)
        assert turns(s) == expected
        assert s.work().destroyed == 0  # nobody discarded it: it stands beside the work destroyed


def test_what_the_arm_calls_it_does_not_matter() -> None:
    s = Clocked()
    s.begin()
    killed_check(s, verdict=False)
    build(s)
    accept(s)
    assert turns(s) == (1, 0)


def test_a_killed_turn_whose_writes_were_accepted_is_not_lost() -> None:
    s = Clocked()
    s.begin()
    completion = s.ask()
    s.kill(s.tool(completion))
    s.turn(writes=[[FILE, "v2", "write"]], replay=completion, asked=True)
    s.turn(done=True)
    accept(s)
    assert turns(s) == (0, 0)


def test_a_go_that_falls_with_a_kill_takes_its_other_turns_along() -> None:
    s = Clocked()
    s.begin()
    s.turn(reads=[SPEC])
    s.turn(writes=[[FILE, "v1", "write"]])
    killed_check(s)
    s.fail()
    s.begin(2)
    build(s)
    accept(s)
    assert turns(s) == (1, 2)
    assert s.work().destroyed == 3 * TOKENS


def test_other_goes_that_fail_are_no_kills() -> None:
    s = Clocked()
    s.begin()
    s.turn(reads=[SPEC])
    s.fail()
    s.begin(2)
    build(s)
    accept(s)
    assert turns(s) == (0, 0)


def test_the_end_of_the_trial_kills_nothing() -> None:
    s = Clocked()
    s.begin()
    completion = s.ask()
    s.note("limit")
    s.kill(s.tool(completion), verdict=False)
    assert turns(s) == (0, 0)


HANG, HELD, RESET = {"fate": "hang"}, {"fate": "cut", "how": "blackhole", "ms": 1.0}, {"fate": "cut", "how": "reset"}


def per_stall(*fates: dict) -> float | NotApplicable:
    s = Clocked(*fates)
    s.begin()
    killed_check(s)
    build(s)
    accept(s)
    return METRICS["tokens_timed_out_per_stall"].of(s.scored())


def test_the_denominator_is_what_was_scheduled_and_stalls() -> None:
    assert per_stall(HANG) == TOKENS
    assert per_stall(HANG, HELD) == TOKENS / 2
    assert per_stall(HANG, RESET) == TOKENS
    assert per_stall(RESET) == NotApplicable("no fault that stalls a call was scheduled")


def test_a_fault_of_which_nobody_knows_what_it_does_leaves_no_denominator() -> None:
    found = per_stall(HANG, {"class": "foreign"})
    assert isinstance(found, NotApplicable)
    assert "every scheduled fault" in found.because


def test_trials_of_an_older_recorder_do_not_tell() -> None:
    s = Clocked(HANG)
    s.trace[0] = replace(s.trace[0], data={"epoch": 0})
    s.begin()
    killed_check(s)
    build(s)
    accept(s)
    for name in ("tokens_timed_out", "tokens_timed_out_direct", "tokens_timed_out_per_stall"):
        found = METRICS[name].of(s.scored())
        assert isinstance(found, NotApplicable)
        assert "recorded before" in found.because
