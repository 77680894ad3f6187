"""The token ledger: a ceiling that holds whatever interleaves, dies, lives on or is lost, and exact books otherwise."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import types
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec import Struct

from arms.mesh import m4_budget
from arms.mesh.m4_budget import ANSWER_TOKENS_MAX, TokenBudget
from harness.core.errors import Crash
from harness.core.roles import ArmContext
from harness.core.types import DelegationOutcome, Err, Json, ModelCall, Ok, Outcome, Refused, Verdict
from harness.orchestrator.store import SqliteStore
from tests.unit.armbench import Notes, attempt, context, model, run

REQUEST: dict[str, Json] = {"messages": ["x" * 400]}
MOST = 104 + ANSWER_TOKENS_MAX
LIMITS = {"run": 9_000, "d": 7_000, "e": 5_000}
LOST = Err(code="connection-reset", definite=False)
UNAVAILABLE = Err(code="http-503", definite=True)


def answered(tokens: int) -> Ok:
    return Ok(value={"usage": {"prompt_tokens": tokens // 3, "completion_tokens": tokens - tokens // 3}})


def budget(store: SqliteStore, note: Notes | None = None) -> TokenBudget:
    made = TokenBudget(context(store, note=note), run_tokens=LIMITS["run"])

    async def lived(asked: object) -> DelegationOutcome:
        return DelegationOutcome(status="done")

    for name in ("d", "e"):
        run(made.on_delegate(attempt(name, budget_tokens=LIMITS[name]), lived))
    return made


def books(store: SqliteStore) -> tuple[Counter[str], Counter[str]]:
    """Tokens spent and tokens reserved, by scope."""
    spent = Counter(dict(store.query("SELECT scope, spent FROM spend")))
    return spent, Counter(dict(store.query("SELECT scope, sum(tokens) FROM reservations GROUP BY scope")))


# --- what a call costs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "cost"),
    [
        (answered(900), 900),
        (answered(0), 0),
        (Ok(value={}), MOST),  # no usage was told
        (Ok(value={"usage": {"prompt_tokens": 5}}), MOST),
        (Ok(value={"usage": {"prompt_tokens": 5, "completion_tokens": 5}}, verdict=Verdict.SUPPRESSED), 0),
        (LOST, MOST),
        (UNAVAILABLE, 0),
        (Refused(verdict=Verdict.FENCED, because="x"), 0),
        (answered(MOST + 50), MOST + 50),  # more than was held to be possible is booked as it is
    ],
)
def test_a_call_is_settled_to_what_it_cost_or_to_the_most_where_nobody_knows(outcome: Outcome, cost: int) -> None:
    store = SqliteStore(":memory:")

    async def provider(call: ModelCall) -> Outcome:
        assert books(store)[1] == {"run": MOST, "d": MOST}
        return outcome

    assert run(budget(store).on_model(model(REQUEST), provider)) is outcome
    assert books(store) == (Counter({"run": cost, "d": cost}), Counter())


def test_an_exception_on_the_way_is_settled_to_the_most() -> None:
    store = SqliteStore(":memory:")

    async def provider(call: ModelCall) -> Outcome:
        raise ValueError("torn")

    with pytest.raises(ValueError, match="torn"):
        run(budget(store).on_model(model(REQUEST), provider))
    assert books(store) == (Counter({"run": MOST, "d": MOST}), Counter())


@pytest.mark.parametrize(
    ("spenders", "asks", "scope"),
    [("dd", "d", ""), ("ddd", "d", "d"), ("ddd", "e", ""), ("ee", "e", "e"), ("ddee", "d", "run"), ("dde", "e", "")],
)
def test_a_call_that_does_not_fit_any_more_is_refused_by_name_and_reserves_nowhere(
    spenders: str, asks: str, scope: str
) -> None:
    """2000 tokens a call, against 9000 for the run, 7000 for d and 5000 for e."""
    store, notes = SqliteStore(":memory:"), Notes()
    layer = budget(store, notes)

    async def provider(call: ModelCall) -> Outcome:
        return answered(2_000)

    for n, spender in enumerate(spenders):
        assert isinstance(run(layer.on_model(model(REQUEST, spender, call_id=f"m{n}"), provider)), Ok)
    before = books(store)
    said = run(layer.on_model(model(REQUEST, asks, call_id="last"), provider))
    assert notes == ([("budget-exhausted", {"scope": scope})] if scope else [])
    if isinstance(said, Refused):
        assert (said.verdict, books(store)) == (Verdict.EXHAUSTED, before)


# --- everything at once -------------------------------------------------------------------------------------------


@types.coroutine
def under_way() -> Generator[None, None, None]:
    yield


class Flight(Struct):
    """A call that the provider has not answered. old: another process has taken over since."""

    delegation: str
    work: Coroutine[Any, Any, Outcome]
    call_id: str
    old: bool = False


class BudgetMachine(RuleBasedStateMachine):
    """`billed` is what the provider charged, which the layer only sees when an answer gets through."""

    @initialize()
    def start(self) -> None:
        self.store = SqliteStore(":memory:")
        self.layer, self.numbers = budget(self.store), itertools.count()
        self.flights: list[Flight] = []
        self.answers: dict[str, Outcome] = {}
        self.billed: Counter[str] = Counter()
        self.exact = True  # nothing was lost so far

    async def provider(self, call: ModelCall) -> Outcome:
        await under_way()
        return self.answers.pop(call.call_id)

    def bill(self, delegation: str, tokens: int) -> None:
        self.billed.update({"run": tokens, delegation: tokens})

    @rule(delegation=st.sampled_from(["d", "e"]))
    def ask(self, delegation: str) -> None:
        spent, reserved = books(self.store)
        fits = all(spent[s] + reserved[s] + MOST <= LIMITS[s] for s in ("run", delegation))
        call = model(REQUEST, delegation, call_id=f"m{next(self.numbers)}")
        work = self.layer.on_model(call, self.provider)
        if fits:
            work.send(None)
            self.flights.append(Flight(delegation, work, call.call_id))
        else:
            assert run(work).verdict is Verdict.EXHAUSTED

    @rule(which=st.integers(0, 3), tokens=st.integers(0, MOST), how=st.sampled_from(["ok", "ok", "lost", "no"]))
    def answer(self, which: int, tokens: int, how: str) -> None:
        if not self.flights:
            return
        flight = self.flights.pop(which % len(self.flights))
        if how != "no":
            self.bill(flight.delegation, tokens)
        said: dict[str, Outcome] = {"ok": answered(tokens), "lost": LOST, "no": UNAVAILABLE}
        self.answers[flight.call_id] = said[how]
        with pytest.raises(StopIteration):
            flight.work.send(None)
        self.exact &= how != "lost" and not flight.old

    @rule(billed=st.lists(st.booleans(), min_size=6, max_size=6), tokens=st.integers(0, MOST))
    def die(self, billed: list[bool], tokens: int) -> None:
        """All calls under way die with the process, some of them billed; another one starts."""

        def dead() -> None:
            raise Crash

        self.store.before_commit = dead
        for flight, charged in zip(self.flights, billed, strict=False):
            with contextlib.suppress(Crash):
                flight.work.close()
            self.bill(flight.delegation, tokens if charged else 0)
        self.exact &= not self.flights
        self.flights = []
        self.store.before_commit = lambda: None
        self.layer = budget(self.store)

    @rule()
    def be_replaced(self) -> None:
        """The old process lives on, and so do its calls."""
        for flight in self.flights:
            flight.old = True
        self.layer = budget(self.store)

    @invariant()
    def no_more_is_spent_than_is_granted(self) -> None:
        spent, reserved = books(self.store)
        for scope, limit in LIMITS.items():
            assert self.billed[scope] <= spent[scope] + reserved[scope] <= limit

    @invariant()
    def the_books_are_exact_while_nothing_is_lost(self) -> None:
        spent, reserved = books(self.store)
        if self.exact and not any(flight.old for flight in self.flights):
            assert spent == self.billed
            assert reserved["run"] == MOST * len(self.flights)

    def teardown(self) -> None:
        for flight in getattr(self, "flights", ()):
            flight.work.close()


def attempts(most: int, **more: Any) -> settings:
    fixed: dict[str, Any] = {"deadline": None, "derandomize": True, "database": None}
    return settings(max_examples=most, suppress_health_check=list(HealthCheck), **fixed, **more)


def test_no_ceiling_is_broken_under_interleaving_and_crashes() -> None:
    run_state_machine_as_test(BudgetMachine, settings=attempts(100))


def released(patch: pytest.MonkeyPatch) -> None:
    """What another process left open is taken for unspent."""
    opened = TokenBudget.__init__

    def begun(self: TokenBudget, ctx: ArmContext, **more: Any) -> None:
        with contextlib.suppress(sqlite3.OperationalError), ctx.store.transaction() as db:
            db.execute("DELETE FROM reservations")
        opened(self, ctx, **more)

    patch.setattr(TokenBudget, "__init__", begun)


def lost_for_free(patch: pytest.MonkeyPatch) -> None:
    cost = m4_budget._cost
    patch.setattr(m4_budget, "_cost", lambda outcome, most: 0 if isinstance(outcome, Err) else cost(outcome, most))


def unreserved(patch: pytest.MonkeyPatch) -> None:
    """Looks and does not leap: nothing is held while the call is under way."""
    reserve = TokenBudget._reserve

    def reserved(self: TokenBudget, call_id: str, scopes: tuple[str, ...], tokens: int) -> str | None:
        short = reserve(self, call_id, scopes, tokens)
        with self._ctx.store.transaction() as db:
            db.execute("UPDATE reservations SET tokens=0 WHERE call_id=?", (call_id,))
        return short

    patch.setattr(TokenBudget, "_reserve", reserved)


@pytest.mark.parametrize("mutate", [released, lost_for_free, unreserved])
def test_a_ledger_of_tokens_without_one_of_its_guards_is_noticed(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(BudgetMachine, settings=attempts(300, phases=[Phase.generate]))
