"""The budget lattice: limits that hold whatever interleaves, dies, lives on or is lost, and exact books otherwise."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import types
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec import Struct
from msgspec.structs import replace

from arms.mesh import m4_budget
from arms.mesh.control import strict
from arms.mesh.control.budget import POLICY, BudgetPolicy
from arms.mesh.m4_budget import BudgetLattice, Spending, fits
from harness.core.errors import ConfigError, Crash
from harness.core.roles import ArmContext
from harness.core.types import DelegationOutcome, Err, Json, ModelCall, Ok, Outcome, Refused, ToolCall, Verdict
from harness.orchestrator.store import SqliteStore
from tests.unit.armbench import Notes, attempt, context, model, run, tool

ASKED = 104
REQUEST: dict[str, Json] = {"messages": ["x" * 400]}
WIDE = BudgetPolicy(
    version=1,
    ladder=(2_000,),
    ceilings={"run": {"tokens": 9_000}},
    allowances={},
    credit=2,
)
MOST = ASKED + WIDE.ladder[0]
LIMITS = {"run": 9_000, "delegation/d": 7_000, "delegation/e": 5_000}
LOST = Err(code="connection-reset", definite=False)
UNAVAILABLE = Err(code="http-503", definite=True)


def answered(tokens: int) -> Ok:
    return Ok(value={"usage": {"prompt_tokens": tokens // 3, "completion_tokens": tokens - tokens // 3}})


def budget(store: Any, note: Notes | None = None, policy: BudgetPolicy = WIDE, **more: Any) -> BudgetLattice:
    made = BudgetLattice(context(store, note=note), policy=policy)

    async def lived(asked: object) -> DelegationOutcome:
        return DelegationOutcome(status="done")

    for name in ("d", "e"):
        run(made.on_delegate(attempt(name, budget_tokens=LIMITS[f"delegation/{name}"], **more), lived))
    return made


def books(store: Any, quantity: str = "tokens") -> tuple[Counter[str], Counter[str]]:
    """What is spent and what is reserved, by scope."""
    spent = store.query("SELECT scope, spent FROM spend WHERE quantity=?", (quantity,))
    held = store.query("SELECT scope, sum(amount) FROM reservations WHERE quantity=? GROUP BY scope", (quantity,))
    return Counter(dict(spent)), Counter(dict(held))


def at(said: Counter[str], *scopes: str) -> list[int]:
    return [said[scope] for scope in scopes]


# --- what a call costs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "tokens", "turns", "state"),
    [
        (answered(900), 900, 1, "settled"),
        (answered(0), 0, 1, "settled"),
        (Ok(value={}), MOST, 1, "settled"),  # no usage was told
        (Ok(value={"usage": {"prompt_tokens": 5}}), MOST, 1, "settled"),
        (
            Ok(value={"usage": {"prompt_tokens": 5, "completion_tokens": 5}}, verdict=Verdict.SUPPRESSED),
            0,
            0,
            "settled",
        ),
        (LOST, MOST, 1, "presumed"),
        (UNAVAILABLE, 0, 0, "settled"),
        (Refused(verdict=Verdict.FENCED, because="x"), 0, 0, "settled"),
        (answered(MOST + 50), MOST + 50, 1, "settled"),  # more than was held to be possible is booked as it is
    ],
)
def test_a_call_is_settled_to_what_it_cost_or_to_the_most_where_nobody_knows(
    outcome: Outcome, tokens: int, turns: int, state: str
) -> None:
    store = SqliteStore(":memory:")
    scopes = ("run", "component/d", "delegation/d", "strategy/d/", "fingerprint/d/", "session/d/1/p")

    async def provider(call: ModelCall) -> Outcome:
        assert books(store)[1] == dict.fromkeys(scopes, MOST)
        assert books(store, "turns")[1] == dict.fromkeys(scopes, 1)
        return outcome

    assert run(budget(store).on_model(model(REQUEST), provider)) is outcome
    assert at(books(store)[0], *scopes) == [tokens] * len(scopes)
    assert at(books(store, "turns")[0], *scopes) == [turns] * len(scopes)
    assert books(store)[1] == Counter()
    ledger = "SELECT delegation, attempt, phase, turn, tokens, state FROM token_ledger"
    assert store.query(ledger) == [("d", 1, "p", 0, tokens, state)]


def test_an_exception_on_the_way_is_settled_to_the_most() -> None:
    store = SqliteStore(":memory:")

    async def provider(call: ModelCall) -> Outcome:
        raise ValueError("torn")

    with pytest.raises(ValueError, match="torn"):
        run(budget(store).on_model(model(REQUEST), provider))
    assert at(books(store)[0], "run", "delegation/d") == [MOST, MOST]


@pytest.mark.parametrize(
    ("spenders", "asks", "scope"),
    [
        ("dd", "d", ""),
        ("ddd", "d", "delegation/d"),
        ("ddd", "e", ""),
        ("ee", "e", "delegation/e"),
        ("ddee", "d", "run"),
        ("dde", "e", ""),
    ],
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
    short = [told for kind, told in notes if kind == "budget-exhausted"]
    assert short == ([{"scope": scope, "delegation": asks}] if scope else [])
    if isinstance(said, Refused):
        assert (said.verdict, books(store)) == (Verdict.EXHAUSTED, before)
        assert not layer.lendable(asks)  # a ceiling is never extended


def spend(layer: BudgetLattice, n: int, tokens: int, delegation: str = "d", **more: Any) -> tuple[Outcome, Json]:
    """The outcome of the n-th model call, and what its request said of the answer's length."""
    asked: list[Json] = []

    async def provider(call: ModelCall) -> Outcome:
        asked.append(call.request.get("max_tokens"))
        return answered(tokens)

    outcome = run(layer.on_model(model(REQUEST, delegation, call_id=f"m{n}", **more), provider))
    return outcome, asked[0] if asked else None


def test_a_short_budget_first_buys_shorter_answers() -> None:
    notes = Notes()
    layer = budget(SqliteStore(":memory:"), notes, replace(WIDE, ladder=(2_000, 500)))
    said = [spend(layer, n, 500) for n in range(14)]
    lengths = [length for outcome, length in said if isinstance(outcome, Ok)]
    assert lengths == [None] * 10 + [500] * 3  # 7000 of d: from 5000 spent on, 2104 do not fit any more, but 604 do
    kinds = [kind for kind in notes.kinds() if kind != "budget"]  # that one is told after each attempt
    assert kinds == ["budget-degraded"] * 3 + ["budget-exhausted"]


@pytest.mark.parametrize("kind", ["strategy", "fingerprint", "session"])
def test_each_allowance_has_a_limit_of_its_own_that_a_credit_may_extend(kind: Any) -> None:
    layer = budget(SqliteStore(":memory:"), policy=replace(WIDE, allowances={kind: {"tokens": 3_000}}))
    assert isinstance(spend(layer, 1, 2_000)[0], Ok)
    refused = spend(layer, 2, 2_000)[0]
    assert isinstance(refused, Refused)
    assert kind in refused.because
    assert layer.lendable("d")
    assert isinstance(spend(layer, 3, 2_000, "e")[0], Ok)
    if kind == "session":
        assert isinstance(spend(layer, 4, 2_000, attempt=2)[0], Ok)
    elif kind == "strategy":
        assert isinstance(run(layer.on_model(model({**REQUEST, "model": "larger"}, call_id="m4"), _cheap)), Ok)
    else:
        layer.failing("d", "another")
        assert isinstance(spend(layer, 4, 2_000)[0], Ok)


async def _cheap(call: ModelCall) -> Outcome:
    return answered(10)


def test_a_round_on_credit_may_use_more_of_its_fingerprint_and_no_more_of_its_ceilings() -> None:
    layer = budget(SqliteStore(":memory:"), policy=replace(WIDE, allowances={"fingerprint": {"tokens": 3_000}}))
    layer.granted("d")
    said = [spend(layer, n, 2_000)[0] for n in range(3)]
    assert [type(one) for one in said] == [Ok, Ok, Refused]
    assert "fingerprint" in said[2].because  # type: ignore[union-attr]


def test_delegations_of_one_component_share_its_ceiling() -> None:
    policy = replace(WIDE, ceilings={"component": {"tokens": 5_000}})
    layer = budget(SqliteStore(":memory:"), policy=policy, component="orders")
    said = [spend(layer, n, 2_000, d)[0] for n, d in enumerate("ded")]
    assert [type(one) for one in said] == [Ok, Ok, Refused]
    assert "component/orders" in said[2].because  # type: ignore[union-attr]


def test_turns_are_limited_as_declared_and_check_runs_by_policy() -> None:
    policy = replace(WIDE, allowances={"session": {"checks": 2}})
    store = SqliteStore(":memory:")
    layer = budget(store, policy=policy, turns_max=3)
    assert [type(spend(layer, n, 1)[0]) for n in range(4)] == [Ok, Ok, Ok, Refused]

    async def check(call: ToolCall) -> Outcome:
        return Ok(value={"passed": True})

    def checked(n: int, name: str = "run_check") -> Outcome:
        return run(layer.on_tool(tool(name, call_id=f"t{n}"), check))

    assert [type(checked(n)) for n in range(3)] == [Ok, Ok, Refused]
    assert isinstance(checked(9, "read"), Ok)
    assert books(store, "checks")[0]["run"] == 2


def test_ceilings_survive_a_restart_and_what_looked_futile_is_forgotten() -> None:
    store = SqliteStore(":memory:")
    policy = replace(WIDE, allowances={"fingerprint": {"tokens": 3_000}})
    assert isinstance(spend(budget(store, policy=policy), 1, 2_500)[0], Ok)
    again = budget(store, policy=policy)
    assert at(books(store)[0], "run", "delegation/d", "fingerprint/d/") == [2_500, 2_500, 0]
    assert isinstance(spend(again, 2, 2_500)[0], Ok)
    assert at(books(store)[0], "run", "delegation/d") == [5_000, 5_000]


def test_the_shipped_policy_holds_a_component_longer_than_one_of_its_failures() -> None:
    assert POLICY.allowances["fingerprint"]["tokens"] < POLICY.ceilings["component"]["tokens"]
    assert POLICY.ceilings["component"]["tokens"] < POLICY.ceilings["run"]["tokens"]


def test_a_policy_that_does_not_fit_is_refused_with_its_file_and_its_place(tmp_path: Any) -> None:
    file = tmp_path / "budget.yaml"
    file.write_text("version: 1\nladder: [5]\nceilings: {run: {tokens: many}}\nallowances: {}\ncredit: 1\n")
    with pytest.raises(ConfigError, match=r"budget.yaml.*tokens|budget.yaml.*ceilings"):
        strict.load(file, BudgetPolicy)
    file.write_text("version: 1\nladder: [5]\nceilings: {}\nallowances: {}\ncredit: 1\nceiling: {}\n")
    with pytest.raises(ConfigError, match="unknown field"):
        strict.load(file, BudgetPolicy)


# --- everything at once -------------------------------------------------------------------------------------------


LATTICE = BudgetPolicy(
    version=1,
    ladder=(2_000, 500),
    ceilings={"run": {"tokens": 9_000, "turns": 9, "checks": 5}, "component": {"tokens": 8_000}},
    allowances={
        "strategy": {"tokens": 6_500},
        "fingerprint": {"tokens": 4_500, "checks": 2},
        "session": {"tokens": 4_600},
    },
    credit=2,
)


@types.coroutine
def under_way() -> Generator[None, None, None]:
    yield


class Flight(Struct):
    """A call that the provider has not answered. old: another process has taken over since."""

    delegation: str
    work: Coroutine[Any, Any, Outcome]
    call_id: str
    most: int
    old: bool = False


class BudgetMachine(RuleBasedStateMachine):
    """`billed` is what the provider charged, which the layer only sees when an answer gets through."""

    @initialize()
    def start(self) -> None:
        self.store = SqliteStore(":memory:")
        self.numbers = itertools.count()
        self.flights: list[Flight] = []
        self.asked: dict[str, ModelCall] = {}
        self.answers: dict[str, Outcome] = {}
        self.billed: Counter[str] = Counter()
        self.before: Counter[str] = Counter()  # billed by earlier processes, or on their account
        self.exact = True  # nothing was lost so far
        self.begin()

    def begin(self) -> None:
        """A process starts on the durable state."""
        self.store.before_commit = lambda: None
        self.before = Counter(self.billed)
        self.layer = budget(self.store, policy=LATTICE, component="c")

    async def provider(self, call: ModelCall) -> Outcome:
        self.asked[call.call_id] = call
        await under_way()
        return self.answers.pop(call.call_id)

    def bill(self, delegation: str, tokens: int) -> None:
        self.billed.update({"run": tokens, "component/c": tokens, f"delegation/{delegation}": tokens})

    def fitting(self, call: ModelCall) -> int | None:
        """The most that this call may cost as things stand, or None: worked out anew from the tables."""
        for answer in LATTICE.ladder:
            if all(
                spent[scope.key] + held[scope.key] + amount <= scope.limits.get(quantity, 10**9)
                for quantity, amount in (("tokens", ASKED + answer), ("turns", 1))
                for spent, held in [books(self.store, quantity)]
                for scope in self.layer._scopes(call)
            ):
                return ASKED + answer
        return None

    @rule(delegation=st.sampled_from(["d", "e"]), number=st.integers(1, 2), phase=st.just("p"))
    def ask(self, delegation: str, number: int, phase: str) -> None:
        call = model(REQUEST, delegation, call_id=f"m{next(self.numbers)}", attempt=number)
        self.layer._models[delegation] = ""
        most = self.fitting(call)
        work = self.layer.on_model(call, self.provider)
        if most is None:
            assert run(work).verdict is Verdict.EXHAUSTED
            return
        work.send(None)
        assert self.asked[call.call_id].request.get("max_tokens", 2_000) == most - ASKED
        self.flights.append(Flight(delegation, work, call.call_id, most))

    @rule(which=st.integers(0, 3), share=st.integers(0, 100), how=st.sampled_from(["ok", "ok", "lost", "no"]))
    def answer(self, which: int, share: int, how: str) -> None:
        if not self.flights:
            return
        flight = self.flights.pop(which % len(self.flights))
        tokens = flight.most * share // 100
        if how != "no":
            self.bill(flight.delegation, tokens)
        said: dict[str, Outcome] = {"ok": answered(tokens), "lost": LOST, "no": UNAVAILABLE}
        self.answers[flight.call_id] = said[how]
        with pytest.raises(StopIteration):
            flight.work.send(None)
        self.exact &= how != "lost" and not flight.old

    @rule(delegation=st.sampled_from(["d", "e"]), how=st.sampled_from(["ok", "no"]))
    def check(self, delegation: str, how: str) -> None:
        async def beyond(call: ToolCall) -> Outcome:
            return Ok(value={"passed": True}) if how == "ok" else UNAVAILABLE

        run(self.layer.on_tool(tool("run_check", delegation, call_id=f"t{next(self.numbers)}"), beyond))

    @rule(delegation=st.sampled_from(["d", "e"]), failure=st.sampled_from(["", "f1", "f2"]), grants=st.booleans())
    def fail(self, delegation: str, failure: str, grants: bool) -> None:
        self.layer.failing(delegation, failure)
        if grants:
            self.layer.granted(delegation)

    def _dead(self) -> None:
        raise Crash

    @rule(billed=st.lists(st.booleans(), min_size=6, max_size=6), share=st.integers(0, 100))
    def die(self, billed: list[bool], share: int) -> None:
        """All calls under way die with the process, some of them billed; another one starts."""
        self.store.before_commit = self._dead
        for flight, charged in zip(self.flights, billed, strict=False):
            with contextlib.suppress(Crash):
                flight.work.close()
            self.bill(flight.delegation, flight.most * share // 100 if charged else 0)
        self.exact &= not self.flights
        self.flights = []
        self.begin()

    @rule(delegation=st.sampled_from(["d", "e"]), at_settling=st.booleans(), share=st.integers(0, 100))
    def die_at_a_record(self, delegation: str, at_settling: bool, share: int) -> None:
        """The process dies at the commit of the reservation, or of the settlement after the provider has charged."""
        call = model(REQUEST, delegation, call_id=f"m{next(self.numbers)}")
        self.layer._models[delegation] = ""
        most = self.fitting(call)
        if most is not None:
            work = self.layer.on_model(call, self.provider)
            if at_settling:
                work.send(None)
                self.bill(delegation, most * share // 100)
                self.answers[call.call_id] = answered(most * share // 100)
            self.store.before_commit = self._dead
            with pytest.raises(Crash):
                work.send(None)
            self.exact &= not at_settling
        self.die([False] * 6, 0)

    @rule()
    def be_replaced(self) -> None:
        """The old process lives on, and so do its calls."""
        for flight in self.flights:
            flight.old = True
        self.begin()

    @invariant()
    def no_more_is_spent_than_is_granted(self) -> None:
        if not hasattr(self, "layer"):
            return
        for quantity in ("tokens", "turns", "checks"):
            spent, reserved = books(self.store, quantity)
            cells = {s.key: s for d in ("d", "e") for n in (1, 2) for s in self.layer._scopes(model({}, d, attempt=n))}
            for key, scope in cells.items():
                limit = scope.limits.get(quantity)
                assert limit is None or spent[key] + reserved[key] <= limit or key.startswith("fingerprint")
            for key, tokens in self.billed.items() if quantity == "tokens" else ():
                assert tokens <= spent[key] + reserved[key]
        assert all(amount <= 2 * 4_500 for key, amount in books(self.store)[0].items() if key.startswith("fingerprint"))

    @invariant()
    def the_books_are_exact_while_nothing_is_lost(self) -> None:
        if not hasattr(self, "layer"):
            return
        spent, reserved = books(self.store)
        if self.exact and not any(flight.old for flight in self.flights):
            assert {k: spent[k] for k in self.billed} == dict(self.billed)
            assert reserved["run"] == sum(flight.most for flight in self.flights)
            (told,) = self.store.query("SELECT coalesce(sum(tokens), 0) FROM token_ledger WHERE state='settled'")[0]
            assert told == self.billed["run"]

    @invariant()
    def allowances_are_those_of_this_process(self) -> None:
        if hasattr(self, "layer") and self.exact and not any(flight.old for flight in self.flights):
            spent = books(self.store)[0]
            now = sum(tokens for key, tokens in spent.items() if key.startswith("strategy/"))
            assert now == self.billed["run"] - self.before["run"]

    def teardown(self) -> None:
        for flight in getattr(self, "flights", ()):
            flight.work.close()


def attempts(most: int, **more: Any) -> settings:
    fixed: dict[str, Any] = {"deadline": None, "derandomize": True, "database": None}
    return settings(max_examples=most, suppress_health_check=list(HealthCheck), **fixed, **more)


def test_no_limit_is_broken_under_interleaving_and_crashes() -> None:
    run_state_machine_as_test(BudgetMachine, settings=attempts(80))


def released(patch: pytest.MonkeyPatch) -> None:
    """What another process left open is taken for unspent."""
    opened = Spending.__init__

    def begun(self: Spending, ctx: ArmContext) -> None:
        with contextlib.suppress(sqlite3.OperationalError), ctx.store.transaction() as db:
            db.execute("DELETE FROM reservations")
        opened(self, ctx)

    patch.setattr(Spending, "__init__", begun)


def lost_for_free(patch: pytest.MonkeyPatch) -> None:
    cost = m4_budget.cost
    patch.setattr(m4_budget, "cost", lambda outcome, most: 0 if isinstance(outcome, Err) else cost(outcome, most))


def unreserved(patch: pytest.MonkeyPatch) -> None:
    """Looks and does not leap: nothing is held while the call is under way."""
    reserve = Spending.reserve

    def reserved(self: Spending, call_id: str, *rest: Any) -> Any:
        short = reserve(self, call_id, *rest)
        with self._store.transaction() as db:
            db.execute("UPDATE reservations SET amount=0 WHERE call_id=?", (call_id,))
        return short

    patch.setattr(Spending, "reserve", reserved)


def unlimited(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(m4_budget, "fits", lambda spent, reserved, amount, limit: True)


def blind_to_what_is_under_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(m4_budget, "fits", lambda spent, reserved, amount, limit: fits(spent, 0, amount, limit))


@pytest.mark.parametrize("mutate", [released, lost_for_free, unreserved, unlimited, blind_to_what_is_under_way])
def test_a_lattice_without_one_of_its_guards_is_noticed(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(BudgetMachine, settings=attempts(300, phases=[Phase.generate]))


def test_the_size_of_a_request_is_what_the_tests_take_it_for() -> None:
    assert len(msgspec.json.encode(REQUEST)) // 4 == ASKED


def test_what_is_left_of_the_tightest_ceiling_is_told_after_each_attempt() -> None:
    """2000 of the 7000 tokens that d may have are spent, of 9000 for the run."""
    notes = Notes()
    layer = budget(SqliteStore(":memory:"), notes)

    async def provider(call: ModelCall) -> Outcome:
        return answered(2_000)

    async def lived(asked: object) -> DelegationOutcome:
        await layer.on_model(model(REQUEST, "d", call_id="m"), provider)
        return DelegationOutcome(status="done")

    run(layer.on_delegate(attempt("d", budget_tokens=LIMITS["delegation/d"]), lived))
    told = [data for kind, data in notes if kind == "budget" and data["delegation"] == "d"][-1]
    assert told["tokens_left"] == 5_000
