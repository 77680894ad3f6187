"""Waking repairs: who is woken, with which numbers, and that a crash in the middle repeats nothing that had ended."""

from __future__ import annotations

from typing import Any

import pytest

from arms.common.coverage import coverage_routing
from arms.common.evidence import Checkpoint, Choice, Evidence, Seen, seen
from arms.common.repairs import ROUNDS_MAX, RepairWaking
from harness.core.seams import Crossings, compose
from harness.core.types import (
    Attempt,
    Delegation,
    DelegationOutcome,
    EffectContract,
    Err,
    Ok,
    Outcome,
    System,
    ToolCall,
    Verdict,
)
from harness.incidents.layerbench import on_virtual_time
from harness.orchestrator.store import Journal, SqliteStore
from tests.unit.armbench import Notes, context, model, tool

DONE, FAILED = DelegationOutcome(status="done"), DelegationOutcome(status="failed", code="agent-blocked")
BOTH = ("a", "b")


class Died(BaseException):
    """The process is gone."""


def made(id: str, component: str = "", checks: tuple[str, ...] = ()) -> Delegation:
    contract = EffectContract(checks=checks)
    return Delegation(id=id, tenant="t", goal="g", phases=("p",), contract=contract, component=component)


JUDGE = made("judge", checks=("all",))
SYSTEM = System(repairs={c: made(f"repair/{c}", c) for c in "abc"}, coverage={"all": ("a", "b", "ghost")})


class Plant:
    """Components that are broken until their repair ran to its end, and a judge that sees it. dies: where the process
    ends, as `delegation-number`, once. inner_tries: attempts that a layer further in makes of each failure."""

    def __init__(self, broken: tuple[str, ...], dies: str = "", inner_tries: int = 1) -> None:
        self.store, self.broken, self.dies, self.inner_tries = SqliteStore(":memory:"), set(broken), dies, inner_tries
        self.began: list[str] = []
        self.attempts: list[Attempt] = []
        self.notes = Notes()

    async def work(self, attempt: Attempt) -> DelegationOutcome:
        d = attempt.delegation
        for number in range(attempt.number, attempt.number + self.inner_tries):
            self.attempts.append(attempt)
            self.began.append(f"{d.id}-{number}" + ("r" if attempt.resumed and number == attempt.number else ""))
            await self.crossings.model(model(delegation=d.id, attempt=number))
            if self.dies == f"{d.id}-{number}":
                self.dies = ""
                raise Died
            if d.component:
                self.broken.discard(d.component)
                return DONE
            await self.crossings.tool(tool("run_check", delegation=d.id, attempt=number, args={"check": "all"}))
            if not self.broken:
                return DONE
        return FAILED

    async def check(self, call: ToolCall) -> Outcome:
        return Ok(value={"passed": not self.broken, "failing": sorted(self.broken)})

    async def says(self, call: Any) -> Outcome:
        return Ok(value={"id": "c", "content": "", "tool_calls": []})

    def start(self, attempt: Attempt, choose: Any = None, system: System = SYSTEM) -> DelegationOutcome:
        """One life of the process."""
        ctx = context(self.store, note=self.notes, system=system)
        layer = coverage_routing(ctx) if choose is None else RepairWaking(ctx, choose)
        base = Crossings(delegate=self.work, model=self.says, tool=self.check, effect=self.says, commit=self.says)
        self.crossings = compose((layer,), base)
        return on_virtual_time(self.crossings.delegate(attempt))


def test_coverage_wakes_whoever_can_be_repaired_and_hands_on_again() -> None:
    plant = Plant(("a",))
    assert plant.start(Attempt(delegation=JUDGE)) == DONE
    assert plant.began == ["judge-1", "repair/a-1", "repair/b-1", "judge-2"]
    assert plant.attempts[1].notes == ("all fails: a",)
    assert plant.attempts[-1].notes == ("agent-blocked; then repaired: a, b",)
    ((kind, said),) = plant.notes
    assert (kind, said["verdict"], said["woken"], said["round"]) == ("routing", "routed", ["a", "b"], 1)


@pytest.mark.parametrize(
    ("system", "delegation"), [(System(), JUDGE), (SYSTEM, made("other", checks=("unit",))), (SYSTEM, made("none"))]
)
def test_without_repairs_or_coverage_nothing_happens(system: System, delegation: Delegation) -> None:
    plant = Plant(("a",))
    assert plant.start(Attempt(delegation=delegation), system=system) == FAILED
    assert (plant.began, plant.notes) == ([f"{delegation.id}-1"], [])


def test_rounds_are_bounded_and_a_second_waking_is_a_new_attempt_that_begins_anew() -> None:
    plant = Plant(("ghost",))
    assert plant.start(Attempt(delegation=JUDGE)) == FAILED
    assert plant.began.count("judge-1") == 1
    assert [n for n in plant.began if n.startswith("repair/a")] == [f"repair/a-{n + 1}" for n in range(ROUNDS_MAX)]
    assert plant.began[-1] == f"judge-{ROUNDS_MAX + 1}"
    assert all(a.again for a in plant.attempts if a.delegation.component)


def test_numbers_that_layers_further_in_used_up_are_not_used_again() -> None:
    plant = Plant(("a",), inner_tries=3)
    assert plant.start(Attempt(delegation=JUDGE)) == DONE
    assert plant.began == ["judge-1", "judge-2", "judge-3", "repair/a-1", "repair/b-1", "judge-4"]


@pytest.mark.parametrize(
    ("dies", "then"),
    [
        ("repair/a-1", ["repair/a-1r", "judge-2"]),  # the other one ran beside it, to its end
        ("repair/b-1", ["repair/b-1r", "judge-2"]),
        ("judge-2", ["judge-2r"]),
    ],
)
def test_a_crash_repeats_no_repair_that_had_ended(dies: str, then: list[str]) -> None:
    plant = Plant(BOTH, dies)
    with pytest.raises(Died):
        plant.start(Attempt(delegation=JUDGE))
    before = len(plant.began)
    handed = dies == "judge-2"
    again = Attempt(delegation=JUDGE, number=2, resumed=handed, notes=("agent-blocked",))
    assert plant.start(again) == DONE
    assert plant.began[before:] == then
    assert plant.attempts[-1].notes == ("agent-blocked; then repaired: a, b",)


def test_when_no_repair_ends_well_the_failure_stands() -> None:
    plant = Plant(("a",))

    async def fails(attempt: Attempt) -> DelegationOutcome:
        await Plant.work(plant, attempt)
        return FAILED

    plant.work = fails  # type: ignore[method-assign]
    assert plant.start(Attempt(delegation=JUDGE)) == FAILED
    assert plant.began == ["judge-1", "repair/a-1", "repair/b-1"]


def test_a_choice_of_nobody_ends_the_delegation_with_its_verdict() -> None:
    nobody = Choice(components=("ghost",), because="why", verdict=Verdict.ABSTAINED)
    outcome = Plant(("a",)).start(Attempt(delegation=JUDGE), choose=lambda evidence: nobody)
    assert (outcome.status, outcome.verdict, outcome.because) == ("failed", Verdict.ABSTAINED, "why")


def test_evidence_is_the_last_run_of_the_last_attempt() -> None:
    chosen: list[Evidence] = []

    def choose(evidence: Evidence) -> Choice:
        chosen.append(evidence)
        return Choice(components=(), because="", verdict=Verdict.ABSTAINED)

    Plant(("b",)).start(Attempt(delegation=JUDGE), choose=choose)
    assert chosen == [Evidence(delegation="judge", checks=(Seen(check="all", passed=False, failing=("b",)),))]


@pytest.mark.parametrize(
    ("outcome", "wanted"),
    [
        (Ok(value={"passed": True, "failing": []}), Seen(check="k", passed=True)),
        (Err(code="monitor-error", definite=False), Seen(check="k", passed=None, error="monitor-error")),
        (Ok(value={"error": "no-such-check"}), Seen(check="k", passed=None, error="no-such-check")),
        (
            Ok(
                value={
                    "passed": False,
                    "failing": ["t"],
                    "checkpoints": [["c", "s", "n"], ["c", {"secret": 1}, "n"], 7],
                }
            ),
            Seen(check="k", passed=False, failing=("t",), checkpoints=(Checkpoint("c", "s", "n"),)),
        ),
    ],
)
def test_only_names_become_evidence(outcome: Outcome, wanted: Seen) -> None:
    assert seen("k", outcome) == wanted


def test_names_are_cut_and_counted() -> None:
    many = [["c" * 500, "s", "n"]] * 2000
    got = seen("k", Ok(value={"passed": False, "failing": ["t" * 500], "checkpoints": many}))
    assert (len(got.checkpoints), len(got.checkpoints[0].correlation), len(got.failing[0])) == (512, 120, 120)


def test_a_delegation_that_is_woken_again_begins_anew_but_keeps_what_the_interrupted_attempt_got_accepted() -> None:
    journal = Journal(SqliteStore(":memory:"))
    journal.reopen("d", 1)
    journal.open_attempt("d", 1)
    journal.checkpoint("d", "one", 1, {})
    journal.close_attempt("d", 1, "failed")
    journal.reopen("d", 2)
    assert journal.progress("d").phases == ("one",)  # a failed attempt is continued
    journal.open_attempt("d", 2)
    journal.checkpoint("d", "two", 2, {})
    journal.close_attempt("d", 2, "done")
    journal.reopen("d", 3)
    assert journal.progress("d").phases == ()
    journal.open_attempt("d", 3)
    journal.checkpoint("d", "one", 3, {})
    journal.reopen("d", 3)
    assert journal.progress("d").phases == ("one",)
