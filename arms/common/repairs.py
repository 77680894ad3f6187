"""Waking the delegations that mend components: the same mechanism for every arm, which differ in whom they wake.

A delegation that judges several components together cannot mend them. When it failed, components are chosen from what
its checks reported, their repair delegations run side by side, and the failed delegation is handed on again. Rounds and
runs are durable, so that a crash in the middle repeats no repair that had ended.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

from msgspec.structs import replace

from arms.common.evidence import Choose, Evidence, Seen, seen
from arms.common.repair_rounds import RepairBook, RepairRound
from harness.core.roles import ArmContext
from harness.core.seams import NextDelegate, NextModel, NextTool, PassThrough
from harness.core.types import Attempt, Delegation, DelegationOutcome, ModelCall, Outcome, ToolCall, Verdict

ROUNDS_MAX = 3


def again(outcome: DelegationOutcome) -> bool:
    """Whether repairs may help: the work failed or stood still. Nothing else that stopped it is mended by them."""
    return outcome.status == "failed" or (outcome.status == "stopped" and outcome.verdict is Verdict.STALLED)


class RepairWaking(PassThrough):
    """The layer, to stand outermost. It does nothing in a plan without repair delegations."""

    def __init__(self, ctx: ArmContext, choose: Choose, *, rounds_max: int = ROUNDS_MAX) -> None:
        self._ctx, self._choose, self._rounds_max = ctx, choose, rounds_max
        self._system = ctx.system
        self._book = RepairBook(ctx.store) if ctx.system.repairs else None
        self._taking_part: set[str] = set()
        self._reported: dict[str, tuple[int, dict[str, Seen]]] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # a repair mends for one at a time

    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome:
        if self._book is not None and call.site.delegation in self._taking_part:
            if self._attempt(call.site.delegation)[0] != call.attempt:
                self._reported[call.site.delegation] = (call.attempt, {})
            self._book.rise(call.site.delegation, call.attempt)
        return await next(call)

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        outcome = await next(call)
        check = call.args.get("check") if call.tool == "run_check" else None
        if check in self._system.coverage and call.site.delegation in self._taking_part:
            number, reported = self._attempt(call.site.delegation)
            kept = reported if number == call.attempt else {}
            self._reported[call.site.delegation] = (call.attempt, {**kept, check: seen(check, outcome)})
        return outcome

    def _attempt(self, delegation: str) -> tuple[int, dict[str, Seen]]:
        """Number of the newest attempt that was seen at work, and what its checks reported."""
        return self._reported.get(delegation, (0, {}))

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        d, book = attempt.delegation, self._book
        if book is None or not any(check in self._system.coverage for check in d.contract.checks):
            return await next(attempt)
        self._taking_part.add(d.id)
        step: RepairRound | DelegationOutcome | None = book.waking(d.id)
        free = attempt.number
        if step is None:
            attempt = _retold(attempt, book.last(d.id))
            step = self._opened(attempt, await next(attempt))
            free = attempt.number + 1
        while isinstance(step, RepairRound):
            if not await self._wake(step, next):
                book.close(step, None)
                return step.outcome
            free = max(free, book.highest(d.id) + 1)
            book.close(step, free)
            attempt = Attempt(delegation=d, number=free, notes=(*step.notes, step.told))
            step = self._opened(attempt, await next(attempt))
            free += 1
        return step

    def _opened(self, attempt: Attempt, outcome: DelegationOutcome) -> RepairRound | DelegationOutcome:
        """The round that this outcome asks for, written down; or how the delegation ends when it asks for none."""
        assert self._book is not None
        d = attempt.delegation
        last = self._book.last(d.id)
        rounds = last.number if last else 0
        reported = self._attempt(d.id)[1]
        evidence = Evidence(delegation=d.id, checks=tuple(reported[name] for name in sorted(reported)))
        if not again(outcome) or not evidence.failed or rounds >= self._rounds_max:
            return outcome
        choice = self._choose(evidence)
        woken = tuple(name for name in choice.components if name in self._system.repairs)
        choice = replace(choice, components=woken)
        self._ctx.note(
            "routing",
            {
                "delegation": d.id,
                "verdict": choice.verdict,
                "woken": list(woken),
                "because": choice.because,
                "first_missing": list(choice.first_missing),
                "round": rounds + 1,
            },
        )
        if not woken:
            return replace(outcome, because=choice.because, verdict=choice.verdict)
        one = RepairRound(delegation=d.id, number=rounds + 1, choice=choice, outcome=outcome, notes=attempt.notes)
        self._book.open(one)
        return one

    async def _wake(self, one: RepairRound, next: NextDelegate) -> bool:
        """Run the repairs of this round that have not ended yet, side by side; whether any of them ended well."""
        runs = [asyncio.ensure_future(self._mend(one, name, next)) for name in one.choice.components]
        try:
            ended = await asyncio.gather(*runs)
        finally:
            for run in runs:
                run.cancel()
            await asyncio.gather(*runs, return_exceptions=True)
        return "done" in ended

    async def _mend(self, one: RepairRound, component: str, next: NextDelegate) -> str:
        assert self._book is not None
        repair = self._system.repairs[component]
        async with self._turns[repair.id]:
            self._taking_part.add(repair.id)
            known = self._book.run(one, component)
            if known is not None and known[1] != "begun":
                return known[1]
            attempt = self._attempt_of(repair, known[0] if known else None, one)
            if known is None:
                self._book.note_run(one, component, attempt, "begun")
            outcome = await next(attempt)
            self._book.note_run(one, component, attempt, outcome.status)
            return outcome.status

    def _attempt_of(self, repair: Delegation, begun: int | None, one: RepairRound) -> Attempt:
        """A new attempt of a repair, or the one that a crash interrupted."""
        assert self._book is not None
        highest = self._book.highest(repair.id)
        number = highest + 1 if begun is None else max(begun, highest)
        notes = (one.choice.because,)
        return Attempt(delegation=repair, number=number, resumed=begun is not None, again=True, notes=notes)


def _retold(attempt: Attempt, last: RepairRound | None) -> Attempt:
    """A re-entered attempt with the notes that it had: the orchestrator remembers codes, not what was repaired."""
    if last is None or last.handed is None or attempt.number < last.handed:
        return attempt
    since = attempt.number - last.handed
    later = attempt.notes[len(attempt.notes) - since :] if since else ()
    return replace(attempt, notes=(*last.notes, last.told, *later))
