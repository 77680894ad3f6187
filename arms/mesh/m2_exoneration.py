"""M2, exoneration: gates that refuse wrong calls, after it was proven that they do not refuse right ones.

Why the proof comes first: an enforcement layer fails by blocking correct work far more often than by permitting a
forbidden act, and each refusal costs a turn. So an arm does not start when a gate rejects a member of the corpus, and
a gate that no mutation makes refuse is reported as unprovable.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date

from msgspec import Struct
from msgspec.structs import replace

from arms.mesh import waiver
from arms.mesh.control.canonical import fingerprint, strip
from arms.mesh.control.kinds import Kind, kind_of
from arms.mesh.gates import GATES
from arms.mesh.gates.base import ALLOW, Gate, Ruling, crossing_of, judge, wait
from arms.mesh.gates.corpus import Corpus, Member, broken, check_breaks, load, rulings
from arms.mesh.gates.learn import enter, learn_commit, learn_effect, learn_model, learn_refusal, learn_tool
from arms.mesh.gates.view import View
from arms.mesh.m6_quarantine import Observations
from harness.core.errors import ConfigError, did_you_mean
from harness.core.roles import ArmContext, Store
from harness.core.seams import NextCommit, NextDelegate, NextEffect, NextModel, NextTool, PassThrough
from harness.core.types import (
    Attempt,
    Commit,
    DelegationOutcome,
    EffectCall,
    EffectContract,
    ModelCall,
    Outcome,
    Refused,
    ToolCall,
    Verdict,
)

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS gate_doubts (delegation TEXT, call TEXT, tool TEXT, PRIMARY KEY (delegation, call))"
)
_VERDICTS = {"reject": Verdict.REJECTED, "wait": Verdict.AWAITING_WAIVER, "route": Verdict.ROUTED}


# --- the proof ----------------------------------------------------------------------------------------------------


class Objection(Struct, frozen=True):
    """A gate refuses an artifact that is known to be correct."""

    gate: str
    member: str
    verified_by: str
    because: str


def objections(gates: Sequence[Gate], corpus: Corpus) -> tuple[Objection, ...]:
    """Every member that a gate refuses, whoever's member it is: correct work has to pass all gates."""
    return tuple(
        Objection(gate.name, member.id, member.verified_by, ruling.told)
        for member in corpus.members
        for gate, ruling in rulings(gates, member)
        if not ruling.allowed
    )


def boot_check(gates: Sequence[Gate] = GATES, corpus: Corpus | None = None) -> None:
    """Raises ConfigError when a gate refuses a member of the corpus, when the corpus proves nothing of a gate, or when
    the environment names waivers that cannot be held to: the arm may not start."""
    names = [gate.name for gate in gates]
    for one in waiver.from_environment()[0]:
        if one.what not in names:
            hint = did_you_mean(one.what, names)
            raise ConfigError(f"a waiver of {one.who} names the gate {one.what!r}", allowed=", ".join(names), hint=hint)
    known = load() if corpus is None else corpus
    unproven(gates, known)
    found = objections(gates, known)
    if found:
        first = found[0]
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        raise ConfigError(
            f"gate {first.gate!r} rejects the correct artifact {first.member!r}: {first.because}{more}",
            where="exoneration corpus",
            allowed=f"every member passes every gate ({first.member!r} was verified by: {first.verified_by})",
            hint="mend the gate, or leave it out; the artifact is right",
        )


def unproven(gates: Sequence[Gate], corpus: Corpus) -> None:
    """Raises ConfigError for a corpus that proves less than it seems to: a member of a gate that there is not, a gate
    without a member, a break that changes nothing."""
    names = {gate.name for gate in (*GATES, *gates)}
    for member in corpus.members:
        if member.gate not in names:
            problem = f"member {member.id!r} is of the gate {member.gate!r}, which there is not"
            hint = did_you_mean(member.gate, names)
            raise ConfigError(problem, where="exoneration corpus", allowed=", ".join(sorted(names)), hint=hint)
    bare = sorted({gate.name for gate in gates} - {member.gate for member in corpus.members})
    if bare:
        hint = "add a correct artifact of it to the corpus, with the ways to break it"
        raise ConfigError(f"gate {bare[0]!r} has no member", where="exoneration corpus", hint=hint)
    check_breaks(corpus)


def armed(gate: Gate, corpus: Corpus | None = None) -> tuple[str, ...]:
    """The breaks of its own artifacts that the gate refuses, as `member: how`, where it admits the artifact itself: a
    gate that refuses both tells nothing apart."""
    known = load() if corpus is None else corpus
    return tuple(
        f"{member.id}: {mutation.how}"
        for member in known.members
        if member.gate == gate.name and admits(gate, member)
        for mutation, wrong in broken(known, member)
        if not admits(gate, wrong)
    )


def admits(gate: Gate, member: Member) -> bool:
    """Whether a gate lets the call of a scene through."""
    return all(ruling.allowed for _, ruling in rulings((gate,), member))


def unprovable(gates: Sequence[Gate] = GATES, corpus: Corpus | None = None) -> tuple[str, ...]:
    """Gates that refuse no break of an artifact of theirs: nobody can tell such a gate from one that is not there."""
    return tuple(gate.name for gate in gates if not armed(gate, corpus))


# --- the layer ----------------------------------------------------------------------------------------------------


class Gates(PassThrough):
    """Asks every gate about every call, and keeps what they know. observations: of M6, None where it is left out.
    waivers: calls that a person lets through, None for those of the environment; today: the date that they are held
    against."""

    def __init__(
        self,
        ctx: ArmContext,
        *,
        gates: Sequence[Gate] = GATES,
        waivers: Sequence[waiver.Waiver] | None = None,
        today: date | None = None,
        observations: Observations | None = None,
    ) -> None:
        self._ctx, self._observations = ctx, observations
        self._gates = {kind: tuple(g for g in gates if kind in g.crossings) for kind in ("tool", "effect", "commit")}
        self._waivers, self._today = waiver.from_environment() if waivers is None else (tuple(waivers), today)
        self._views: dict[str, View] = {}
        self._doubts: dict[str, dict[str, str]] = _kept_doubts(ctx.store)

    def _view(self, delegation: str, attempt: int) -> View:
        view = self._views.get(delegation)
        if view is None:
            contract = self._ctx.contracts.get(delegation) or EffectContract(writable=("**",))
            view = View(contract=contract, whole=self._ctx.epoch == 0, doubts=self._doubts.pop(delegation, {}))
            self._views[delegation] = view
        enter(view, attempt)
        return view

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        view = self._view(attempt.delegation.id, attempt.number)
        view.phases, view.contract = attempt.delegation.phases, attempt.delegation.contract
        if attempt.again and view.ended:  # work that ended well is begun anew, from its first phase on
            view.accepted.clear()
        outcome = await next(attempt)
        view.ended = outcome.status == "done"
        return outcome

    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome:
        outcome = await next(call)
        learn_model(self._view(call.site.delegation, call.attempt), call, outcome)
        return outcome

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        view = self._view(call.site.delegation, call.attempt)
        ruling = self._ask(call, view)
        if not ruling.allowed:
            return _refused(ruling)
        began_ms = self._ctx.now_ms()
        outcome = await next(call)
        known = dict(view.doubts)
        learn_tool(view, call, outcome, self._ctx.now_ms() - began_ms)
        if view.doubts != known:
            _keep_doubts(self._ctx.store, call.site.delegation, view.doubts)
        return outcome

    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome:
        view = self._view(call.site.delegation, call.attempt)
        ruling = self._ask(call, view)
        if not ruling.allowed:
            return _refused(ruling)
        outcome = await next(call)
        learn_effect(view, call, outcome)
        return outcome

    async def on_commit(self, call: Commit, next: NextCommit) -> Outcome:
        view = self._view(call.site.delegation, call.attempt)
        ruling = self._ask(call, view)
        if not ruling.allowed:
            return _refused(ruling)
        if ruling.dropped:
            kept = {path: digest for path, digest in call.changes.items() if path not in ruling.dropped}
            call = replace(call, changes=kept)
        outcome = await next(call)
        learn_commit(view, call, outcome)
        return outcome

    def _ask(self, call: ToolCall | EffectCall | Commit, view: View) -> Ruling:
        """The first refusal that nobody waived, or leave to go on; with what a commit has to leave out."""
        if self._observations is not None and rests_on_checks(call):
            view.quarantined = self._observations.unsettled(call.site.delegation)
        dropped: tuple[str, ...] = ()
        for gate in self._gates[crossing_of(call)]:
            ruling = _ruling(gate, call, view)
            dropped += ruling.dropped
            if ruling.allowed:
                continue
            if self._is_waived(gate, call):
                continue
            said = {"gate": gate.name, "ruling": ruling.kind, "because": ruling.told, "call_id": call.call_id}
            said |= {"party": ruling.party or ruling.at_fault, "digest": digest_of_call(call)}
            self._ctx.note("gate", {**said, "fields": ruling.fields})
            learn_refusal(view, gate.name, ruling.subject, ruling.at_fault)
            return ruling
        if dropped:
            self._ctx.note("gate-dropped", {"paths": list(dropped), "call_id": call.call_id})
        return replace(ALLOW, dropped=dropped) if dropped else ALLOW

    def _is_waived(self, gate: Gate, call: ToolCall | EffectCall | Commit) -> bool:
        if not self._waivers or self._today is None:
            return False
        digest = digest_of_call(call)
        used = waiver.waived(self._waivers, gate.name, digest, self._today)
        if used is None:
            return False
        said = {"who": used.who, "why": used.why, "until": used.until.isoformat(), "what": used.what}
        self._ctx.note("waiver-used", {**said, "digest": digest, "call_id": call.call_id})
        return True


def rests_on_checks(call: ToolCall | EffectCall | Commit) -> bool:
    """Whether what M6 knows of checks matters to a call; asking it costs a look into the store."""
    return isinstance(call, Commit) or (isinstance(call, ToolCall) and kind_of(call.tool) is Kind.REPAIR)


def _ruling(gate: Gate, call: ToolCall | EffectCall | Commit, view: View) -> Ruling:
    """What the gate says. One that breaks gave no verdict, which is neither leave nor a refusal: a person decides."""
    try:
        return judge(gate, call, view)
    except Exception as error:
        return wait(f"gate {gate.name} could not judge: {type(error).__name__}: {error}", "have it waived")


def _refused(ruling: Ruling) -> Refused:
    return Refused(verdict=_VERDICTS[ruling.kind], because=ruling.told)


def digest_of_call(call: ToolCall | EffectCall | Commit) -> str:
    """What a waiver names a call by: content address of its canonical form, without ids and volatile values."""
    if isinstance(call, ToolCall):
        said = [call.tool, strip(call.args)]
    elif isinstance(call, EffectCall):
        said = [call.boundary, call.operation, call.target, strip(call.payload)]
    else:
        said = [call.step, call.site.phase, dict(call.changes)]
    return fingerprint(json.dumps([call.site.delegation, *said], sort_keys=True))


# Doubts are the one thing that must outlive a restart: what they forbid cannot be undone.


def _kept_doubts(store: Store) -> dict[str, dict[str, str]]:
    with store.transaction() as db:
        db.execute(_SCHEMA)
    kept: dict[str, dict[str, str]] = {}
    for delegation, call, tool in store.query("SELECT delegation, call, tool FROM gate_doubts"):
        kept.setdefault(delegation, {})[call] = tool
    return kept


def _keep_doubts(store: Store, delegation: str, doubts: dict[str, str]) -> None:
    with store.transaction() as db:
        db.execute("DELETE FROM gate_doubts WHERE delegation=?", (delegation,))
        rows = [(delegation, call, tool) for call, tool in doubts.items()]
        db.executemany("INSERT INTO gate_doubts VALUES (?, ?, ?)", rows)
