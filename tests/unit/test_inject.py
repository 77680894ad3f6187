"""The injector: the one place that carries out fates."""

import asyncio

import pytest

from faults.common import OneShot
from harness.core.clock import Clock, VirtualLoop
from harness.core.errors import Crash, HarnessBug
from harness.core.roles import Alter, Delay, Die, Fail, Fate, Strike
from harness.core.types import ModelCall, Ok, Seam, Site
from harness.inject import Injector
from harness.simulate import _Counters

SITE = Site(delegation="d", phase="p", seam=Seam.MODEL, name="chat")


class Outside:
    """A world that notes what harm came with each call."""

    def __init__(self, error: Exception | None = None) -> None:
        self.harms: list = []
        self.error = error

    async def model(self, call, harm):
        if self.error is not None:
            raise self.error
        self.harms.append(harm)
        return Ok(value={})


def fault(fate: Fate, visit: int = 1, moment: str = "before", epoch_min: int = 0) -> OneShot:
    strike = Strike(seam=Seam.MODEL, name="chat", visit=visit, moment=moment, epoch_min=epoch_min)  # type: ignore[arg-type]
    return OneShot(name="test", variant="v", strike=strike, decided=fate)


def kill(signal: str) -> None:
    raise Crash(signal)


def drive(*faults: OneShot, calls: int = 1, outside=None, until_ms: float = 1e9, epoch: int = 0, memory=None):
    outside = outside or Outside()
    told: list = []

    async def run() -> float:
        clock = Clock()
        injector = Injector(
            faults,
            outside,
            lambda kind, data: told.append((kind, dict(data))),
            memory or _Counters(),
            clock,
            kill,
            epoch,
            until_ms,
        )
        base = injector.base(None)  # type: ignore[arg-type]
        for number in range(calls):
            call = ModelCall(site=SITE, call_id=f"c{number}", attempt=1, turn=number, request={})
            injector.asked(call)
            await base.model(call)
            injector.before_commit()
            injector.returned(call)
        return clock.now_ms()

    loop = VirtualLoop()
    try:
        return loop.run_until_complete(run()), outside.harms, told
    finally:
        loop.close()


def test_a_harm_is_handed_to_the_world_once_at_the_visit_of_its_strike() -> None:
    _, harms, told = drive(fault(Fail(code="http-429"), visit=2), calls=3)
    assert harms == [None, Fail(code="http-429"), None]
    assert [data["state"] for _, data in told] == ["fired"]


def test_the_first_fate_that_is_not_pass_wins_and_the_other_strikes_at_the_next_visit() -> None:
    _, harms, _ = drive(fault(Fail(code="http-429")), fault(Alter(how="flip")), calls=3)
    assert harms == [Fail(code="http-429"), Alter(how="flip"), None]


def test_a_delay_is_carried_out_here() -> None:
    now_ms, harms, _ = drive(fault(Delay(ms=5000)))
    assert (now_ms, harms) == (5000, [None])


@pytest.mark.parametrize(("moment", "reached"), [("before", 0), ("after", 1)])
def test_death_comes_before_or_after_the_call_took_effect(moment: str, reached: int) -> None:
    outside = Outside()
    with pytest.raises(Crash, match="SIGKILL"):
        drive(fault(Die(), moment=moment), outside=outside)
    assert len(outside.harms) == reached


def test_death_at_the_record_comes_with_the_next_durable_write() -> None:
    outside = Outside()
    with pytest.raises(Crash):
        drive(fault(Die(at_record=True), moment="after"), outside=outside, calls=2)
    assert len(outside.harms) == 1


def test_visits_and_firings_outlive_the_process() -> None:
    memory = _Counters()
    with pytest.raises(Crash):
        drive(fault(Die(), visit=2), calls=2, memory=memory)
    _, harms, told = drive(fault(Die(), visit=2), calls=2, memory=memory, epoch=1)
    assert (len(harms), told) == (2, [])


def test_a_fault_for_a_later_life_waits_for_it() -> None:
    assert drive(fault(Fail(code="http-503"), epoch_min=1))[1] == [None]
    assert drive(fault(Fail(code="http-503"), epoch_min=1), epoch=1)[1] == [Fail(code="http-503")]


def test_in_the_settle_window_nothing_strikes() -> None:
    _, harms, told = drive(fault(Delay(ms=100)), fault(Fail(code="http-429"), visit=2), calls=3, until_ms=50)
    assert harms == [None, None, None]
    assert [data["fault"] for _, data in told] == [0]


def test_a_failure_of_the_worlds_code_is_a_bug_of_ours_and_not_the_arms() -> None:
    with pytest.raises(HarnessBug, match="world failed"):
        drive(outside=Outside(ValueError("oops")))


def test_cancelling_a_call_passes_through() -> None:
    class Slow(Outside):
        async def model(self, call, harm):
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        drive(outside=Slow())
