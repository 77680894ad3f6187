"""What the layer learns from the calls that crossed it, and writes into the view that the gates read."""

from __future__ import annotations

import json

from arms.mesh.control.kinds import Kind, judges, kind_of, says_nothing
from arms.mesh.control.scope import stated_of
from arms.mesh.gates.view import (
    PAST_MAX,
    SOURCES_MAX,
    TEXT_MAX,
    WHOLE_ANSWERS,
    Answer,
    Observation,
    Past,
    Source,
    View,
    digest_of,
    key_of,
    leaves,
    scalars,
    text_after,
)
from harness.core.types import Commit, EffectCall, Err, Json, ModelCall, Ok, Outcome, ToolCall


def enter(view: View, attempt: int) -> None:
    """A new attempt begins: what only the last one knew is forgotten."""
    if attempt != view.attempt:
        view.attempt = attempt
        view.answer, view.staged = None, ""
        view.observations.clear()
        view.unknown.clear()
        view.off_scope.clear()


def learn_model(view: View, call: ModelCall, outcome: Outcome) -> None:
    """The tools that the agent was offered, and whether its answer is complete."""
    enter(view, call.attempt)
    view.answer = None
    for offered in call.request.get("tools") or ():
        function = offered.get("function", {})
        view.offered[function.get("name", "")] = function.get("parameters", {})
    if isinstance(outcome, Ok) and isinstance(outcome.value, dict):
        calls = outcome.value.get("tool_calls") or ()
        view.answer = Answer(
            phase=call.site.phase,
            turn=call.turn,
            cut=outcome.value.get("finish_reason") not in WHOLE_ANSWERS,
            calls=tuple((str(one.get("name", "")), one.get("arguments")) for one in calls),
        )


def learn_tool(view: View, call: ToolCall, outcome: Outcome, took_ms: float) -> None:
    """What came of a tool call that was sent. A refusal of another layer teaches nothing: nothing was done."""
    if not isinstance(outcome, Ok | Err):
        return
    kind, value = kind_of(call.tool), outcome.value if isinstance(outcome, Ok) else outcome.detail
    code = outcome.code if isinstance(outcome, Err) else error_in(value)
    if judges(call.tool, value):
        _observe(view, call, outcome)
    past = Past(
        tool=call.tool,
        kind=kind,
        key=key_of(call),
        attempt=call.attempt,
        words=scalars(call.args) | (frozenset() if says_nothing(value) else scalars(value)),
        result="" if isinstance(value, dict | list) else str(value),
        code=code,
        certain=isinstance(outcome, Ok) or outcome.definite,
    )
    view.past.append(past)
    del view.past[:-PAST_MAX]
    if past.ok:
        _learn_files(view, call, value)
        _learn_scope(view, value)
        if leaves(call) and str(call.args.get("from", call.args.get("source", ""))) == view.at_fault:
            view.at_fault = ""
    if leaves(call):
        if not past.ok and not past.certain:
            view.doubts[past.key] = call.tool
        elif past.ok:
            view.doubts.pop(past.key, None)
    if isinstance(outcome, Ok) and ended_by_somebody(view.contract.tool_limit_ms, took_ms, value):
        view.unknown.append(call.tool)


def ended_by_somebody(limit_ms: float | None, took_ms: float, value: Json) -> bool:
    """Whether an answer that calls itself good came from a call that was ended from outside: later than the limit of
    its tool, and empty."""
    return limit_ms is not None and took_ms > limit_ms and value in (None, "", [], {})


def error_in(value: Json) -> str:
    """The error that a tool tells in a well-formed answer, or ""."""
    return str(value["error"]) if isinstance(value, dict) and "error" in value else ""


def _observe(view: View, call: ToolCall, outcome: Outcome) -> None:
    named = call.tool == "run_check"
    name = str(call.args.get("check", "")) if named else call.tool
    place = f"{call.site.phase} {name if named else key_of(call)}"
    passed, result = None, ""
    if isinstance(outcome, Ok) and not error_in(outcome.value):
        said = outcome.value.get("passed") if isinstance(outcome.value, dict) else None
        passed, result = said, json.dumps(outcome.value if said is None else said, sort_keys=True)
    receipt = outcome.receipt if isinstance(outcome, Ok) else None
    before = view.observations.get(place)
    answered = before is not None and before.result and result
    contested = bool(answered and before and before.result != result and _on_the_same(view, call, before, receipt))
    view.observations[place] = Observation(
        phase=call.site.phase,
        check=name,
        passed=passed,
        result=result or (before.result if before else ""),
        receipt=receipt,
        contested=contested or bool(before and before.contested and before.receipt == receipt),
        words=scalars(call.args),
    )


def _on_the_same(view: View, call: ToolCall, before: Observation, receipt: str | None) -> bool:
    """Whether nothing changed since the last run of a check: its receipt says so, or no call in between changed any."""
    if receipt is not None or before.receipt is not None:
        return receipt == before.receipt
    for one in view.recent():
        if one.key == key_of(call):
            return True
        if one.ok and (one.kind is Kind.DRAFT or one.kind.leaves):
            return False
    return False


def _learn_files(view: View, call: ToolCall, value: Json) -> None:
    path = str(call.args.get("path", ""))
    told = value if isinstance(value, dict) else {}
    if call.tool == "read" and isinstance(told.get("content"), str):
        _keep(view, path, str(told.get("digest", "")), told["content"])
    elif call.tool in ("write", "edit") and path:
        text = text_after(view, call)
        view.wrote[path] = str(told.get("digest") or (digest_of(text) if text is not None else ""))
        if text is None:
            view.sources.pop(path, None)
        else:
            _keep(view, path, view.wrote[path], text)


def _keep(view: View, path: str, digest: str, text: str) -> None:
    view.sources.pop(path, None)
    view.sources[path] = Source(path=path, digest=digest, text=text[:TEXT_MAX])
    while len(view.sources) > SOURCES_MAX:
        del view.sources[next(iter(view.sources))]


def _learn_scope(view: View, value: Json) -> None:
    """A result that says what it is about must say what was asked; one that does takes the doubt away."""
    wanted = view.contract.scope
    told = stated_of(value, wanted)
    if told:
        off = {key: [str(wanted[key]), said] for key, said in told.items() if said != str(wanted[key])}
        view.off_scope.clear()
        view.off_scope.update(off)


def learn_effect(view: View, call: EffectCall, outcome: Outcome) -> None:
    """An effect that left. What a tool sends out under its own name was learnt as that tool call."""
    if call.boundary == "tool" or not isinstance(outcome, Ok):
        return
    said = f"{call.boundary} {call.operation} {call.target}".strip()
    view.past.append(
        Past(tool=said, kind=Kind.EFFECT, key=key_of(call), attempt=call.attempt, words=scalars(call.payload))
    )
    del view.past[:-PAST_MAX]


def learn_commit(view: View, call: Commit, outcome: Outcome) -> None:
    """How far the delegation is accepted."""
    if not isinstance(outcome, Ok):
        return
    if call.step == "stage":
        view.staged = call.site.phase
    else:
        view.staged = ""
        view.accepted.append(call.site.phase)
        view.published |= {path for path, digest in call.changes.items() if digest is not None}


def learn_refusal(view: View, gate: str, subject: str, at_fault: str) -> None:
    """What a refusal was about, and whose mistake it was."""
    if subject:
        view.refused[f"{gate} {subject}"] = view.times_refused(gate, subject) + 1
    if at_fault:
        view.at_fault = at_fault
