"""M4, budget lattice: tokens, turns and check runs, by run, component, delegation, strategy, failure and session.

A call is admitted by one atomic reservation of the most it can cost in every scope, and settled to what it did cost.
Where nobody can say what that was (the process died, the answer was lost, no usage was told) it is the most: a ceiling
has to hold whatever gets lost. No wall clock ends anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from arms.mesh.control import breaker
from arms.mesh.control.budget import POLICY, Allowance, BudgetPolicy
from harness.core.roles import ArmContext
from harness.core.seams import NextDelegate, NextModel, NextTool, PassThrough
from harness.core.types import (
    Attempt,
    Delegation,
    DelegationOutcome,
    Err,
    ModelCall,
    Ok,
    Outcome,
    Refused,
    ToolCall,
    Verdict,
)

_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS spend (scope TEXT, quantity TEXT, spent INTEGER NOT NULL, worker TEXT,
    PRIMARY KEY (scope, quantity))""",
    """CREATE TABLE IF NOT EXISTS reservations (call_id TEXT, scope TEXT, quantity TEXT, amount INTEGER, worker TEXT,
    PRIMARY KEY (call_id, scope, quantity))""",
    """CREATE TABLE IF NOT EXISTS token_ledger (call_id TEXT PRIMARY KEY, delegation TEXT, component TEXT,
    attempt INTEGER, phase TEXT, turn INTEGER, model TEXT, tokens INTEGER, state TEXT)""",
    "CREATE INDEX IF NOT EXISTS token_ledger_delegation ON token_ledger (delegation, attempt)",
)

ALLOWANCES = get_args(Allowance)
"""Kinds of scopes that begin anew with each process and that a credit may extend."""

ROUNDS_MAX = breaker.POLICY.rounds.rounds_max
"""A delegation's declared turns are those of one round; this many rounds are the most that the breaker lets it have."""

Amounts = Mapping[str, int]


class Scope(Struct, frozen=True):
    """A cell of the lattice. limits: by quantity; one that is missing has none."""

    kind: str
    name: str
    limits: Amounts

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.name}" if self.name else self.kind


def fits(spent: int, reserved: int, amount: int, limit: int | None) -> bool:
    """Whether this much more stays within the limit, when everything that is under way costs all that it can."""
    return limit is None or spent + reserved + amount <= limit


class Spending:
    """Spending and reservations of one run, durable and shared by its hosts. A reservation that an earlier process of
    this host left open is spent: it may have been, and if that process lives on, what it settles is settled already."""

    def __init__(self, ctx: ArmContext) -> None:
        self._store, self._worker = ctx.store, ctx.worker
        with self._store.transaction() as db:
            for statement in _SCHEMA:
                db.execute(statement)
            mine = (self._worker,)
            left = "SELECT scope, quantity, sum(amount) FROM reservations WHERE worker=? GROUP BY scope, quantity"
            for scope, quantity, amount in db.execute(left, mine).fetchall():
                self._add(db, scope, quantity, amount)
            open_calls = "SELECT call_id FROM reservations WHERE worker=?"
            db.execute(
                f"UPDATE token_ledger SET state='presumed' WHERE state='reserved' AND call_id IN ({open_calls})", mine
            )
            db.execute("DELETE FROM reservations WHERE worker=?", mine)
            for kind in ALLOWANCES:  # how futile it looked is forgotten, what it cost above is not
                db.execute("DELETE FROM spend WHERE scope LIKE ? AND worker=?", (f"{kind}/%", *mine))

    def reserve(self, call_id: str, scopes: Iterable[Scope], amounts: Amounts, entry: tuple | None) -> Scope | None:
        """Reserve in every scope or in none; the scope that is short, or None. entry: the row of the token ledger."""
        cells = [(scope, quantity) for scope in scopes for quantity in amounts]
        with self._store.transaction() as db:
            for scope, quantity in cells:
                if not fits(*self._stand(db, scope.key, quantity), amounts[quantity], scope.limits.get(quantity)):
                    return scope
            rows = [(call_id, scope.key, quantity, amounts[quantity], self._worker) for scope, quantity in cells]
            db.executemany("INSERT INTO reservations VALUES (?, ?, ?, ?, ?)", rows)
            if entry is not None:
                db.execute("INSERT OR REPLACE INTO token_ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'reserved')", entry)
        return None

    def left(self, scopes: Sequence[Scope]) -> dict[str, int]:
        """The least that is left of each quantity in any of these scopes; below 0 where a ceiling did not hold."""
        used = dict.fromkeys(((scope.key, quantity) for scope in scopes for quantity in scope.limits), 0)
        for table, column in (("spend", "spent"), ("reservations", "amount")):
            for scope, quantity, amount in self._store.query(f"SELECT scope, quantity, {column} FROM {table}"):
                if (scope, quantity) in used:
                    used[scope, quantity] += amount
        limits = [(quantity, limit - used[s.key, quantity]) for s in scopes for quantity, limit in s.limits.items()]
        return {quantity: min(rest for q, rest in limits if q == quantity) for quantity in sorted(dict(limits))}

    def _stand(self, db: Any, scope: str, quantity: str) -> tuple[int, int]:
        """What is spent and what is reserved in a cell."""
        where = "WHERE scope=? AND quantity=?"
        (spent,) = db.execute(f"SELECT coalesce(sum(spent), 0) FROM spend {where}", (scope, quantity)).fetchone()
        (held,) = db.execute(f"SELECT coalesce(sum(amount), 0) FROM reservations {where}", (scope, quantity)).fetchone()
        return int(spent), int(held)

    def settle(self, call_id: str, spent: Amounts, *, known: bool = True) -> None:
        """Book what a call did cost. Settled once: for a call that another process took over there is nothing left."""
        with self._store.transaction() as db:
            held = db.execute("SELECT scope, quantity FROM reservations WHERE call_id=?", (call_id,)).fetchall()
            if not held:
                return
            db.execute("DELETE FROM reservations WHERE call_id=?", (call_id,))
            for scope, quantity in held:
                self._add(db, scope, quantity, spent.get(quantity, 0))
            state = "settled" if known else "presumed"
            row = (spent.get("tokens", 0), state, call_id)
            db.execute("UPDATE token_ledger SET tokens=?, state=? WHERE call_id=?", row)

    def _add(self, db: Any, scope: str, quantity: str, amount: int) -> None:
        db.execute("INSERT OR IGNORE INTO spend VALUES (?, ?, 0, ?)", (scope, quantity, self._worker))
        db.execute("UPDATE spend SET spent=spent+? WHERE scope=? AND quantity=?", (amount, scope, quantity))


class BudgetLattice(PassThrough):
    """The layer. run_tokens: the ceiling of the run, where it is another than the policy's.

    When tokens are short, a shorter answer is held for and asked for before the call is refused; and a delegation whose
    allowance is used up may be given one round on credit by whoever decides on rounds (`lendable`).
    """

    def __init__(self, ctx: ArmContext, *, run_tokens: int | None = None, policy: BudgetPolicy = POLICY) -> None:
        self._ctx, self._policy = ctx, policy
        run = _limits(policy.ceilings, "run")
        self._run = Scope("run", "", run if run_tokens is None else run | {"tokens": run_tokens})
        self._spending = Spending(ctx)
        self._delegations: dict[str, Delegation] = {}
        self._failing: dict[str, str] = {}
        self._granted: set[str] = set()
        self._short: dict[str, str] = {}
        self._models: dict[str, str] = {}

    # --- what rounds tell and ask -----------------------------------------------------------------------------

    def failing(self, delegation: str, fingerprint: str) -> None:
        """The delegation works on another failure from now on, or on the same one again."""
        self._failing[delegation] = fingerprint

    def granted(self, delegation: str) -> None:
        """The delegation works on credit."""
        self._granted.add(delegation)

    def lendable(self, delegation: str) -> bool:
        """Whether what ran out last was an allowance: a ceiling is never extended."""
        return self._short.get(delegation) in ALLOWANCES

    # --- the seams --------------------------------------------------------------------------------------------

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        self._delegations[attempt.delegation.id] = attempt.delegation
        self._short.pop(attempt.delegation.id, None)
        outcome = await next(attempt)
        self._tell_left(attempt)
        return outcome

    def _tell_left(self, attempt: Attempt) -> None:
        """What is left of the scopes that nothing extends, the tightest of each quantity."""
        left = self._spending.left(self._ceilings(attempt.delegation.id))
        told = {f"{quantity}_left": amount for quantity, amount in left.items()}
        self._ctx.note("budget", {"delegation": attempt.delegation.id, "attempt": attempt.number, **told})

    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome:
        self._models[call.site.delegation] = str(call.request.get("model", ""))
        scopes = self._scopes(call)
        asked = len(msgspec.json.encode(call.request)) // 4
        for answer in self._policy.ladder:
            most = asked + answer
            entry = self._entry(call, most)
            short = self._spending.reserve(call.call_id, scopes, {"tokens": most, "turns": 1}, entry)
            if short is None:
                break
        else:
            return self._refuse(call, short)
        if answer < self._policy.ladder[0]:
            self._ctx.note("budget-degraded", {"delegation": call.site.delegation, "answer_tokens": answer})
            call = replace(call, request={**call.request, "max_tokens": answer})
        outcome: Outcome | None = None
        try:
            outcome = await next(call)
            return outcome
        finally:
            spent = most if outcome is None else cost(outcome, most)
            turns = 0 if _certainly_not(outcome) else 1
            self._spending.settle(call.call_id, {"tokens": spent, "turns": turns}, known=_known(outcome))

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        if call.tool != "run_check":
            return await next(call)
        short = self._spending.reserve(call.call_id, self._scopes(call), {"checks": 1}, None)
        if short is not None:
            return self._refuse(call, short)
        outcome: Outcome | None = None
        try:
            outcome = await next(call)
            return outcome
        finally:
            self._spending.settle(call.call_id, {"checks": 0 if _certainly_not(outcome) else 1})

    def _refuse(self, call: ModelCall | ToolCall, short: Scope | None) -> Refused:
        scope = short or self._run
        self._short[call.site.delegation] = scope.kind
        self._ctx.note("budget-exhausted", {"scope": scope.key, "delegation": call.site.delegation})
        return Refused(verdict=Verdict.EXHAUSTED, because=f"the budget of {scope.key} is used up")

    def _entry(self, call: ModelCall, tokens: int) -> tuple:
        d, site = self._delegations.get(call.site.delegation), call.site
        component = d.component if d else ""
        model = self._models[site.delegation]
        return (call.call_id, site.delegation, component, call.attempt, site.phase, call.turn, model, tokens)

    def _ceilings(self, id: str) -> list[Scope]:
        """The cells of a delegation that nothing extends, widest first."""
        ceilings, d = self._policy.ceilings, self._delegations.get(id)
        declared = _limits(ceilings, "delegation")
        if d is not None:
            declared = {
                "tokens": d.budget_tokens,
                "turns": d.turns_max * max(1, len(d.phases)) * ROUNDS_MAX,
                **declared,
            }
            declared["turns"] = min(declared["turns"], int(d.contract.terms.get("turns_total", declared["turns"])))
        component = (d.component if d else "") or id
        return [
            self._run,
            Scope("component", component, _limits(ceilings, "component")),
            Scope("delegation", id, declared),
        ]

    def _scopes(self, call: ModelCall | ToolCall) -> list[Scope]:
        """The cells that a call draws on, widest first."""
        id, d = call.site.delegation, self._delegations.get(call.site.delegation)
        allowances = self._policy.allowances
        session = _limits(allowances, "session") | ({"turns": d.turns_max} if d is not None else {})
        times = self._policy.credit if id in self._granted else 1
        failing = {quantity: limit * times for quantity, limit in _limits(allowances, "fingerprint").items()}
        return [
            *self._ceilings(id),
            Scope("strategy", f"{id}/{self._models.get(id, '')}", _limits(allowances, "strategy")),
            Scope("fingerprint", f"{id}/{self._failing.get(id, '')}", failing),
            Scope("session", f"{id}/{call.attempt}/{call.site.phase}", session),
        ]


def _limits(of: Mapping[Any, Mapping[Any, int]], kind: str) -> dict[str, int]:
    return {str(quantity): limit for quantity, limit in of.get(kind, {}).items()}


def cost(outcome: Outcome, most: int) -> int:
    """Tokens that a call cost, or the most where that cannot be known."""
    if isinstance(outcome, Err):
        return 0 if outcome.definite else most
    if not isinstance(outcome, Ok) or outcome.verdict is not Verdict.EXECUTED:
        return 0
    usage = outcome.value.get("usage") or {}
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return most if prompt is None or completion is None else int(prompt + completion)


def _certainly_not(outcome: Outcome | None) -> bool:
    if isinstance(outcome, Ok):
        return outcome.verdict is not Verdict.EXECUTED
    return isinstance(outcome, Refused) or (isinstance(outcome, Err) and outcome.definite)


def _known(outcome: Outcome | None) -> bool:
    return outcome is not None and (not isinstance(outcome, Err) or outcome.definite)
