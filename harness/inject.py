"""Carries out fates: the only file that decides when to kill, hang, cut or lie.

Sits innermost, between the arm's layers and the world. A fault says what should happen at a crossing; this file lets
it happen, once per fault, and writes that it fired. That it was really suffered is said by the side that suffered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from harness.core.clock import Clock
from harness.core.errors import HarnessBug
from harness.core.roles import Alter, Cut, Delay, Die, Fail, Fate, Fault, FaultView, Hang, Pass
from harness.core.seams import Crossings, NextDelegate
from harness.core.types import Call, Commit, EffectCall, Json, ModelCall, Outcome, ToolCall
from harness.world.protocol import Harm, Truth, World


def shape(fate: Fate) -> dict[str, Json]:
    """What the truth says of a fate: its kind, how it harms, and for how long in nominal milliseconds."""
    told: dict[str, Json] = {"fate": type(fate).__name__.lower()}
    if isinstance(fate, Cut | Alter):
        told["how"] = fate.how
    if isinstance(fate, Cut | Delay | Hang) and fate.ms is not None:
        told["ms"] = fate.ms
    return told


class Memory(Protocol):
    """What inject remembers over the death of the process: visits and firings, by fault index."""

    def visit(self, fault: int) -> int:
        """Count one more crossing of the fault's strike and return the new count."""
        ...

    def fired(self, fault: int) -> int: ...
    def fire(self, fault: int) -> None: ...


class Injector:
    """The base that an arm's layers are composed around.

    kill: ends this process by a signal (the sim world raises Crash). epoch: starts of its host before this one.
    faults_until_ms: from then on the trial is left in peace, and progress is demanded.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        world: World,
        truth: Truth,
        memory: Memory,
        clock: Clock,
        kill: Callable[[str], None],
        epoch: int,
        faults_until_ms: float,
    ) -> None:
        self._faults, self._world, self._truth, self._memory = faults, world, truth, memory
        self._clock, self._kill, self._epoch, self._until_ms = clock, kill, epoch, faults_until_ms
        self._doomed: dict[str, str] = {}  # call ids whose outcome must not be recorded, and the signal to die of
        self._open: dict[str, Any] = {}

    def base(self, delegate: NextDelegate) -> Crossings:
        return Crossings(
            delegate=delegate, model=self._model, tool=self._tool, effect=self._effect, commit=self._commit
        )

    def asked(self, call: Any) -> None:
        """The orchestrator asks for this call: what it says of itself now is what it is, whatever comes out of the
        arm."""
        self._open[call.call_id] = call

    def returned(self, call: Any) -> None:
        """The call is back at the orchestrator. If its outcome was to be lost and nothing was written meanwhile, the
        process dies here, at the same moment in an arm that records and in one that does not."""
        self._open.pop(call.call_id, None)
        if call.call_id in self._doomed:
            self._kill(self._doomed[call.call_id])

    def before_commit(self) -> None:
        """Called by the durable store before each commit: an outcome that was handed back is lost here."""
        for signal in self._doomed.values():
            self._kill(signal)

    async def _model(self, call: ModelCall) -> Outcome:
        return await self._cross(call, self._world.model)

    async def _tool(self, call: ToolCall) -> Outcome:
        return await self._cross(call, self._world.tool)

    async def _commit(self, call: Commit) -> Outcome:
        return await self._cross(call, self._world.commit)

    async def _effect(self, call: EffectCall) -> Outcome:
        site = self._open[call.call_id].site if call.call_id in self._open else call.site
        where = {"boundary": call.boundary, "delegation": site.delegation, "phase": site.phase}
        self._truth("crossed", {"call_id": call.call_id, **where, "attempt": call.attempt})
        return await self._cross(call, self._world.effect)

    async def _cross(self, call: Any, act: Callable[[Any, Harm | None], Awaitable[Outcome]]) -> Outcome:
        call = self._genuine(call)
        harm = await self._suffer(call, self._decide(call, "before"))
        try:
            outcome = await act(call, harm)
        except Exception as error:  # the world's code is ours: its failure must not become the arm's
            raise HarnessBug(f"world failed at {call.site}: {error!r}") from error
        await self._suffer(call, self._decide(call, "after"))
        return outcome

    def _genuine(self, call: Any) -> Any:
        """The call at the place where the orchestrator made it. An arm that moves a call elsewhere would dodge the
        faults that strike there, or book its work on another delegation; it is put back, and that is told."""
        asked = self._open.get(call.call_id)
        if asked is None:  # of an arm's own making, or after its time
            self._truth("tampered", {"call_id": call.call_id, "delegation": call.site.delegation})
            return call
        if (call.site, call.attempt) == (asked.site, asked.attempt):
            return call
        self._truth("tampered", {"call_id": call.call_id, "delegation": asked.site.delegation})
        return replace(call, site=asked.site, attempt=asked.attempt)

    def _decide(self, call: Call, moment: Any) -> Fate:
        """The first fate that is not Pass, of the faults that strike here. Every fault counts its own visits."""
        decided: Fate = Pass()
        for index, fault in enumerate(self._faults):
            strike = fault.strike
            if strike.moment != moment or strike.epoch_min > self._epoch or not strike.matches(call):
                continue
            visit, fired = self._memory.visit(index), self._memory.fired(index)
            view = FaultView(moment=moment, visit=visit, fired=fired, epoch=self._epoch)
            fate = fault.fate(call, view)
            if isinstance(fate, Pass) or not isinstance(decided, Pass) or self._clock.now_ms() > self._until_ms:
                continue
            self._memory.fire(index)
            site = call.site
            where = {"delegation": site.delegation, "phase": site.phase, "seam": site.seam, "name": site.name}
            what = {"class": fault.name, "variant": fault.variant, **shape(fate)}
            self._truth("fault", {"fault": index, "state": "fired", **what, "call_id": call.call_id, **where})
            decided = fate
        return decided

    async def _suffer(self, call: Call, fate: Fate) -> Harm | None:
        """Carry out what is ours to carry out; hand on what the world must suffer."""
        if isinstance(fate, Die):
            if fate.at_record:
                self._doomed[call.call_id] = fate.signal
            else:
                self._kill(fate.signal)
        elif isinstance(fate, Delay):
            await self._clock.sleep_ms(fate.ms)
        elif isinstance(fate, Fail | Hang | Cut | Alter):
            return fate
        return None
