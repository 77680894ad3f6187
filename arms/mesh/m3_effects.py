"""M3, effect contract and ledger: an effect that the same delegation already had is not had again.

Entry = (tenant, delegation, boundary, canonical operation, argument digest, occurrence), content-addressed, never keyed
on an attempt or call. Protocol: reserve (durable, with a fencing token) -> effect -> record with the boundary's own id.
A reservation without a record is in doubt: the boundary is asked, and where it cannot tell a person must.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import AsyncExitStack

import msgspec

from arms.common.business import business_key, declaration
from arms.mesh.control.canonical import fingerprint
from arms.mesh.control.scope import stated_of
from arms.mesh.divergence import Effect, diverges, effect_of
from arms.mesh.doubt import Crossing, Inquiry, known_by
from arms.mesh.group_commit import GroupCommit
from arms.mesh.identity import TOOL, Identity, identity, leaves, takes_slot
from arms.mesh.leases import Leases
from arms.mesh.ledger import LOCAL, Backend, Entry, Key, SqliteBackend, Write
from arms.mesh.m6_quarantine import Observations
from arms.mesh.places import Place, Places, Row
from harness.core.roles import ArmContext
from harness.core.seams import NextDelegate, NextEffect, NextModel, NextTool, PassThrough
from harness.core.types import (
    Attempt,
    DeclaredEffect,
    Delegation,
    DelegationOutcome,
    EffectCall,
    EffectContract,
    Err,
    Json,
    ModelCall,
    Ok,
    Outcome,
    Refused,
    ToolCall,
    Verdict,
)

EXECUTIONS_MAX = 3
"""Times that one crossing is executed at the most, while its boundary says that the effect is not there."""


# --- decisions ----------------------------------------------------------------------------------------------------


def partition(delegation: Delegation) -> str:
    """The ledger's partition: the same content in two tenants is two effects."""
    return delegation.tenant


def was_had(entry: Entry | None) -> bool:
    """Whether the effect was already had and accounted for."""
    return entry is not None and entry.state == "recorded"


def superseded(attempt: int, newest: int) -> bool:
    """Whether an effect comes from an attempt that another one of its delegation has followed."""
    return attempt < newest


def must_wait(call: EffectCall, quarantined: str | None) -> bool:
    """Whether an effect waits for evidence: a tool's, while what its delegation knows is under quarantine."""
    return call.boundary == TOOL and quarantined is not None


def usable(value: Json, contract: EffectContract | None) -> bool:
    """Whether a recorded result may be handed on again: not when it says that it is about something else than what the
    delegation is to be about."""
    wanted = contract.scope if contract else {}
    return all(said == str(wanted[key]) for key, said in stated_of(value, wanted).items())


class EffectLedger(PassThrough):
    """The layer. provider_replay: answer a model request of a resumed delegation that was already paid for. probe:
    ask boundaries about effects in doubt; without it every doubt waits for a person. backend: where entries are kept,
    the orchestrator's own store when None. holder: this host, equal after a restart on the same durable state
    once the process before is dead.
    observations: what M6 has quarantined."""

    def __init__(
        self,
        ctx: ArmContext,
        *,
        probe: bool = True,
        provider_replay: bool = True,
        backend: Backend | None = None,
        holder: str = LOCAL,
        observations: Observations | None = None,
    ) -> None:
        self._ctx, self._replay = ctx, provider_replay
        self._ledger: Backend = backend or SqliteBackend(ctx)
        self._leases = Leases(ctx, self._ledger, holder)
        self._inquiry = Inquiry(ctx, self._ledger, self._leases, probe)
        self._commits = GroupCommit(self._ledger)
        self._observations = observations
        self._phases: dict[str, tuple[str, ...]] = {}
        self._newest: dict[str, int] = {}
        self._crossing = 0
        self._places = Places()
        self._unjudged: dict[str, bool] = {}
        self._turns: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting: dict[str, str] = {}
        self._seen: defaultdict[str, dict[Effect, bool]] = defaultdict(dict)

    # --- the delegation and its lease -----------------------------------------------------------------------------

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        d = attempt.delegation
        holder = await self._leases.take(partition(d), d.id)
        if holder:
            because = f"{holder} holds {d.id}"
            return DelegationOutcome(status="stopped", code="fenced", because=because, verdict=Verdict.FENCED)
        self._phases[d.id] = d.phases
        self._newest[d.id] = max(attempt.number, self._newest.get(d.id, 0))
        if self._observations is not None and (attempt.resumed or attempt.number > 1):
            self._unjudged[d.id] = self._observations.unanswered(d.id) is not None
        token = self._leases.token(d.id)
        self._tell("held", d.id, token)
        outcome = await next(attempt)
        self._leases.release(d.id, token)
        self._tell("released", d.id, token)
        if outcome.status == "done":
            self._tell_divergence(d)
        elif d.id in self._waiting:
            because = self._waiting[d.id]
            return DelegationOutcome(
                status="stopped", code="awaiting-waiver", because=because, verdict=Verdict.AWAITING_WAIVER
            )
        return outcome

    def _tell_divergence(self, d: Delegation) -> None:
        contract = self._ctx.contracts.get(d.id) or EffectContract()
        found = diverges(contract, self._seen[d.id].items(), self._ledger.accounted(self._leases.tenant(d.id), d.id))
        self._ctx.note("divergence", {"delegation": d.id, **found.told()})

    # --- seams ----------------------------------------------------------------------------------------------------

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        waiting = self._waiting.get(call.site.delegation)
        if waiting is not None and call.tool == "run_check":
            return Refused(verdict=Verdict.AWAITING_WAIVER, because=waiting)
        self._places.clear(call.call_id)
        return await self._leases.kept(call.site.delegation, call.call_id, next(call))

    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome:
        if not self._replay:
            return await self._leases.kept(call.site.delegation, call.call_id, next(call))
        request = msgspec.json.encode(call.request, order="sorted").decode()
        key = self._key(call, "model", fingerprint(f"{call.attempt}|{call.site.phase}|{request}"), 0)
        entry = self._ledger.find(key)
        if was_had(entry):
            return _suppressed(entry)
        outcome = await self._leases.kept(call.site.delegation, call.call_id, next(call))
        if isinstance(outcome, Ok) and not await self._record(key, "", outcome):
            return _fenced(call.site.delegation)
        return outcome

    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome:
        """An effect takes a place: a slot of its contract, else the first occurrence of its content that no other one
        has or is about to have, and always the first where its wording is no part of it. Occurrences count within one
        tool call, where a client that tries again after an error means the same effect; of effects that are tool calls
        themselves they count within the attempt, where an agent that was told ok and calls again means another one.
        An effect that failed gives its place back."""
        d, clause = call.site.delegation, declaration(self._ctx, call)
        if not leaves(call, clause):
            return await next(call)
        self._seen[d].setdefault(effect_of(call), clause is not None)
        if superseded(call.attempt, self._newest.get(d, 0)):
            self._ctx.note("stale", {"delegation": d, "boundary": call.boundary, "attempt": call.attempt})
            return Refused(verdict=Verdict.FENCED, because=f"attempt {call.attempt} of {d} is over")
        slot = self._slot(call, clause)
        who = self._identity(call, clause, f"{call.site.phase} {slot[1]}" if slot else "")
        print_ = fingerprint(who.text)
        cause = f"{d} {call.attempt}" if call.boundary == TOOL else call.cause
        row = (cause, print_)
        place = slot or (row, self._places.following(row) if who.worded else 0)
        self._places.take(place)
        key = self._key(call, call.boundary, print_, 0 if slot else place[1])
        business = known_by(business_key(self._ctx, call), call, clause)
        redone = self._redone(call, place) if call.boundary == TOOL else None
        if redone is not None:
            return redone
        self._crossing += 1
        try:
            outcome = await self._once(Crossing(call, clause, who, key, business, next))
        finally:
            self._crossing -= 1
        if not isinstance(outcome, Ok):
            self._places.give_back(place)
        elif call.boundary == TOOL:
            self._places.take((self._row(call), self._nth(call)))
            if outcome.verdict is Verdict.RECONCILED:
                self._places.settle(place)
        return outcome

    def _redone(self, call: EffectCall, place: Place) -> Ok | None:
        """The result that the attempt before had at this place, when nobody judged that attempt: its check could not
        run, so its effects stand, in whatever words the work is told again."""
        d = call.site.delegation
        entry = self._ledger.find(self._nth_key(call, self._nth(call)))
        if not self._unjudged.get(d) or not was_had(entry):
            return None
        self._places.give_back(place)
        self._places.take((self._row(call), self._nth(call)))
        self._tell("repeated", d, self._leases.token(d), call, self._nth_key(call, self._nth(call)))
        return _suppressed(entry)

    def _row(self, call: EffectCall) -> Row:
        return ("nth", call.site.delegation, str(call.attempt), call.operation)

    def _nth(self, call: EffectCall) -> int:
        """Which call of its tool this is in its attempt, those that failed left out."""
        return self._places.free(self._row(call))

    def _nth_key(self, call: EffectCall, nth: int) -> Key:
        return self._key(call, call.boundary, fingerprint(f"nth|{call.site.phase}|{call.operation}"), nth)

    def _identity(self, call: EffectCall, clause: DeclaredEffect | None, slot: str = "") -> Identity:
        return identity(call, clause, slot, self._ctx.worker.partition("/")[0])

    def _slot(self, call: EffectCall, clause: DeclaredEffect | None) -> Place | None:
        """The slot of the contract that this effect takes, if one is left: counted anew in each attempt, from those
        that the phases before this one have had."""
        contract = self._ctx.contracts.get(call.site.delegation)
        if contract is None or not contract.slots or not takes_slot(call, clause):
            return None
        scope = (call.site.delegation, str(call.attempt), call.site.phase)
        number = self._places.free(scope)
        elsewhere = 0
        for phase in self._phases.get(call.site.delegation, ()):
            while phase != call.site.phase and self._slot_was_had(call, clause, f"{phase} {elsewhere}"):
                elsewhere += 1
        return (scope, number) if number + elsewhere < len(contract.slots) else None

    def _slot_was_had(self, call: EffectCall, clause: DeclaredEffect | None, slot: str) -> bool:
        print_ = fingerprint(self._identity(call, clause, slot).text)
        return was_had(self._ledger.find(self._key(call, call.boundary, print_, 0)))

    def _key(self, call: EffectCall | ModelCall, boundary: str, print_: str, occurrence: int) -> Key:
        d = call.site.delegation
        return Key(self._leases.tenant(d), d, boundary, print_, occurrence)

    # --- reserve, effect, record ----------------------------------------------------------------------------------

    async def _once(self, it: Crossing) -> Outcome:
        """Effects of one business key take turns: the boundary counts them all, and while one is in doubt another
        would be taken for it. So do calls that mean one effect in different words."""
        async with AsyncExitStack() as turns:
            if not it.who.worded:
                await turns.enter_async_context(self._turns[it.key.tenant, f"{it.key.delegation}|{it.who.text}"])
            entry = self._ledger.find(it.key)
            it = it.of(entry) if entry else it
            await turns.enter_async_context(self._turns[it.key.tenant, it.business])
            entry = self._ledger.find(it.key) if it.who.worded else entry
            if was_had(entry) and usable(_value(entry), self._ctx.contracts.get(it.key.delegation)):
                self._tell("repeated", it.key.delegation, self._leases.token(it.key.delegation), it.call, it.key)
                return _suppressed(entry)
            quarantined = self._observations.quarantined(it.key.delegation) if self._observations else None
            if must_wait(it.call, quarantined):
                because = f"evidence is under quarantine: {quarantined}"
                return Refused(verdict=Verdict.AWAITING_WAIVER, because=because)
            if entry is None or was_had(entry):
                return await self._execute(it, executions=0)
            return await self._doubt(it, executions=0)

    async def _write(
        self, key: Key, business: str, *entries: tuple[Key, Entry], call: EffectCall | None = None
    ) -> bool:
        token = self._leases.token(key.delegation)
        writes = [Write(k, token, business if k == key else "", entry) for k, entry in entries]

        def told() -> None:  # of effects alone: answers of the model would be most of the trace
            for k, entry in entries if call is not None else ():
                self._tell(entry.state, key.delegation, token, call, k)

        return await self._commits.write(writes, alone=self._crossing < 2, then=told)

    def _tell(
        self, state: str, delegation: str, token: int, call: EffectCall | None = None, key: Key | None = None
    ) -> None:
        """What the ledger does, for whoever checks afterwards whether it kept its promises."""
        said: dict[str, Json] = {"state": state, "delegation": delegation, "token": token}
        if call is not None and key is not None:
            entry = f"{key.boundary}/{key.fingerprint[:12]}/{key.occurrence}"
            said |= {"call_id": call.call_id, "entry": entry}
        self._ctx.note("ledger", said)

    async def _record(self, key: Key, business: str, outcome: Ok, *also: Key, call: EffectCall | None = None) -> bool:
        entry = Entry("recorded", json.dumps(outcome.value), outcome.receipt)
        return await self._write(key, business, *((k, entry) for k in (key, *also)), call=call)

    def _also(self, it: Crossing) -> tuple[Key, ...]:
        """Where the content of an effect that took a slot is found, by a call that comes when all slots are taken."""
        if it.call.boundary == TOOL and it.who.worded:
            return (self._nth_key(it.call, self._nth(it.call)),)
        if it.who.worded or it.who == self._identity(it.call, it.clause):
            return ()
        return (
            self._key(
                it.call, it.call.boundary, fingerprint(self._identity(it.reserved or it.call, it.clause).text), 0
            ),
        )

    def _claim(self, it: Crossing, there: Ok, known: int) -> str:
        entry = Entry("recorded", json.dumps(there.value), there.receipt)
        return self._ledger.claim(Write(it.key, self._leases.token(it.key.delegation), it.business, entry), known)

    async def _execute(self, it: Crossing, *, executions: int) -> Outcome:
        it = it.anew()
        key, token = it.key, self._leases.token(it.key.delegation)
        try:
            if not await self._write(key, it.business, (key, Entry("reserved", it.asked(), None)), call=it.call):
                return _fenced(key.delegation)
        except asyncio.CancelledError:  # nothing was begun
            self._ledger.forget(key, token)
            raise
        if not self._leases.may_begin(key.delegation):
            return _fenced(key.delegation)  # this process was stopped, and somebody else went on
        outcome = await it.next(it.call)
        if isinstance(outcome, Ok):
            done = await self._record(key, it.business, outcome, *self._also(it), call=it.call)
            return outcome if done else _fenced(key.delegation)
        if isinstance(outcome, Err) and not outcome.definite:
            return await self._doubt(it, executions=executions + 1, failed=outcome)
        self._ledger.forget(key, token)
        return outcome

    async def _doubt(self, it: Crossing, *, executions: int, failed: Err | None = None) -> Outcome:
        """Reserved and not recorded: ask the boundary, patiently, and act on what it says; never guess.

        An effect that is there but whose content was lost on the way is had again, since the work cannot go on without
        it: that is a duplicate, and known to be one.
        """
        key = it.key
        if self._leases.shared and not await self._write(key, it.business, (key, Entry("doubted", it.asked(), None))):
            return _fenced(key.delegation)
        found = await self._inquiry.ask(it, failed)
        says, answer, known = found.says, found.answer, found.known
        self._ctx.note("in-doubt", {"boundary": it.call.boundary, "says": says, "known": known, "count": answer.count})
        if says == "present":
            receipt = answer.receipts[known] if known < len(answer.receipts) else None
            there = Ok(value=answer.value, receipt=receipt, verdict=Verdict.RECONCILED)
            claimed = self._claim(it, there, known) if self._leases.shared else "written"
            if claimed == "overtaken":
                return await self._doubt(it, executions=executions, failed=failed)
            done = claimed == "written" and await self._record(key, it.business, there, *self._also(it), call=it.call)
            return there if done else _fenced(key.delegation)
        if says in ("absent", "lost") and executions < EXECUTIONS_MAX:
            return await self._execute(it, executions=executions)
        if says in ("absent", "lost") and failed is not None:
            return failed
        what = f"{it.call.boundary} {it.call.operation} {it.call.target}"
        self._waiting[key.delegation] = f"{what}: cannot tell if it happened"
        return Refused(verdict=Verdict.AWAITING_WAIVER, because=self._waiting[key.delegation])


def _value(entry: Entry | None) -> Json:
    return json.loads((entry.value if entry else None) or "null")


def _suppressed(entry: Entry | None) -> Ok:
    assert entry is not None
    return Ok(value=_value(entry), receipt=entry.receipt, verdict=Verdict.SUPPRESSED)


def _fenced(delegation: str) -> Refused:
    return Refused(verdict=Verdict.FENCED, because=f"another process holds {delegation}")
