"""What the ledger takes for one effect: clauses, slots, ids of one act, terminal tools, and what it leaves alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arms.mesh import m3_effects
from arms.mesh.divergence import Divergence, diverges
from arms.mesh.identity import content, identity, leaves
from arms.mesh.m3_effects import must_wait, superseded
from harness.core.errors import Crash
from harness.core.types import (
    DeclaredEffect,
    DelegationOutcome,
    EffectCall,
    EffectContract,
    Err,
    Ok,
    Outcome,
    Probe,
    Refused,
)
from harness.orchestrator.store import SqliteStore
from tests.unit.armbench import EVENT, Notes, Time, attempt, context, effect, event, run
from tests.unit.ledgerbench import Place, verdicts

PAY = DeclaredEffect(boundary="tool", operation="pay", target="", key=("payee",), volatile=("memo", "client"))


def tool_call(
    operation: str = "pay", cause: str = "t1", attempt: int = 1, phase: str = "p", **args: object
) -> EffectCall:
    declared = DeclaredEffect(boundary="tool", operation=operation, target="")
    call = effect(dict(args), declared, cause=cause, attempt=attempt)
    return replace(call, site=replace(call.site, phase=phase))


@pytest.mark.parametrize(
    ("one", "other", "clause", "same"),
    [
        (tool_call(payee="P", memo="a", client=1), tool_call(client=2, payee="P", memo="b"), PAY, True),
        (tool_call(payee="P"), tool_call(payee="Q"), PAY, False),
        (tool_call(payee="P", memo="a"), tool_call(payee="P", memo="b"), None, True),  # a memo only comments
        (tool_call(payee="P", text="a"), tool_call(payee="P", text="b"), None, False),
        (tool_call("confirm", msg_id="m1", text="yes"), tool_call("confirm", msg_id="m1", text="y"), None, True),
        (tool_call("confirm", msg_id="m1", text="yes"), tool_call("confirm", msg_id="m2", text="yes"), None, False),
        (tool_call("confirm", msg_id="m1"), tool_call("cancel", msg_id="m1"), None, False),
        (tool_call("result.submit", data="R"), tool_call("result.submit", data="other"), None, True),
        (tool_call("result.submit", data="R"), tool_call("report.submit", data="R"), None, False),
        (effect(event(n=1)), effect(event(n=2)), EVENT, True),
        (effect(event("A-1")), effect(event("A-2")), EVENT, False),
    ],
)
def test_two_calls_mean_one_effect_or_two(
    one: EffectCall, other: EffectCall, clause: DeclaredEffect | None, same: bool
) -> None:
    assert (identity(one, clause) == identity(other, clause)) is same


def test_a_slot_goes_before_content_and_after_what_names_itself() -> None:
    assert identity(tool_call(a=1), None, "p 0") == identity(tool_call(b=2), None, "p 0")
    assert identity(tool_call(a=1), None, "p 0") != identity(tool_call(a=1), None, "p 1")
    assert identity(tool_call(msg_id="m"), None, "p 0") == identity(tool_call(msg_id="m"), None)
    assert content(tool_call(a=1, note="x"), None) == content(tool_call(a=1), None)


@pytest.mark.parametrize(
    ("operation", "kept"),
    [
        *[(name, True) for name in ("pay", "result.submit", "vm.delete", "job.start")],
        *[(name, False) for name in ("file.read", "job.status", "run_tests", "file.write")],
    ],
)
def test_a_tool_that_leaves_nothing_outside_is_none_of_the_ledgers_business(operation: str, kept: bool) -> None:
    assert leaves(tool_call(operation), None) is kept


class Tools(Place):
    """A place whose effects are tool calls under a contract without clauses."""

    def __init__(self, contract: EffectContract = EffectContract()) -> None:  # noqa: B008
        super().__init__()
        self.contract = contract
        self.enter()

    def enter(self, number: int = 1, **options: object) -> None:
        ctx = context(self.store, time=self.time, note=self.notes, contract=self.contract, probe=self.probe)
        self.layer = m3_effects.EffectLedger(ctx, **options)  # type: ignore[arg-type]

        async def entered(asked: object) -> DelegationOutcome:
            return DelegationOutcome(status="failed")

        run(self.layer.on_delegate(attempt(number=number), entered))

    async def probe(self, call: EffectCall) -> Probe:
        self.asked += 1
        return self.outside.answer("acme", ("tool", str(call.payload)))

    def had(self, call: EffectCall, *answers: Outcome) -> Outcome:
        told = iter(answers)

        async def beyond(asked: EffectCall) -> Outcome:
            answer = next(told, None)
            if answer is None or not answer.definite:  # type: ignore[union-attr]
                receipt = self.outside.happen("acme", ("tool", str(asked.payload)))
            return answer or Ok(value={"receipt": receipt}, receipt=receipt)

        return run(self.layer.on_effect(call, beyond))


def test_the_kth_effect_of_an_attempt_takes_the_kth_slot_whatever_it_says() -> None:
    place = Tools(EffectContract(slots=("pay", "tell")))
    first = [place.had(tool_call(cause=f"a{n}", amount=n)) for n in range(2)]
    place.enter(2)
    again = [place.had(tool_call(cause=f"b{n}", attempt=2, amount=10 + n)) for n in range(2)]
    assert verdicts(*first, *again) == ["executed"] * 2 + ["suppressed-as-duplicate"] * 2
    assert [o.receipt for o in first] == [o.receipt for o in again]  # type: ignore[union-attr]


def test_beyond_the_slots_content_decides() -> None:
    place = Tools(EffectContract(slots=("pay",)))
    said = [place.had(tool_call(cause=f"a{n}", amount=amount)) for n, amount in enumerate((1, 1, 2))]
    assert verdicts(*said) == ["executed", "suppressed-as-duplicate", "executed"]


def test_an_effect_that_failed_gives_its_slot_back() -> None:
    place = Tools(EffectContract(slots=("pay",)))
    no = Err(code="http-503", definite=True)
    assert verdicts(place.had(tool_call(amount=1), no), place.had(tool_call(amount=2))) == ["http-503", "executed"]


def test_slots_of_an_earlier_phase_are_not_taken_for_those_of_a_later_one() -> None:
    """A resumed attempt skips accepted phases: its first effect is not the delegation's first."""
    place = Tools(EffectContract(slots=("pay", "tell")))
    assert verdicts(place.had(tool_call(phase="p", amount=1))) == ["executed"]
    place.enter(1)
    place.layer._phases["d"] = ("p", "q")
    assert verdicts(place.had(tool_call(phase="q", amount=1))) == ["executed"]
    assert place.count == 2


def test_a_slot_in_doubt_is_asked_for_in_the_words_of_its_reservation() -> None:
    place = Tools(EffectContract(slots=("pay",)))
    lost = Err(code="connection-reset", definite=False)
    place.outside.blind = {"tool"}
    assert verdicts(place.had(tool_call(amount=1), lost)) == ["awaiting-waiver"]
    place.outside.blind = set()
    place.enter(2)
    assert verdicts(place.had(tool_call(attempt=2, amount=1, reason="x"))) == ["reconciled"]
    assert place.count == 1


def test_what_is_absent_in_the_words_of_its_reservation_is_had_in_those_of_now() -> None:
    place = Tools(EffectContract(slots=("pay",)))

    async def die(call: EffectCall) -> Outcome:
        raise Crash("SIGKILL")

    with pytest.raises(Crash):
        run(place.layer.on_effect(tool_call(amount=1), die))
    place.enter(2)
    assert verdicts(place.had(tool_call(attempt=2, amount=2))) == ["executed"]
    assert [h.what for h in place.outside.held] == [("tool", "{'amount': 2}")]


def test_a_terminal_tool_is_had_once_however_it_is_worded() -> None:
    place = Tools()
    said = [place.had(tool_call("result.submit", cause=f"a{n}", status=f"done {n}")) for n in range(3)]
    assert verdicts(*said) == ["executed", "suppressed-as-duplicate", "suppressed-as-duplicate"]


def test_one_delivery_is_one_act_within_one_cause_too() -> None:
    place = Tools()
    said = [place.had(tool_call("confirm", msg_id=i, pending=p)) for i, p in (("m1", "A"), ("m1", "B"), ("m2", "B"))]
    assert verdicts(*said) == ["executed", "suppressed-as-duplicate", "executed"]


def test_reads_pass_as_often_as_they_like() -> None:
    place = Tools()
    said = [place.had(tool_call("file.read", path="a")) for _ in range(3)]
    assert verdicts(*said) == ["executed"] * 3
    assert place.store.query("SELECT count(*) FROM ledger") == [(0,)]


class Quarantine:
    def __init__(self, name: str | None) -> None:
        self.name = name

    def quarantined(self, delegation: str) -> str | None:
        return self.name


def test_while_evidence_is_under_quarantine_tools_wait_and_other_boundaries_do_not() -> None:
    place = Tools()
    place.enter(observations=Quarantine("flow"))
    said = place.had(tool_call("merge", change="G"))
    assert isinstance(said, Refused)
    assert "flow" in said.because
    assert verdicts(said, place.had(effect(event()))) == ["awaiting-waiver", "executed"]
    place.enter(observations=Quarantine(None))
    assert verdicts(place.had(tool_call("merge", change="G"))) == ["executed"]
    assert must_wait(tool_call(), "flow")
    assert not must_wait(tool_call(), None)


def test_an_effect_of_an_attempt_that_was_followed_is_fenced_and_told() -> None:
    place = Place()
    run(place.layer.on_delegate(attempt(number=2), _done))
    assert verdicts(place.cross(attempt=1)) == ["fenced"]
    assert (place.count, place.notes.kinds()[-1:]) == (0, ["stale"])
    assert verdicts(place.cross(attempt=2)) == ["executed"]
    assert [superseded(1, 2), superseded(2, 2)] == [True, False]


async def _done(asked: object) -> DelegationOutcome:
    return DelegationOutcome(status="done")


# --- divergence ---------------------------------------------------------------------------------------------------


def test_declaration_and_observation_are_compared_over_all_processes_of_a_delegation() -> None:
    contract = EffectContract(effects=(EVENT, DeclaredEffect(boundary="registry", operation="fetch", target="*"), PAY))
    seen = [(("transport", "XADD", "orders"), True), (("hook", "run", "notify"), False)]
    found = diverges(contract, seen, ['["registry", "wheel", []]'])
    assert found == Divergence((("hook", "run", "notify"),), (("tool", "pay", ""),), 2)


def test_divergence_is_noted_when_a_delegation_is_done() -> None:
    store, notes = SqliteStore(":memory:"), Notes()
    layer = m3_effects.EffectLedger(context(store, note=notes, time=Time()))

    async def beyond(call: EffectCall) -> Outcome:
        return Ok(receipt="1-0")

    async def work(asked: object) -> DelegationOutcome:
        await layer.on_effect(effect(event()), beyond)
        await layer.on_effect(effect({"q": 1}, DeclaredEffect(boundary="cache", operation="x", target="y")), beyond)
        return DelegationOutcome(status="done")

    run(layer.on_delegate(attempt(), work))
    told = dict(notes)["divergence"]
    assert told["undeclared"] == [["cache", "x", "y"]]
    assert [boundary for boundary, *_ in told["unobserved"]] == ["hook", "registry"]
