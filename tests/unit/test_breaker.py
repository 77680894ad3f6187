"""The breakers of the naive arm: pure decisions by table, and the layer that feeds them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arms.naive.arm import BREAKER
from arms.naive.breaker import Breaker, BreakerPolicy, BreakerState, admits, decide
from harness.core.types import Err, Ok, Outcome, Refused, Verdict
from tests.unit.armbench import HOOK, Notes, Time, context, effect, model, run, tool

POLICY = BreakerPolicy(
    window_ms=1_000,
    volume_min=4,
    error_rate=0.5,
    open_ms=300,
    consecutive_max=3,
    ejection_ms=100,
    ejection_max_ms=250,
    panic=False,
)
RATE_ONLY = replace(POLICY, consecutive_max=99)


def after(policy: BreakerPolicy, outcomes: str, every_ms: float = 10.0) -> tuple[BreakerState, float]:
    """The state after these outcomes (`x` failed, `.` did not), one every so often, and the time of the last."""
    state, now_ms = BreakerState(), 0.0
    for n, outcome in enumerate(outcomes):
        now_ms = n * every_ms
        state = decide(policy, state, now_ms, outcome == "x")
    return state, now_ms


@pytest.mark.parametrize(
    ("outcomes", "every_ms", "opens"),
    [
        ("xx", 10, False),  # too few calls to speak of a rate
        ("xxx", 10, False),
        ("xxxx", 10, True),
        ("..xx", 10, True),  # half of them
        ("...x", 10, False),
        ("....xxx", 10, False),
        ("....xxxx", 10, True),
        ("x..x", 10, True),
        ("xxxx", 400, False),  # the first ones have left the window
        ("....x.x.x", 240, True),
        ("........x", 10, False),
    ],
)
def test_the_rate_breaker_opens_at_a_share_of_errors_among_enough_recent_calls(
    outcomes: str, every_ms: float, opens: bool
) -> None:
    state, now_ms = after(RATE_ONLY, outcomes, every_ms)
    assert (state.shut_until_ms == now_ms + POLICY.open_ms) is opens
    assert admits(state, now_ms) is not opens


def test_an_open_breaker_admits_again_after_its_time_and_counts_from_nothing() -> None:
    state, now_ms = after(RATE_ONLY, "xxxx")
    assert [admits(state, now_ms + ms) for ms in (0, 299, 300, 5_000)] == [False, False, True, True]
    assert state.recent == ()
    assert admits(decide(RATE_ONLY, state, now_ms + 300, True), now_ms + 300)


@pytest.mark.parametrize(
    ("outcomes", "ejections", "shut_ms"),
    [
        ("xx", 0, None),
        ("xx.xx", 0, None),
        ("xxx", 1, 100),
        ("xxx.xxx", 2, 200),
        ("xxxxxx", 2, 200),
        ("xxxxxxxxx", 3, 250),  # not more than the most
        ("xxxxxxxxxxxx", 4, 250),
    ],
)
def test_consecutive_errors_eject_for_longer_each_time(outcomes: str, ejections: int, shut_ms: float | None) -> None:
    state, now_ms = after(replace(POLICY, volume_min=99), outcomes)
    assert state.ejections == ejections
    assert state.shut_until_ms == (-1.0 if shut_ms is None else now_ms + shut_ms)


def test_in_panic_an_ejection_is_counted_and_the_traffic_goes_on() -> None:
    state, now_ms = after(replace(POLICY, panic=True, volume_min=99), "xxxxxx")
    assert (state.ejections, admits(state, now_ms)) == (2, True)


def test_in_panic_the_rate_breaker_opens_no_later_for_an_ejection_at_the_same_call() -> None:
    state, now_ms = after(replace(POLICY, panic=True, consecutive_max=4), "xxxx")
    assert (state.ejections, admits(state, now_ms)) == (1, False)


def test_the_defaults_are_the_ones_of_envoy_and_hystrix() -> None:
    assert (BREAKER.consecutive_max, BREAKER.ejection_ms, BREAKER.ejection_max_ms) == (5, 30_000, 300_000)
    assert (BREAKER.volume_min, BREAKER.window_ms, BREAKER.error_rate, BREAKER.open_ms) == (20, 10_000, 0.5, 5_000)


# --- the layer ----------------------------------------------------------------------------------------------------


class Guarded:
    """A breaker layer in front of an upstream that answers as it is told."""

    def __init__(self, policy: BreakerPolicy = POLICY) -> None:
        self.time, self.notes, self.reached = Time(), Notes(), 0
        self.layer = Breaker(context(time=self.time, note=self.notes), policy)

    def call(self, kind: str, answer: Outcome) -> Outcome:
        async def beyond(call: object) -> Outcome:
            self.reached += 1
            return answer

        self.time.now += 10
        made = {
            "model": lambda: self.layer.on_model(model(), beyond),
            "check": lambda: self.layer.on_tool(tool("run_check"), beyond),
            "read": lambda: self.layer.on_tool(tool("read"), beyond),
            "transport": lambda: self.layer.on_effect(effect(), beyond),
            "hook": lambda: self.layer.on_effect(effect(declared=HOOK), beyond),
        }
        return run(made[kind]())


DOWN = Err(code="connection-reset", definite=False)
KINDS = ("model", "check", "transport", "hook")


@pytest.mark.parametrize("kind", KINDS)
def test_an_ejected_upstream_is_not_called_and_the_others_are(kind: str) -> None:
    guarded = Guarded(replace(POLICY, volume_min=99))
    for _ in range(3):
        assert guarded.call(kind, DOWN) is DOWN
    said = guarded.call(kind, Ok())
    assert isinstance(said, Err)
    assert (said.code, said.definite, said.verdict) == ("ejected", True, Verdict.EJECTED)
    assert guarded.reached == 3
    assert all(isinstance(guarded.call(other, Ok()), Ok) for other in (*KINDS, "read") if other != kind)
    guarded.time.now += 100
    assert isinstance(guarded.call(kind, Ok()), Ok)
    assert guarded.notes.kinds() == ["breaker"]


def test_file_tools_have_no_upstream_and_refusals_are_no_errors() -> None:
    guarded = Guarded()
    for answer in (DOWN, Refused(verdict=Verdict.STALLED, because="x")):
        kind = "read" if answer is DOWN else "check"
        assert all(guarded.call(kind, answer) is answer for _ in range(9))
    assert guarded.notes == []
