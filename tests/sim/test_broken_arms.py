"""An arm that breaks is an arm that failed: recorded as its own failure, never as an invalid trial of ours."""

import pytest
from msgspec.structs import replace

from arms import ARMS
from harness.core.errors import ConfigError
from harness.core.roles import Arm
from harness.core.seams import PassThrough
from harness.core.types import Ok, Seam, Site
from harness.orchestrator.arm_store import ArmStore
from harness.orchestrator.store import Journal, SqliteStore
from harness.simulate import run_sim
from harness.trial import Parts
from tests.sim.test_trials import spec
from workloads import WORKLOADS


class _Hook(PassThrough):
    def __init__(self, answer) -> None:
        self.answer = answer


def arm(hook: str, answer) -> Arm:
    async def handle(self, call, next):
        if isinstance(answer, Exception):
            raise answer
        return answer

    layer = type("Broken", (_Hook,), {hook: handle})
    return Arm(name="broken", about="", layers=lambda ctx: (layer(answer),))


def run(broken: Arm):
    return run_sim(spec("broken"), Parts(WORKLOADS["codegen"], broken, None))


HOOKS = ("on_delegate", "on_model", "on_tool", "on_effect", "on_commit")


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("answer", [ValueError("oops"), None, 42, "text"], ids=["raises", "none", "number", "text"])
def test_a_layer_that_raises_or_answers_nonsense_is_the_arms_failure(hook: str, answer) -> None:
    result = run(arm(hook, answer))
    assert (result.record.status, result.record.because) == ("ended", "")
    assert any(e.kind == "arm_error" for e in result.trace)
    assert "failed" in {e.data["status"] for e in result.trace if e.kind == "delegation_end"}


@pytest.mark.parametrize("value", [None, {}, {"id": "x", "content": ""}], ids=["none", "empty", "no-calls"])
def test_a_model_answer_of_no_known_form_is_the_arms_failure(value) -> None:
    result = run(arm("on_model", Ok(value=value)))
    assert result.record.status == "ended"
    assert any(e.kind == "arm_error" for e in result.trace)


@pytest.mark.parametrize("layers", [lambda ctx: 1 / 0, lambda ctx: None, lambda ctx: (1, 2)])
def test_layers_that_cannot_be_made_fail_every_delegation(layers) -> None:
    result = run(Arm(name="broken", about="", layers=layers))
    assert result.record.status == "ended"
    assert {e.data["status"] for e in result.trace if e.kind == "delegation_end"} == {"failed"}


class Moves(PassThrough):
    """Says that its calls are made somewhere else, where no fault strikes."""

    async def on_tool(self, call, next):
        site = Site(delegation=call.site.delegation, phase="elsewhere", seam=Seam.TOOL, name=call.site.name)
        return await next(replace(call, site=site))

    async def on_effect(self, call, next):
        return await self.on_tool(call, next)


def test_an_arm_cannot_dodge_faults_by_moving_its_calls() -> None:
    naive = ARMS["naive"]
    moved = replace(naive, layers=lambda ctx: (*naive.layers(ctx), Moves()))
    from faults import FAULTS

    one = spec("naive", "nondeterminism", "flip", seed=4)
    results = [run_sim(one, Parts(WORKLOADS["codegen"], a, FAULTS["nondeterminism"])) for a in (naive, moved)]
    assert [r.record.exposure["fired"] for r in results] == [2, 2]
    assert not any(e.kind == "tampered" for e in results[0].truth)
    assert any(e.kind == "tampered" for e in results[1].truth)


@pytest.mark.parametrize(
    "sql", ["COMMIT", "PRAGMA synchronous=OFF", "INSERT INTO checkpoints VALUES (1,2,3,4)", "DELETE FROM ends"]
)
def test_an_arm_has_no_say_in_transactions_and_in_the_orchestrators_tables(sql: str) -> None:
    store = SqliteStore(":memory:")
    Journal(store).end("d", "done")
    door = ArmStore(store.transaction, store.query)
    with pytest.raises(PermissionError), door.transaction() as db:
        db.execute(sql)


def test_an_arm_is_handed_no_way_to_what_stands_behind_its_context() -> None:
    seen: list = []

    def layers(ctx):
        seen.extend(getattr(ctx, name) for name in ("now_ms", "sleep_ms", "draw", "note", "probe", "progress"))
        seen.extend((ctx.store.query, ctx.store.transaction))
        return ()

    run(Arm(name="curious", about="", layers=layers))
    owners = [type(getattr(thing, "__self__", None)).__name__ for thing in seen]
    assert set(owners) <= {"NoneType", "ArmStore"}


def test_layers_that_refuse_what_a_person_configured_make_the_trial_invalid() -> None:
    """It is no failure of the arm, so it must not be counted as one."""

    def layers(ctx):
        raise ConfigError("no such day", where="environment")

    record = run(Arm(name="broken", about="", layers=layers)).record
    assert record.status == "invalid"
    assert "environment: no such day" in record.because
