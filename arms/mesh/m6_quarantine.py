"""M6, nondeterminism quarantine: answers of a check that contradict each other are no evidence, for nobody.

An observation is keyed on what it is an observation of: workspace, environment and contract of the check. Two that
disagree under one key put its evidence into quarantine: no reason to retry, to stop, to record or to wake anybody.
Entry and exit are fixed in `control/quarantine.yaml`. Every primitive that reads a flaky check would otherwise lie.
"""

from __future__ import annotations

import json
from pathlib import Path

from msgspec import Struct

from arms.mesh.control import strict
from arms.mesh.control.canonical import fingerprint, strip
from arms.mesh.control.kinds import Kind, judges, kind_of, says_nothing
from harness.core.roles import ArmContext
from harness.core.seams import NextDelegate, NextTool, PassThrough
from harness.core.types import Attempt, DelegationOutcome, Err, Ok, Outcome, Refused, ToolCall, Verdict

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS observations (key TEXT PRIMARY KEY, answer TEXT, in_a_row INTEGER, seen INTEGER,"
    " quarantined INTEGER)",
    "CREATE TABLE IF NOT EXISTS observed_last (delegation TEXT, name TEXT, key TEXT, PRIMARY KEY (delegation, name))",
    "CREATE TABLE IF NOT EXISTS mutations (delegation TEXT PRIMARY KEY, epoch INTEGER)",
    "CREATE TABLE IF NOT EXISTS unanswered (delegation TEXT, name TEXT, PRIMARY KEY (delegation, name))",
)
PASS, FAIL = "pass", "fail"


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`control/quarantine.yaml`."""

    version: int
    red_answers_min: int
    exit_in_a_row: int
    runs_max: int
    answers_max: int
    monitor_runs_max: int


POLICY = strict.load(Path(__file__).with_name("control") / "quarantine.yaml", Policy)


class Standing(Struct, frozen=True, kw_only=True):
    """What is known under one key: the last answer, how many equal ones in a row, how many in all."""

    answer: str = ""
    in_a_row: int = 0
    seen: int = 0
    quarantined: bool = False


def observed(standing: Standing, answer: str, policy: Policy = POLICY) -> Standing:
    """The standing after one more answer: a contradiction enters quarantine, agreement for long enough leaves it."""
    contradicts = standing.seen > 0 and answer != standing.answer
    in_a_row = 1 if contradicts else standing.in_a_row + 1
    held = contradicts or (standing.quarantined and in_a_row < policy.exit_in_a_row)
    return Standing(answer=answer, in_a_row=in_a_row, seen=standing.seen + 1, quarantined=held)


def ruling(standing: Standing, runs: int, policy: Policy = POLICY) -> str:
    """What to do with an answer after so many runs of this call: `hand-on`, run it `again`, or `give-up`. A key that
    has had its answers is run once for each further call, which may still end its quarantine."""
    confirmed = standing.answer != FAIL or standing.in_a_row >= policy.red_answers_min
    if confirmed and not standing.quarantined:
        return "hand-on"
    return "again" if runs < policy.runs_max and standing.seen < policy.answers_max else "give-up"


def broke(outcome: Outcome) -> bool:
    """Whether the runner itself failed, so that there is no answer at all."""
    return isinstance(outcome, Err) and outcome.code == "monitor-error"


class Observations:
    """Durable observations of one run. Handed to every primitive that must not rest on contradicted evidence."""

    def __init__(self, ctx: ArmContext) -> None:
        self._store = ctx.store
        with ctx.store.transaction() as db:
            for statement in _SCHEMA:
                db.execute(statement)

    def observe(self, delegation: str, check: str, key: str, passed: bool | str) -> Standing:
        """One more answer of a check: whether it passed, or, of a tool that tells it otherwise, its result as text."""
        answer = passed if isinstance(passed, str) else PASS if passed else FAIL
        with self._store.transaction() as db:
            after = observed(self.standing(key), answer)
            row = (key, after.answer, after.in_a_row, after.seen, after.quarantined)
            db.execute("INSERT OR REPLACE INTO observations VALUES (?, ?, ?, ?, ?)", row)
            db.execute("INSERT OR REPLACE INTO observed_last VALUES (?, ?, ?)", (delegation, check, key))
        return after

    def standing(self, key: str) -> Standing:
        rows = self._store.query("SELECT answer, in_a_row, seen, quarantined FROM observations WHERE key=?", (key,))
        if not rows:
            return Standing()
        answer, in_a_row, seen, held = rows[0]
        return Standing(answer=answer, in_a_row=in_a_row, seen=seen, quarantined=bool(held))

    def unsettled(self, delegation: str) -> frozenset[str]:
        """Names of the checks whose last answer, in this attempt of the delegation, is in quarantine."""
        rows = self._store.query(
            "SELECT name FROM observed_last JOIN observations USING (key) WHERE delegation=? AND quarantined=1",
            (delegation,),
        )
        return frozenset(name for (name,) in rows)

    def quarantined(self, delegation: str) -> str | None:
        """One of these, the first by name, or None when the delegation rests on good evidence."""
        return min(self.unsettled(delegation), default=None)

    def silent(self, delegation: str, check: str, silent: bool) -> None:
        """Whether the last run of a check gave no answer at all."""
        with self._store.transaction() as db:
            if silent:
                db.execute("INSERT OR IGNORE INTO unanswered VALUES (?, ?)", (delegation, check))
            else:
                db.execute("DELETE FROM unanswered WHERE delegation=? AND name=?", (delegation, check))

    def unanswered(self, delegation: str) -> str | None:
        """A check of the delegation that gave no answer when it was last run, the first by name, or None: what it was
        to judge was judged by nobody."""
        rows = self._store.query("SELECT min(name) FROM unanswered WHERE delegation=?", (delegation,))
        return rows[0][0] if rows else None

    def epoch(self, delegation: str) -> int:
        """How often the delegation has changed something, as far as its calls tell: stands in for a digest where a
        check names none."""
        rows = self._store.query("SELECT epoch FROM mutations WHERE delegation=?", (delegation,))
        return int(rows[0][0]) if rows else 0

    def changed(self, delegation: str) -> None:
        """The delegation has changed something: what was observed before was of something else."""
        with self._store.transaction() as db:
            row = (delegation, self.epoch(delegation) + 1)
            db.execute("INSERT OR REPLACE INTO mutations VALUES (?, ?)", row)

    def begin(self, delegation: str) -> None:
        """A new attempt begins, which rests on nothing yet."""
        with self._store.transaction() as db:
            db.execute("DELETE FROM observed_last WHERE delegation=?", (delegation,))
            self.changed(delegation)


class Quarantine(PassThrough):
    """The layer. It stands outside the ledger and close to the checks: it runs them again under the call's own id, and
    their effects, asked for once more, are answered by the ledger."""

    def __init__(self, ctx: ArmContext, observations: Observations, policy: Policy = POLICY) -> None:
        self._ctx, self._observations, self._policy = ctx, observations, policy

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        if not attempt.resumed:
            self._observations.begin(attempt.delegation.id)
        return await next(attempt)

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        if call.tool == "run_check" and "check" in call.args:
            return await self._settled(call, next)
        outcome = await next(call)
        kind, value = kind_of(call.tool), outcome.value if isinstance(outcome, Ok) else None
        if judges(call.tool, value):
            self._remember(call, outcome)
        elif kind not in (Kind.READ, Kind.WAIT, Kind.TERMINAL) and _succeeded(outcome):
            self._observations.changed(call.site.delegation)
        return outcome

    async def _settled(self, call: ToolCall, next: NextTool) -> Outcome:
        """The check's answer once it is one: a red one confirmed, contradicting ones run until they agree."""
        check, answers, held = str(call.args.get("check")), list[str](), False
        for runs in range(1, self._policy.runs_max + 1):
            outcome = await next(call)
            if broke(outcome):
                answers.append("broke")
                if answers.count("broke") < self._policy.monitor_runs_max and runs < self._policy.runs_max:
                    continue
                self._note(call, check, "", answers, "give-up", held)
                return outcome
            if not isinstance(outcome, Ok) or "passed" not in (outcome.value or {}):
                return outcome
            passed, key = bool(outcome.value["passed"]), self._key(call, check, outcome)
            before = self._observations.standing(key)
            standing = self._observations.observe(call.site.delegation, check, key, passed)
            answers.append(standing.answer)
            held = held or before.quarantined or standing.quarantined
            rule = ruling(standing, runs, self._policy)
            if rule == "again":
                continue
            if held or runs > 1:
                self._note(call, check, key, answers, rule, held)
            if rule == "hand-on":
                return _agreed(outcome) if held else outcome
            break
        detail = f"{check} contradicts itself on an unchanged workspace: {', '.join(answers)}"
        return Err(code="quarantined", definite=False, detail=detail, verdict=Verdict.QUARANTINED)

    def _key(self, call: ToolCall, check: str, outcome: Ok) -> str:
        d = call.site.delegation
        return f"{outcome.receipt or f'{d}@{self._observations.epoch(d)}'}|{check}"

    def _remember(self, call: ToolCall, outcome: Outcome) -> None:
        """An answer of a check that is no `run_check`: what running it once more does is unknown, so it is not."""
        d = call.site.delegation
        if not isinstance(outcome, Refused):
            self._observations.silent(d, call.tool, isinstance(outcome, Err))
        if isinstance(outcome, Err):
            because = f"{call.tool} could not run, which says nothing about the work"
            said = {"delegation": d, "check": call.tool, "party": "provider", "because": because}
            self._ctx.note("unanswered", said)
        if not isinstance(outcome, Ok) or outcome.value is None or says_nothing(outcome.value):
            return
        args = json.dumps(strip(call.args), sort_keys=True)
        key = f"{d}@{self._observations.epoch(d)}|{call.tool}|{fingerprint(args)}"
        answer = fingerprint(json.dumps(strip(outcome.value), sort_keys=True))
        if self._observations.observe(d, call.tool, key, answer).quarantined:
            self._note(call, call.tool, key, [], "hand-on", True)

    def _note(self, call: ToolCall, check: str, key: str, answers: list[str], rule: str, held: bool) -> None:
        """held: the evidence was in quarantine at some time during this call, and not only run once more."""
        where = {"delegation": call.site.delegation, "check": check, "key": key, "call_id": call.call_id}
        self._ctx.note("quarantine", {**where, "answers": list(answers), "ruling": rule, "held": held})


def _succeeded(outcome: Outcome) -> bool:
    value = outcome.value if isinstance(outcome, Ok) else {"error": ""}
    return not (isinstance(value, dict) and "error" in value)


def _agreed(outcome: Ok) -> Ok:
    return Ok(value=outcome.value, receipt=outcome.receipt, verdict=Verdict.QUARANTINED)
