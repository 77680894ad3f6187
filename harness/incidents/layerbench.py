"""Real layers of an arm by themselves: a process start over durable state, without a trial behind it.

For stories about one decision of one layer, which a whole trial would only bury.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from harness.core.clock import Clock, VirtualLoop
from harness.core.roles import ArmContext
from harness.core.seams import Crossings, Layer, compose
from harness.core.types import (
    Attempt,
    Commit,
    Delegation,
    DelegationOutcome,
    EffectCall,
    ModelCall,
    Ok,
    Outcome,
    Probe,
    ToolCall,
)
from harness.orchestrator.arm_store import ArmStore
from harness.orchestrator.delegate import Env, run_attempt
from harness.orchestrator.store import Journal, SqliteStore

Made = Callable[[ArmContext], Sequence[Layer]]


def context(clock: Clock, store: SqliteStore, **facts: Any) -> ArmContext:
    """A context without a trial behind it: boundaries cannot tell, and chance is always the same. facts: fields that
    are otherwise."""

    async def cannot_tell(call: EffectCall) -> Probe:
        return Probe(count=None)

    usual: dict[str, Any] = {
        "now_ms": clock.now_ms,
        "sleep_ms": clock.sleep_ms,
        "draw": lambda *name: 0.5,
        "note": lambda kind, data: None,
        "store": ArmStore(store.transaction, store.query),
        "probe": cannot_tell,
        "progress": lambda call_id: 0,
        "contracts": {},
        "epoch": 0,
    }
    return ArmContext(**(usual | facts))


class Outside:
    """What is behind the layers: everything goes well, and effects are kept in order. Override what a story tells."""

    def __init__(self) -> None:
        self.effects: list[EffectCall] = []

    async def model(self, call: ModelCall) -> Outcome:
        return Ok(value={"id": call.call_id, "content": "", "tool_calls": []})

    async def tool(self, call: ToolCall) -> Outcome:
        return Ok()

    async def effect(self, call: EffectCall) -> Outcome:
        self.effects.append(call)
        return Ok(value={"n": len(self.effects)}, receipt=f"{len(self.effects)}-0")

    async def commit(self, call: Commit) -> Outcome:
        return Ok()


class _NoFiles:
    """Workspaces of a delegation that writes nothing."""

    async def begin(self, attempt: Attempt) -> None:
        """There is nothing to lay out."""

    def changes(self, attempt: Attempt) -> dict[str, str | None]:
        return {}

    def accepted(self, attempt: Attempt) -> dict[str, str]:
        return {}


class Process:
    """One start of an orchestrator process: its own layers over a store that may know earlier ones.

    made: makes the layers, outermost first. epoch: how many starts there were before.
    """

    def __init__(
        self, store: SqliteStore, delegation: Delegation, made: Made, outside: Outside, epoch: int = 0
    ) -> None:
        self._delegation, self._outside, self._epoch = delegation, outside, epoch
        self._journal = Journal(store)
        contracts = {delegation.id: delegation.contract}
        self._layers = tuple(made(context(Clock(), store, contracts=contracts, epoch=epoch)))

    async def attempt(
        self, work: Callable[[Crossings], Awaitable[DelegationOutcome]] | None = None
    ) -> DelegationOutcome:
        """The delegation through the layers. work: what an attempt does, by default the orchestrator's own loop."""
        out = self._outside
        ids = itertools.count(1)

        async def inner(attempt: Attempt) -> DelegationOutcome:
            if work is not None:
                return await work(crossings)
            env = Env(
                crossings=crossings,
                journal=self._journal,
                workspaces=_NoFiles(),
                note=lambda kind, data: None,
                new_id=lambda: f"{self._epoch}-{next(ids)}",
            )
            return await run_attempt(env, attempt)

        base = Crossings(delegate=inner, model=out.model, tool=out.tool, effect=out.effect, commit=out.commit)
        crossings = compose(self._layers, base)
        return await crossings.delegate(
            Attempt(delegation=self._delegation, number=self._epoch + 1, resumed=self._epoch > 0)
        )


def on_virtual_time(work: Awaitable[Any]) -> Any:
    """The result of work that waits for nothing but timers, without waiting."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()
