"""M4, budgets in tokens: for the run and for each component, spent in one durable ledger; no wall clock kills work.

A call is admitted by an atomic reservation of the most it can cost, and settled to what it did cost.
"""

from __future__ import annotations

import msgspec

from harness.core.roles import ArmContext
from harness.core.seams import NextDelegate, NextModel, PassThrough
from harness.core.types import Attempt, DelegationOutcome, ModelCall, Ok, Outcome, Refused, Verdict

_SCHEMA = """CREATE TABLE IF NOT EXISTS spend (
    scope TEXT PRIMARY KEY, spent INTEGER NOT NULL, reserved INTEGER NOT NULL)"""

RUN_TOKENS = 200_000
ANSWER_TOKENS_MAX = 2_000


class TokenBudget(PassThrough):
    """Scopes: `run` and one per delegation. A reservation that a crash left open is released when it is re-entered."""

    def __init__(self, ctx: ArmContext, *, run_tokens: int = RUN_TOKENS) -> None:
        self._ctx = ctx
        self._limits = {"run": run_tokens}
        with ctx.store.transaction() as db:
            db.execute(_SCHEMA)
            db.execute("UPDATE spend SET reserved=0")

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        self._limits[attempt.delegation.id] = attempt.delegation.budget_tokens
        return await next(attempt)

    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome:
        scopes = ("run", call.site.delegation)
        most = len(msgspec.json.encode(call.request)) // 4 + ANSWER_TOKENS_MAX
        short = self._reserve(scopes, most)
        if short is not None:
            self._ctx.note("budget-exhausted", {"scope": short})
            return Refused(verdict=Verdict.EXHAUSTED, because=f"token budget of {short} is used up")
        spent = 0
        try:
            outcome = await next(call)
            if isinstance(outcome, Ok) and outcome.verdict is Verdict.EXECUTED:
                usage = outcome.value.get("usage") or {}
                spent = usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)
            return outcome
        finally:
            self._settle(scopes, most, spent)

    def _reserve(self, scopes: tuple[str, ...], tokens: int) -> str | None:
        """Reserve in every scope or in none; the name of the scope that is short, or None."""
        with self._ctx.store.transaction() as db:
            for scope in scopes:
                db.execute("INSERT OR IGNORE INTO spend VALUES (?, 0, 0)", (scope,))
                spent, reserved = db.execute("SELECT spent, reserved FROM spend WHERE scope=?", (scope,)).fetchone()
                if spent + reserved + tokens > self._limits.get(scope, RUN_TOKENS):
                    return scope
            for scope in scopes:
                db.execute("UPDATE spend SET reserved=reserved+? WHERE scope=?", (tokens, scope))
        return None

    def _settle(self, scopes: tuple[str, ...], reserved: int, spent: int) -> None:
        with self._ctx.store.transaction() as db:
            for scope in scopes:
                db.execute(
                    "UPDATE spend SET reserved=max(0, reserved-?), spent=spent+? WHERE scope=?",
                    (reserved, spent, scope),
                )
