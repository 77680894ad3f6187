"""M4, budgets in tokens: for the run and for each component, spent in one durable ledger; no wall clock kills work.

A call is admitted by an atomic reservation of the most it can cost, and settled to what it did cost. Where nobody can
say what that was (the process died, the answer was lost, no usage was told) it is the most: a ceiling has to hold
whatever gets lost.
"""

from __future__ import annotations

import msgspec

from harness.core.roles import ArmContext
from harness.core.seams import NextDelegate, NextModel, PassThrough
from harness.core.types import Attempt, DelegationOutcome, Err, ModelCall, Ok, Outcome, Refused, Verdict

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS spend (scope TEXT PRIMARY KEY, spent INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS reservations (call_id TEXT, scope TEXT, tokens INTEGER, PRIMARY KEY (call_id, scope))",
)

RUN_TOKENS = 200_000
ANSWER_TOKENS_MAX = 2_000


class TokenBudget(PassThrough):
    """Scopes: `run` and one per delegation. A reservation that another process left open is spent: it may have been,
    and if that process lives on, what it settles is settled already."""

    def __init__(self, ctx: ArmContext, *, run_tokens: int = RUN_TOKENS) -> None:
        self._ctx = ctx
        self._limits = {"run": run_tokens}
        with ctx.store.transaction() as db:
            for statement in _SCHEMA:
                db.execute(statement)
            for scope, tokens in db.execute("SELECT scope, sum(tokens) FROM reservations GROUP BY scope").fetchall():
                db.execute("UPDATE spend SET spent=spent+? WHERE scope=?", (tokens, scope))
            db.execute("DELETE FROM reservations")

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        self._limits[attempt.delegation.id] = attempt.delegation.budget_tokens
        return await next(attempt)

    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome:
        scopes = ("run", call.site.delegation)
        most = len(msgspec.json.encode(call.request)) // 4 + ANSWER_TOKENS_MAX
        short = self._reserve(call.call_id, scopes, most)
        if short is not None:
            self._ctx.note("budget-exhausted", {"scope": short})
            return Refused(verdict=Verdict.EXHAUSTED, because=f"token budget of {short} is used up")
        spent = most
        try:
            outcome = await next(call)
            spent = _cost(outcome, most)
            return outcome
        finally:
            self._settle(call.call_id, scopes, spent)

    def _reserve(self, call_id: str, scopes: tuple[str, ...], tokens: int) -> str | None:
        """Reserve in every scope or in none; the name of the scope that is short, or None."""
        with self._ctx.store.transaction() as db:
            for scope in scopes:
                db.execute("INSERT OR IGNORE INTO spend VALUES (?, 0)", (scope,))
                held = "SELECT coalesce(sum(tokens), 0) FROM reservations WHERE scope=?"
                (spent,) = db.execute(f"SELECT spent + ({held}) FROM spend WHERE scope=?", (scope, scope)).fetchone()
                if spent + tokens > self._limits.get(scope, RUN_TOKENS):
                    return scope
            rows = [(call_id, scope, tokens) for scope in scopes]
            db.executemany("INSERT INTO reservations VALUES (?, ?, ?)", rows)
        return None

    def _settle(self, call_id: str, scopes: tuple[str, ...], spent: int) -> None:
        with self._ctx.store.transaction() as db:
            if db.execute("DELETE FROM reservations WHERE call_id=?", (call_id,)).rowcount:
                db.executemany("UPDATE spend SET spent=spent+? WHERE scope=?", [(spent, scope) for scope in scopes])


def _cost(outcome: Outcome, most: int) -> int:
    """Tokens that a call cost, or the most where that cannot be known."""
    if isinstance(outcome, Err):
        return 0 if outcome.definite else most
    if not isinstance(outcome, Ok) or outcome.verdict is not Verdict.EXECUTED:
        return 0
    usage = outcome.value.get("usage") or {}
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return most if prompt is None or completion is None else int(prompt + completion)
