"""The rounds of a delegation: which failed attempt is tried again, what that costs, and when it is enough.

Scopes of M1 here: failure fingerprint, component, run. A round that got on is paid back, one that stood still counts;
the first stop of a component buys one more round on a stronger model, the second is the end. What is spent is durable,
how futile it looked is forgotten when the process ends.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from arms.common.defaults import DELEGATION_ATTEMPTS, DELEGATION_PAUSE_MS
from arms.common.retry import pause_before_again
from arms.mesh.control.breaker import POLICY, RoundPolicy
from arms.mesh.control.canonical import fingerprint
from arms.mesh.credit import Book, Row
from arms.mesh.m4_budget import BudgetLattice
from arms.mesh.m6_quarantine import Observations
from arms.mesh.progress import Progress, Round, declared_words, identifiers, moved
from harness.core.roles import ArmContext
from harness.core.seams import NextCommit, NextDelegate, NextModel, NextTool, PassThrough
from harness.core.types import (
    Attempt,
    Commit,
    Delegation,
    DelegationOutcome,
    Json,
    ModelCall,
    Ok,
    Outcome,
    ToolCall,
    Verdict,
)

NOTE_CHARACTERS = 200
_NOTHING, _UNKNOWN = DelegationOutcome(status="failed"), Progress(kind="unknown", because="")


class Standing(Struct, frozen=True, kw_only=True):
    """How a delegation stands after a round. total: rounds so far; counted: those that were not paid back; stuck: how
    many in a row got nowhere; granted: this round was on credit."""

    total: int
    counted: int
    stuck: int
    granted: bool


What = Literal["again", "refund", "graded", "end", "ceiling"]


def decide(
    outcome: DelegationOutcome,
    progress: Progress,
    at: Standing,
    *,
    stall: bool = True,
    refund: bool = True,
    lendable: bool = False,
    attempts_max: int = DELEGATION_ATTEMPTS,
    policy: RoundPolicy = POLICY.rounds,
) -> What:
    """What follows a round that was not done: another one that counts or one that is paid back, a graded stop, the end
    as it is, or the end because the ceiling of rounds is reached.

    stall: standing still is a reason to stop; refund: getting on is a reason to go on. A stop that another primitive
    decided stays what it is.
    """
    if outcome.status == "stopped":
        graded = outcome.verdict is Verdict.STALLED or (outcome.verdict is Verdict.EXHAUSTED and lendable)
        return "graded" if graded else "end"
    if at.total >= policy.rounds_max:
        return "ceiling"
    if progress.kind == "moved" and refund:
        return "refund"
    stood = progress.kind == "stuck" and at.stuck >= policy.stuck_max
    if stall and (stood or (at.granted and progress.kind != "moved")):
        return "graded"
    return "again" if at.counted < attempts_max else "end"


class _Seen(Struct):
    """What the round that is on has reported so far."""

    failing: dict[str, frozenset[str]]
    accepted: list[str]


class Rounds(PassThrough):
    """The layer; it stands where other arms have their retry of delegations.

    stall: stop what stands still (M1). refund: pay back rounds that got on, and grant rounds on credit (M4).
    observations: of the quarantine (M6). budget: the lattice, which is told what a round works on. attempts_max and
    pause_ms are the numbers of every arm.
    """

    def __init__(
        self,
        ctx: ArmContext,
        *,
        stall: bool = True,
        refund: bool = True,
        observations: Observations | None = None,
        budget: BudgetLattice | None = None,
        attempts_max: int = DELEGATION_ATTEMPTS,
        pause_ms: tuple[float, float] = DELEGATION_PAUSE_MS,
    ) -> None:
        self._ctx, self._stall, self._refund = ctx, stall, refund
        self._observations, self._budget = observations, budget
        self._attempts_max, self._pause_ms = attempts_max, pause_ms
        self._book = Book(ctx)
        self._seen: dict[tuple[str, int], _Seen] = {}
        self._past: defaultdict[str, list[Round]] = defaultdict(list)
        self._stuck: Counter[str] = Counter()
        self._models: dict[tuple[str, int], str] = {}
        self._asked: dict[str, str] = {}
        self._stops = 0

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        d = attempt.delegation
        row, rounds = self._book.find(d.id, attempt.number), self._book.total(d.id)
        if row is None and rounds >= POLICY.rounds.rounds_max:
            return told_apart("ceiling", _NOTHING, _UNKNOWN, rounds)
        first = Row(delegation=d.id, number=attempt.number, kind="first", draft=attempt.draft, notes=attempt.notes)
        row = row or self._book.spend(first)
        while True:
            attempt = self._entered(attempt, row)
            outcome = await next(attempt)
            row_or_end = await self._after(attempt, row, outcome)
            if isinstance(row_or_end, DelegationOutcome):
                self._past.pop(d.id, None)
                self._stuck.pop(d.id, None)
                return row_or_end
            row = row_or_end
            attempt = replace(attempt, number=row.number, resumed=False, keep_workspace=False)

    def _entered(self, attempt: Attempt, row: Row) -> Attempt:
        """The attempt as it was paid for: also after a crash it opens with the same words, files and model."""
        key = (row.delegation, row.number)
        self._seen[key] = _Seen({}, [])
        if row.model:
            self._models[key] = row.model
        if row.kind == "granted" and self._budget is not None:
            self._budget.granted(row.delegation)
        return replace(attempt, draft=row.draft, notes=row.notes)

    async def _after(self, attempt: Attempt, row: Row, outcome: DelegationOutcome) -> Row | DelegationOutcome:
        """The next round, paid for, or how the delegation ends."""
        d, key = attempt.delegation, (row.delegation, row.number)
        seen = self._seen.pop(key)
        self._models.pop(key, None)
        if outcome.status == "done":
            return outcome
        now = self._round(d, seen, outcome)
        progress = moved(self._past[d.id], now)
        self._past[d.id].append(now)
        self._stuck[d.id] = 0 if progress.kind == "moved" else self._stuck[d.id] + (progress.kind == "stuck")
        if self._budget is not None:
            self._budget.failing(d.id, fingerprint(json.dumps(progress.evidence)))
        total, counted = self._book.total(d.id), self._book.counted(d.id)
        at = Standing(total=total, counted=counted, stuck=self._stuck[d.id], granted=row.kind == "granted")
        lendable = self._budget is not None and self._budget.lendable(d.id)
        what = decide(
            outcome,
            progress,
            at,
            stall=self._stall,
            refund=self._refund,
            lendable=lendable,
            attempts_max=self._attempts_max,
        )
        if outcome.status == "failed":
            self._note(attempt, "fingerprint", _DECISIONS.get((what, progress.kind), "continue"), progress)
        if what in ("end", "ceiling"):
            return told_apart(what, outcome, progress, total)
        following = Row(
            delegation=d.id,
            number=row.number + 1,
            kind=what,
            draft=None if outcome.code in POLICY.rounds.draft_suspect else row.number,
            notes=(*attempt.notes, _told(outcome)),
        )
        if what == "graded":
            return self._graded(attempt, outcome, progress, following)
        await pause_before_again(self._ctx, d.id, row.number, self._pause_ms)
        return self._book.spend(following, paid_back=what == "refund")

    def _graded(
        self, attempt: Attempt, outcome: DelegationOutcome, progress: Progress, following: Row
    ) -> Row | DelegationOutcome:
        """One more round on a stronger model while there is credit, else the end."""
        d = attempt.delegation
        if outcome.status == "stopped":
            progress = replace(progress, because=outcome.because)
        known = self._asked.get(d.id, "")
        granted = replace(following, kind="granted", counted=False, model=POLICY.graded.models.get(known, known))
        short = "component"
        if self._refund and self._book.total(d.id) < POLICY.rounds.rounds_max:
            short = self._book.grant(granted, d.component or d.id, self._stops)
        if not short:
            self._stuck[d.id] = 0
            self._note(attempt, "component", "grant", progress)
            return self._book.find(d.id, granted.number) or granted
        self._stops += 1
        self._note(attempt, short, "trip", progress)
        return told_apart("graded", outcome, progress, attempt.number)

    def _round(self, d: Delegation, seen: _Seen, outcome: DelegationOutcome) -> Round:
        unusable = self._observations.quarantined(d.id) if self._observations is not None else None
        return Round(
            failing=seen.failing,
            said=identifiers(outcome.because),
            accepted=tuple(seen.accepted),
            declared=declared_words(d),
            unusable="" if unusable is None else f"evidence in quarantine: {unusable}",
        )

    async def on_model(self, call: ModelCall, next: NextModel) -> Outcome:
        self._asked[call.site.delegation] = str(call.request.get("model", ""))
        model = self._models.get((call.site.delegation, call.attempt))
        return await next(replace(call, request={**call.request, "model": model}) if model else call)

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        outcome = await next(call)
        seen = self._seen.get((call.site.delegation, call.attempt))
        failing = outcome.value.get("failing") if isinstance(outcome, Ok) and isinstance(outcome.value, dict) else None
        if seen is not None and isinstance(failing, list):
            seen.failing[str(call.args.get("check", call.tool))] = frozenset(map(str, failing))
        return outcome

    async def on_commit(self, call: Commit, next: NextCommit) -> Outcome:
        outcome = await next(call)
        seen = self._seen.get((call.site.delegation, call.attempt))
        if seen is not None and call.step == "publish" and isinstance(outcome, Ok):
            seen.accepted.append(call.site.phase)
        return outcome

    def _note(self, attempt: Attempt, scope: str, decision: str, progress: Progress) -> None:
        shown = POLICY.evidence_shown_max
        facts: dict[str, Json] = {
            "scope": scope,
            "decision": decision,
            "delegation": attempt.delegation.id,
            "attempt": attempt.number,
            "phase": "",
            "turn": -1,
            "evidence": list(progress.evidence[:shown]),
            "constant": list(progress.constant[:shown]),
            "because": progress.because,
        }
        self._ctx.note("progress-decision", facts)


_DECISIONS = {
    ("again", "unknown"): "withheld",
    ("end", "unknown"): "withheld",
    ("ceiling", "unknown"): "withheld",
    ("graded", "stuck"): "trip",
    ("graded", "unknown"): "withheld",
}


def told_apart(what: What, outcome: DelegationOutcome, progress: Progress, rounds: int) -> DelegationOutcome:
    """How a delegation ends that is not done. To stand still, to have spent everything and to have lost the lease are
    verdicts of their own, and what another primitive said stays as it is."""
    if what == "ceiling":
        return _stopped(Verdict.EXHAUSTED, f"{rounds} rounds are the most of a delegation")
    if what != "graded" or (outcome.status == "stopped" and outcome.verdict is not Verdict.STALLED):
        return outcome
    return _stopped(Verdict.STALLED, outcome.because if outcome.status == "stopped" else progress.because)


def _stopped(verdict: Verdict, because: str) -> DelegationOutcome:
    return DelegationOutcome(status="stopped", code=verdict.value, because=because, verdict=verdict)


def _told(outcome: DelegationOutcome) -> str:
    """What the next attempt is told: the code that every arm tells, and why, where an attempt was stopped."""
    told = f"{outcome.code}: {outcome.because}" if outcome.status == "stopped" else outcome.code
    return told[:NOTE_CHARACTERS]
