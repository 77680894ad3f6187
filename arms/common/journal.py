"""A durable per-step journal: what a durable-execution engine gives.

Completed steps are returned on resume, the step in flight runs again. A step is known by its position (delegation,
attempt, phase, turn, index, ordinal), as in the engines measured; with `probe`, a step of which only the intent was
written asks its boundary first.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from arms.common.business import business_key, declaration
from harness.core.roles import ArmContext
from harness.core.seams import NextCommit, NextDelegate, NextEffect, NextModel, NextTool, PassThrough
from harness.core.types import (
    Attempt,
    Call,
    Commit,
    DelegationOutcome,
    EffectCall,
    ModelCall,
    Ok,
    Outcome,
    ToolCall,
    Verdict,
)

_SCHEMA = """CREATE TABLE IF NOT EXISTS journal (
    position TEXT PRIMARY KEY, business TEXT, state TEXT, value TEXT, receipt TEXT)"""


class Written(Struct, frozen=True):
    """A journal row: `state` is intent or done."""

    state: str
    value: str | None
    receipt: str | None


class Journal(PassThrough):
    def __init__(self, ctx: ArmContext, *, probe: bool = False) -> None:
        self._ctx, self._probe = ctx, probe
        with ctx.store.transaction() as db:
            db.execute(_SCHEMA)

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        return await next(replace(attempt, keep_workspace=attempt.resumed))

    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome:
        return await self._step(call, f"model/{call.turn}", next)

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        return await self._step(call, f"tool/{call.turn}/{call.index}", next)

    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome:
        return await self._step(call, f"effect/{call.turn}/{call.index}/{call.ordinal}", next)

    async def on_commit(self, call: Commit, next: NextCommit) -> Outcome:
        return await self._step(call, f"commit/{call.step}", next)

    async def _step(self, call: Call, place: str, next: Callable[[Any], Awaitable[Outcome]]) -> Outcome:
        position = f"{call.site.delegation}|{call.attempt}|{call.site.phase}|{place}"
        written = self._read(position)
        if written is not None and written.state == "done":
            return Ok(value=json.loads(written.value or "null"), receipt=written.receipt, verdict=Verdict.SUPPRESSED)
        probed = self._probe and isinstance(call, EffectCall)
        business = business_key(self._ctx, call) if isinstance(call, EffectCall) else ""
        if probed and written is not None:
            found = await self._ask(call, position, business)  # type: ignore[arg-type]
            if found is not None:
                return found
        if probed and written is None:
            self._write(position, business, "intent", None, None)
        outcome = await next(call)
        if isinstance(outcome, Ok):
            self._write(position, business, "done", json.dumps(outcome.value), outcome.receipt)
        return outcome

    async def _ask(self, call: EffectCall, position: str, business: str) -> Outcome | None:
        """The result of an effect that is already there; None when it is not, or when the boundary cannot tell."""
        done = "SELECT count(*) FROM journal WHERE business=? AND state='done'"
        ((known,),) = self._ctx.store.query(done, (business,))
        answer = await self._ctx.probe(call)
        declared = declaration(self._ctx, call)
        needs_content = declared is not None and declared.content and answer.value is None
        if answer.count is None or answer.count <= known or needs_content:
            return None
        receipt = answer.receipts[known] if known < len(answer.receipts) else None
        self._write(position, business, "done", json.dumps(answer.value), receipt)
        return Ok(value=answer.value, receipt=receipt, verdict=Verdict.RECONCILED)

    def _read(self, position: str) -> Written | None:
        rows = self._ctx.store.query("SELECT state, value, receipt FROM journal WHERE position=?", (position,))
        return Written(*rows[0]) if rows else None

    def _write(self, position: str, business: str, state: str, value: str | None, receipt: str | None) -> None:
        with self._ctx.store.transaction() as db:
            row = (position, business, state, value, receipt)
            db.execute("INSERT OR REPLACE INTO journal VALUES (?, ?, ?, ?, ?)", row)
