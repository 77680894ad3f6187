"""One attempt of a delegation: its phases, each an agent session of turns that ends in a commit and a checkpoint.

The orchestrator runs one attempt per call; retrying, stopping and routing are layers of the arm around it. It calls one
function per crossing and knows no arm.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from harness.core.seams import Crossings
from harness.core.types import (
    TOOLS,
    Attempt,
    Commit,
    DelegationOutcome,
    Err,
    Json,
    ModelCall,
    Ok,
    Outcome,
    Refused,
    Seam,
    Site,
    ToolCall,
)
from harness.orchestrator.store import Journal


class Workspaces(Protocol):
    """What the orchestrator asks of the place where files live."""

    async def begin(self, attempt: Attempt) -> None: ...
    def changes(self, attempt: Attempt) -> dict[str, str | None]:
        """What the attempt's files have that the accepted ones have not, by path: sha256, or None where deleted."""
        ...

    def accepted(self, attempt: Attempt) -> dict[str, str]:
        """The delegation's own accepted files, by path: sha256."""
        ...


class Env(Struct, frozen=True, kw_only=True):
    """Everything an attempt runs in. new_id: ids of crossings, unique in the trial, meaningless to everybody."""

    crossings: Crossings
    journal: Journal
    workspaces: Workspaces
    note: Callable[[str, Mapping[str, Json]], None]
    new_id: Callable[[], str]
    model: str = "scripted"


_ARGUMENTS = {
    "read": ("path",),
    "list": ("path",),
    "grep": ("pattern", "path"),
    "write": ("path", "content"),
    "edit": ("path", "old", "new"),
    "run_check": ("check",),
    "done": ("status",),
}

TOOL_SPECS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string"} for key in _ARGUMENTS[name]},
                "required": list(_ARGUMENTS[name]),
            },
        },
    }
    for name in TOOLS
]


class TurnLog(Struct):
    """What one turn touched, for the trace: the raw material of work accounting."""

    reads: list[list[str]]
    writes: list[list[str]]
    checks: list[list[Any]]
    done: str = ""

    @classmethod
    def empty(cls) -> TurnLog:
        return cls([], [], [])

    def add(self, call: ToolCall, outcome: Outcome) -> None:
        value = outcome.value if isinstance(outcome, Ok) else None
        if not isinstance(value, dict) or "error" in value:
            return
        if call.tool == "read":
            self.reads.append([call.args["path"], value["digest"]])
        elif call.tool in ("write", "edit"):
            self.writes.append([call.args["path"], value["digest"], call.tool])
        elif call.tool == "run_check":
            self.checks.append([call.args["check"], value["passed"]])
        elif call.tool == "done":
            self.done = call.args.get("status", "complete")


async def run_attempt(env: Env, attempt: Attempt) -> DelegationOutcome:
    """Run the delegation from its last accepted phase to its end, once."""
    d = attempt.delegation
    if attempt.again:
        env.journal.reopen(d.id, attempt.number)
    env.journal.open_attempt(d.id, attempt.number)
    env.note("attempt", {"delegation": d.id, "attempt": attempt.number, "resumed": attempt.resumed, "depth": d.depth})
    await env.workspaces.begin(attempt)
    outcome = DelegationOutcome(status="done")
    try:
        for phase in d.phases[len(env.journal.progress(d.id).phases) :]:
            outcome = await _run_phase(env, attempt, phase)
            if outcome.status != "done":
                break
    except asyncio.CancelledError:  # a layer gave up on this attempt
        _close(env, attempt, DelegationOutcome(status="failed", code="killed"))
        raise
    _close(env, attempt, outcome)
    return outcome


def _close(env: Env, attempt: Attempt, outcome: DelegationOutcome) -> None:
    env.journal.close_attempt(attempt.delegation.id, attempt.number, outcome.status, outcome.code)
    end = {"status": outcome.status, "code": outcome.code, "because": outcome.because, "verdict": outcome.verdict}
    env.note("attempt_end", {"delegation": attempt.delegation.id, "attempt": attempt.number, **end})


async def _run_phase(env: Env, attempt: Attempt, phase: str) -> DelegationOutcome:
    d = attempt.delegation
    env.note("phase", {"delegation": d.id, "attempt": attempt.number, "phase": phase})
    messages = _opening(attempt, phase)
    for turn in range(d.turns_max):
        outcome = await env.crossings.model(_model_call(env, attempt, phase, turn, messages))
        if not isinstance(outcome, Ok):
            return ended_by(outcome)
        log = await _run_tools(env, attempt, phase, turn, outcome.value, messages)
        data = {"delegation": d.id, "attempt": attempt.number, "phase": phase, "turn": turn}
        seen = {"completion": outcome.value["id"], "replayed": outcome.verdict.value != "executed"}
        env.note(
            "turn",
            {**data, **seen, "reads": log.reads, "writes": log.writes, "checks": log.checks, "done": bool(log.done)},
        )
        if log.done == "complete":
            return await _commit(env, attempt, phase)
        if log.done:
            return DelegationOutcome(status="failed", code="agent-blocked", because=f"blocked in {phase}")
    return DelegationOutcome(status="failed", code="turns-used-up", because=f"{d.turns_max} turns in {phase}")


def _opening(attempt: Attempt, phase: str) -> list[dict[str, Any]]:
    """The first messages of a phase. Only failed attempts leave a note, so a resumed one opens with equal bytes."""
    d = attempt.delegation
    task = f"{d.goal} Phase: {phase}."
    for number, note in enumerate(attempt.notes, 1):
        task += f"\nAttempt {number} failed: {note}."
    system = "You work on a repository with seven tools and no shell. Declared checks: " + ", ".join(d.contract.checks)
    return [{"role": "system", "content": system}, {"role": "user", "content": task}]


def _model_call(env: Env, attempt: Attempt, phase: str, turn: int, messages: list[dict[str, Any]]) -> ModelCall:
    d = attempt.delegation
    request = {
        "model": env.model,
        "messages": list(messages),
        "tools": TOOL_SPECS,
        "metadata": {"delegation": d.id, "phase": phase},
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    site = Site(delegation=d.id, phase=phase, seam=Seam.MODEL, name="chat")
    return ModelCall(site=site, call_id=env.new_id(), attempt=attempt.number, turn=turn, request=request)


async def _run_tools(
    env: Env, attempt: Attempt, phase: str, turn: int, completion: Json, messages: list[dict[str, Any]]
) -> TurnLog:
    """Carry out the tool calls of one completion, in order, and append both sides to the conversation."""
    log = TurnLog.empty()
    calls = completion["tool_calls"]
    asked = [
        {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}} for c in calls
    ]
    messages.append({"role": "assistant", "content": completion["content"], "tool_calls": asked})
    for index, wanted in enumerate(calls):
        call = _tool_call(env, attempt, phase, turn, index, wanted)
        outcome = await env.crossings.tool(call) if isinstance(call, ToolCall) else call
        if isinstance(call, ToolCall):
            log.add(call, outcome)
        content = json.dumps(_shown(outcome), sort_keys=True)
        messages.append({"role": "tool", "tool_call_id": wanted["id"], "content": content})
    return log


def _tool_call(env: Env, attempt: Attempt, phase: str, turn: int, index: int, wanted: Json) -> ToolCall | Outcome:
    """The call, or the error that an agent gets for a tool or arguments that do not exist."""
    name = wanted["name"]
    try:
        args = json.loads(wanted["arguments"])
    except ValueError:
        return Err(code="bad-arguments", definite=True, detail="arguments are not JSON")
    if (
        name not in TOOLS
        or not isinstance(args, dict)
        or not all(isinstance(args.get(k), str) for k in _ARGUMENTS[name])
    ):
        return Err(code="bad-arguments", definite=True, detail=f"{name} takes {_ARGUMENTS.get(name, 'no such tool')}")
    site = Site(delegation=attempt.delegation.id, phase=phase, seam=Seam.TOOL, name=name)
    return ToolCall(
        site=site, call_id=env.new_id(), attempt=attempt.number, turn=turn, index=index, tool=name, args=args
    )


def _shown(outcome: Outcome) -> Json:
    """An outcome as the agent sees it."""
    if isinstance(outcome, Ok):
        return outcome.value
    if isinstance(outcome, Refused):
        return {"error": outcome.verdict.value, "refused": True, "because": outcome.because}
    return {"error": outcome.code, "certain": outcome.definite}


async def _commit(env: Env, attempt: Attempt, phase: str) -> DelegationOutcome:
    """S3: stage, publish, and only then the durable checkpoint."""
    d = attempt.delegation
    changes = env.workspaces.changes(attempt)
    for step in ("stage", "publish"):
        site = Site(delegation=d.id, phase=phase, seam=Seam.COMMIT, name=step)
        call = Commit(site=site, call_id=env.new_id(), attempt=attempt.number, step=step, changes=changes)
        outcome = await env.crossings.commit(call)
        if not isinstance(outcome, Ok):
            return ended_by(outcome)
    files = env.workspaces.accepted(attempt)
    env.journal.checkpoint(d.id, phase, attempt.number, files)
    env.note("checkpoint", {"delegation": d.id, "attempt": attempt.number, "phase": phase, "files": files})
    return DelegationOutcome(status="done")


def ended_by(outcome: Err | Refused) -> DelegationOutcome:
    """How an attempt ends whose model call or commit did not go through."""
    if isinstance(outcome, Refused):
        verdict = outcome.verdict
        return DelegationOutcome(status="stopped", code=verdict.value, because=outcome.because, verdict=verdict)
    return DelegationOutcome(status="failed", code=outcome.code, because=outcome.detail, verdict=outcome.verdict)
