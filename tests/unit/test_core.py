"""The core: draws, virtual time, composition, strikes."""

import asyncio

import pytest

from harness.core import rng
from harness.core.clock import Clock, VirtualLoop
from harness.core.errors import Crash, HarnessBug, did_you_mean
from harness.core.roles import Strike
from harness.core.seams import Crossings, PassThrough, compose
from harness.core.types import Err, ModelCall, Ok, Seam, Site, ToolCall

SITE = Site(delegation="d", phase="p", seam=Seam.MODEL, name="chat")
CALL = ModelCall(site=SITE, call_id="c", attempt=1, turn=0, request={})


def virtual(coroutine):
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


def test_a_draw_depends_on_its_name_alone() -> None:
    first = rng.draw(7, "a", 1)
    rng.draw(7, "b")
    assert rng.draw(7, "a", 1) == first
    assert rng.draw(7, "a", 2) != first
    assert rng.draw(8, "a", 1) != first


def test_draws_are_uniform_and_weights_are_kept() -> None:
    values = [rng.draw(1, "u", i) for i in range(4000)]
    assert abs(sum(values) / 4000 - 0.5) < 0.02
    picks = [rng.weighted(1, {"a": 3.0, "b": 1.0}, i) for i in range(4000)]
    assert abs(picks.count("a") / 4000 - 0.75) < 0.03


def test_names_do_not_run_into_each_other() -> None:
    assert rng.bits(1, "ab", "c") != rng.bits(1, "a", "bc")


def test_virtual_time_jumps_to_the_next_timer() -> None:
    async def wait() -> float:
        clock = Clock()
        await clock.sleep_ms(3_600_000)
        return clock.now_ms()

    assert virtual(wait()) == 3_600_000


def test_virtual_time_reports_a_hang_without_a_deadline() -> None:
    with pytest.raises(HarnessBug, match="no timer is due"):
        virtual(asyncio.Event().wait())


def test_time_scale_is_applied_to_every_duration() -> None:
    assert Clock(scale=0.05).real_s(60_000) == 3.0


class Tag(PassThrough):
    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    async def on_model(self, call, next):
        self.log.append(self.name)
        return await next(call)


def base(model) -> Crossings:
    async def nothing(call):
        return Ok()

    return Crossings(delegate=nothing, model=model, tool=nothing, effect=nothing, commit=nothing)


def test_layers_are_crossed_outermost_first_and_untouched_seams_cost_nothing() -> None:
    log: list[str] = []

    async def model(call):
        log.append("base")
        return Ok()

    inner = base(model)
    composed = compose((Tag("outer", log), Tag("inner", log)), inner)
    asyncio.run(composed.model(CALL))
    assert log == ["outer", "inner", "base"]
    assert composed.tool is inner.tool


def test_a_layer_that_catches_everything_cannot_swallow_a_crash() -> None:
    class Swallows(PassThrough):
        async def on_model(self, call, next):
            try:
                return await next(call)
            except Exception:
                return Err(code="swallowed", definite=True)

    async def dies(call):
        raise Crash("SIGKILL")

    with pytest.raises(Crash):
        asyncio.run(compose((Swallows(),), base(dies)).model(CALL))


@pytest.mark.parametrize(
    ("strike", "hit"),
    [
        (Strike(seam=Seam.MODEL, name="chat"), True),
        (Strike(seam=Seam.MODEL, name="chat", delegation="d", phase="p"), True),
        (Strike(seam=Seam.MODEL, name="chat", delegation="other"), False),
        (Strike(seam=Seam.TOOL, name="*"), False),
        (Strike(seam=Seam.MODEL, name="chat", turn_min=1), False),
    ],
)
def test_a_strike_matches_a_logical_site(strike: Strike, hit: bool) -> None:
    assert strike.matches(CALL) is hit


def test_a_strike_on_a_check_tells_checks_apart() -> None:
    site = Site(delegation="d", phase="p", seam=Seam.TOOL, name="run_check")
    call = ToolCall(site=site, call_id="c", attempt=1, turn=0, index=0, tool="run_check", args={"check": "unit"})
    assert Strike(seam=Seam.TOOL, name="run_check", check="unit").matches(call)
    assert not Strike(seam=Seam.TOOL, name="run_check", check="flow").matches(call)


def test_a_misspelt_name_gets_a_hint() -> None:
    assert did_you_mean("naiv", ["naive", "mesh"]) == "did you mean 'naive'?"
