"""The quarantine: its rules by table and by state machine, and the layer over checks that contradict themselves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from arms.mesh.m3_effects import EffectLedger
from arms.mesh.m6_quarantine import (
    FAIL,
    PASS,
    POLICY,
    Observations,
    Quarantine,
    Standing,
    observed,
    ruling,
)
from harness.core.seams import Crossings, compose
from harness.core.types import Attempt, DelegationOutcome, Err, Ok, Outcome, ToolCall, Verdict
from harness.incidents.guards_m5_m6 import GUARDS
from harness.incidents.layerbench import on_virtual_time
from harness.incidents.proof import reverted
from harness.orchestrator.store import SqliteStore
from tests.unit.armbench import Notes, Outside, attempt, context, delegation, effect, event, run, tool

ANSWERS = {"p": PASS, "f": FAIL}


def after(answers: str) -> Standing:
    standing = Standing()
    for answer in answers:
        standing = observed(standing, ANSWERS[answer])
    return standing


@pytest.mark.parametrize(
    ("answers", "quarantined"),
    [
        ("", False),
        ("p", False),
        ("ff", False),
        ("pppp", False),
        ("pf", True),
        ("fp", True),
        ("fpp", True),
        ("fppp", False),  # three agreeing answers in a row end it
        ("fpfppp", False),
        ("fpppf", True),  # and the next contradiction begins it again
        ("pffpp", True),
    ],
)
def test_a_contradiction_enters_and_agreement_leaves(answers: str, quarantined: bool) -> None:
    assert after(answers).quarantined is quarantined


@pytest.mark.parametrize(
    ("answers", "runs", "rule_"),
    [
        ("p", 1, "hand-on"),
        ("f", 1, "again"),
        ("ff", 2, "hand-on"),
        ("ff", 1, "hand-on"),  # seen red before
        ("fp", 2, "again"),
        ("fppp", 4, "hand-on"),
        ("fpfpfp", 6, "give-up"),
        ("fpfpfpfpfpfp", 1, "give-up"),  # this key has had its answers
        ("fpfpfpfpfpfppp", 1, "hand-on"),
    ],
)
def test_what_is_done_with_an_answer(answers: str, runs: int, rule_: str) -> None:
    assert ruling(after(answers), runs) == rule_


class Machine(RuleBasedStateMachine):
    """Against a plain list of answers: in quarantine from a contradiction until k agree in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.standing, self.answers, self.held = Standing(), [], False

    @rule(answer=st.sampled_from([PASS, FAIL]))
    def answer(self, answer: str) -> None:
        self.standing = observed(self.standing, answer)
        if self.answers and self.answers[-1] != answer:
            self.held = True
        self.answers.append(answer)
        if len(set(self.answers[-POLICY.exit_in_a_row :])) == 1 and len(self.answers) >= POLICY.exit_in_a_row:
            self.held = False

    @invariant()
    def agrees(self) -> None:
        assert (self.standing.quarantined, self.standing.seen) == (self.held, len(self.answers))
        if self.standing.quarantined:
            assert ruling(self.standing, 1) != "hand-on"


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestMachine = Machine.TestCase


# --- the layer ----------------------------------------------------------------------------------------------------


class Bench:
    """A check whose runs end as told, and the layer around it. receipt: None stands for a check that names none."""

    def __init__(self, runs: str, receipt: str | None = "w|e|c", store: Any = None) -> None:
        self.left, self.receipt, self.runs = list(runs), receipt, 0
        self.notes = Notes()
        ctx = context(store, note=self.notes)
        self.observations = Observations(ctx)
        self.layer = Quarantine(ctx, self.observations)

    async def check(self, call: ToolCall) -> Outcome:
        self.runs += 1
        answer = self.left.pop(0)
        if answer == "b":
            return Err(code="monitor-error", definite=False)
        if answer == "k":
            return Err(code="check-killed", definite=False)
        failing = [] if answer in "pi" else ["t"]
        return Ok(value={"passed": answer == "p", "failing": failing}, receipt=self.receipt)

    def ask(self, check: str = "flow", delegation: str = "d") -> Outcome:
        return run(self.layer.on_tool(tool("run_check", delegation=delegation, args={"check": check}), self.check))

    def other(self, name: str, outcome: Outcome, **args: Any) -> Outcome:
        async def answers(call: ToolCall) -> Outcome:
            return outcome

        return run(self.layer.on_tool(tool(name, args=args), answers))


def told(outcome: Outcome) -> str:
    if isinstance(outcome, Ok):
        return ("pass" if outcome.value["passed"] else "fail") + f" {outcome.verdict}"
    return f"{outcome.code} {outcome.verdict}"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("runs", "handed_on", "made"),
    [
        ("p", "pass executed", 1),
        ("ff", "fail executed", 2),
        ("ii", "fail executed", 2),  # red, and no failing id
        ("fppp", "pass quarantined", 4),
        ("fpfff", "fail quarantined", 5),
        ("fpfpfp", "quarantined quarantined", 6),
        ("bp", "pass executed", 2),
        ("bbff", "fail executed", 4),
        ("bbb", "monitor-error None", 3),
        ("k", "check-killed None", 1),
        ("fbf", "fail executed", 3),
    ],
)
def test_what_is_handed_on_and_after_how_many_runs(runs: str, handed_on: str, made: int) -> None:
    bench = Bench(runs)
    assert (told(bench.ask()), bench.runs) == (handed_on, made)


def test_a_red_answer_is_confirmed_once_per_key() -> None:
    bench = Bench("fff")
    bench.ask()
    assert (told(bench.ask()), bench.runs) == ("fail executed", 3)


def test_green_after_a_change_is_no_contradiction() -> None:
    bench = Bench("ffp")
    bench.ask()
    bench.receipt = "w2|e|c"
    assert told(bench.ask()) == "pass executed"
    assert bench.observations.quarantined("d") is None


def test_a_delegation_rests_on_quarantined_evidence_until_it_is_settled_or_begins_anew() -> None:
    bench = Bench("fpfpfp" + "fpfpfp" + "ppp")
    bench.ask()
    assert (bench.observations.quarantined("d"), bench.observations.quarantined("e")) == ("flow", None)
    bench.ask(delegation="e")
    assert bench.observations.unsettled("e") == {"flow"}  # one key, whoever asks

    async def ended(one: Attempt) -> DelegationOutcome:
        return DelegationOutcome(status="done")

    on_virtual_time(bench.layer.on_delegate(replace(attempt(), resumed=True), ended))
    assert bench.observations.quarantined("d") == "flow"
    on_virtual_time(bench.layer.on_delegate(attempt(number=2), ended))
    assert bench.observations.quarantined("d") is None
    assert [bench.ask(delegation="e").verdict for _ in range(2)] == [Verdict.QUARANTINED] * 2
    assert bench.observations.quarantined("e") is None


def test_observations_survive_the_process() -> None:
    store = SqliteStore(":memory:")
    Bench("ff", store=store).ask()
    bench = Bench("pppp", store=store)
    assert (told(bench.ask()), bench.runs) == ("pass quarantined", 3)


def test_every_ruling_is_noted() -> None:
    bench = Bench("fppp")
    bench.ask()
    ((kind, data),) = bench.notes
    assert (kind, data["delegation"], data["check"], data["key"]) == ("quarantine", "d", "flow", "w|e|c|flow")
    assert (data["answers"], data["ruling"], data["held"]) == ([FAIL, PASS, PASS, PASS], "hand-on", True)


# --- without a receipt, and other tools ---------------------------------------------------------------------------

DRAFTED = Ok(value={"digest": "x"})


@pytest.mark.parametrize(
    ("tool_", "outcome", "contradicts"),
    [
        ("write", DRAFTED, False),
        ("read", DRAFTED, True),
        ("done", DRAFTED, True),
        ("write", Err(code="e", definite=True), True),
        ("write", Ok(value={"error": "not-writable"}), True),
        ("deploy.release", Ok(value="v2"), False),
    ],
)
def test_without_a_receipt_a_change_that_succeeded_makes_a_new_key(
    tool_: str, outcome: Outcome, contradicts: bool
) -> None:
    bench = Bench("ffpppp", receipt=None)
    bench.ask()
    bench.other(tool_, outcome, path="p")
    assert (bench.ask().verdict is Verdict.QUARANTINED) is contradicts


def test_answers_of_other_checking_tools_are_observed_and_never_asked_for_again() -> None:
    bench = Bench("")
    for result in ("fail", "pass"):
        assert bench.other("gate.run", Ok(value=result), tree="t") == Ok(value=result)
    assert bench.observations.quarantined("d") == "gate.run"
    bench.other("gate.run", Ok(value="ok"), tree="u")  # says nothing
    assert bench.observations.quarantined("d") == "gate.run"
    bench.other("gate.run", Ok(value="pass"), tree="u")  # something else was checked
    assert bench.observations.quarantined("d") is None
    bench.other("edit.apply", DRAFTED)
    bench.other("gate.run", Ok(value="fail"), tree="u")
    assert bench.observations.quarantined("d") is None


# --- with the ledger ----------------------------------------------------------------------------------------------


def test_runs_of_one_call_have_their_effects_once() -> None:
    outside, runs = Outside(), 0
    ctx = context()

    async def check(call: ToolCall) -> Outcome:
        nonlocal runs
        runs += 1
        for n in range(2):  # two equal events, both meant
            one = effect(event(n=runs), call_id=f"e{runs}.{n}", cause=call.call_id, ordinal=n)
            await crossings.effect(one)
        return Ok(value={"passed": runs > 2, "failing": [] if runs > 2 else ["t"]}, receipt="w|e|c")

    async def happens(call: Any) -> Outcome:
        return Ok(value={}, receipt=outside.happen("acme", ("transport", "x")))

    async def work(one: Attempt) -> DelegationOutcome:
        await crossings.tool(tool("run_check", args={"check": "flow"}))
        await crossings.tool(tool("run_check", call_id="t2", args={"check": "flow"}))
        return DelegationOutcome(status="done")

    layers = (Quarantine(ctx, Observations(ctx)), EffectLedger(ctx))
    crossings = compose(layers, Crossings(delegate=work, model=happens, tool=check, effect=happens, commit=happens))
    on_virtual_time(crossings.delegate(Attempt(delegation=delegation())))
    assert (runs, len(outside.held)) == (5, 2)


@pytest.mark.parametrize(
    ("name", "runs", "wrong"), [("contradiction", "pff", "fail executed"), ("red_confirmation", "f", "fail executed")]
)
def test_reverting_a_guard_lets_noise_through(name: str, runs: str, wrong: str) -> None:
    def play(answers: str) -> str:
        bench = Bench(answers)
        if len(runs) > 1:
            bench.ask()
        return told(bench.ask())

    (guard,) = (one for one in GUARDS if one.name == name)
    with reverted(guard):
        assert play(runs) == wrong
    assert play(runs + "pppp") != wrong
