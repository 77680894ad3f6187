"""Gates on the form of a call: whether it is one at all, whole, declared, and not the one that has just failed."""

from __future__ import annotations

import json
from typing import Any

from arms.mesh.control.kinds import Kind, kind_of, transient
from arms.mesh.gates.base import ALLOW, Gate, Ruling, reject, wait
from arms.mesh.gates.view import Answer, Past, View, key_of
from harness.core.types import ToolCall

DECLARED_CHECK = Gate(name="declared_check", about="Only declared checks run.", module=__name__)
TOOL_ARGUMENTS = Gate(
    name="tool_arguments", about="Arguments match the schema that the agent was offered.", module=__name__
)
COMPLETE_CALL = Gate(
    name="complete_call", about="A call out of an answer that was cut, or that only lenient readers can read, is none.",
    module=__name__,
)  # fmt: skip
REPEATED_FAILURE = Gate(
    name="repeated_failure",
    about="A call that failed is not sent again unchanged while nothing is new.",
    module=__name__,
)

ASKING = (Kind.READ, Kind.WAIT, Kind.CHECK)
"""Kinds of calls that change nothing, so that asking again is never a mistake of this sort."""

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def declared_check(call: ToolCall, view: View) -> Ruling:
    """A check that the declaration does not name is a road to a subprocess that nobody looked at."""
    check, declared = call.args.get("check"), view.contract.checks
    if call.tool != "run_check" or not isinstance(check, str) or check in declared:
        return ALLOW
    return reject(f"{check!r} is no declared check", f"declared are: {', '.join(declared) or 'none'}", check=check)


def tool_arguments(call: ToolCall, view: View) -> Ruling:
    """Missing, unknown and ill-typed arguments are refused, for tools whose schema the agent was told. An unknown one
    too: the tool would leave it out, and so do something else than what was asked."""
    schema = view.offered.get(call.tool)
    if not schema:
        return ALLOW
    known: dict[str, Any] = schema.get("properties", {})
    wrong = [f"{name} is missing" for name in schema.get("required", ()) if name not in call.args]
    for name, value in call.args.items():
        if name in known:
            type_name = known[name].get("type", "")
            fits = isinstance(value, _TYPES.get(type_name, (object,)))
            if not fits or (isinstance(value, bool) and type_name in ("integer", "number")):
                wrong.append(f"{name} is no {type_name}")
        elif schema.get("additionalProperties") is not True:
            wrong.append(f"{name} is unknown")
    if not wrong:
        return ALLOW
    return reject(f"{call.tool}: {', '.join(wrong)}", f"it takes {', '.join(known) or 'no arguments'}", wrong=wrong)


def complete_call(call: ToolCall, view: View) -> Ruling:
    """The last call of an answer that was cut is a prefix of what was meant, however well it reads."""
    answer = view.answer
    if answer is None or (answer.phase, answer.turn) != (call.site.phase, call.turn):
        return ALLOW
    if not 0 <= call.index < len(answer.calls) or answer.calls[call.index][0] != call.tool:
        return ALLOW
    if was_cut(answer, call.index):
        return reject("the answer was cut inside this call", "send the whole call again")
    sent = answer.calls[call.index][1]
    if isinstance(sent, str) and not reads_as(sent, call.args):
        return reject("the arguments as sent are not what would be executed", "send them as one strict JSON object")
    return ALLOW


def was_cut(answer: Answer, index: int) -> bool:
    """Whether a call of this answer ends where the answer was cut."""
    return answer.cut and index == len(answer.calls) - 1


def reads_as(text: str, args: object) -> bool:
    """Whether a text is strict JSON for these arguments: no repeated key, no NaN, nothing repaired."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(items)) != len(items):
            raise ValueError("a key stands twice")
        return dict(items)

    def constant(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    try:
        return bool(json.loads(text, object_pairs_hook=pairs, parse_constant=constant) == args)
    except ValueError:
        return False


def repeated_failure(call: ToolCall, view: View) -> Ruling:
    """Nothing is new when no call went well since. While work that was begun is still out, the refused call may be
    right as soon as that ends, so it is parked and costs nobody a turn of work."""
    if kind_of(call.tool) in ASKING:
        return ALLOW
    failed = failed_before(call, view)
    if failed is None:
        return ALLOW
    out = outstanding([*view.recent()][::-1])
    if out:
        said = f"the same call failed ({failed.code}) and nothing is new; {out[0].tool} is still at work"
        return wait(said, "collect its result first", parked=True, awaits=[one.tool for one in out])
    return reject(f"the same call failed before ({failed.code}) and nothing is new since", "change it, or find out why")


def failed_before(call: ToolCall, view: View) -> Past | None:
    """The failure that this call would only repeat, if any: its own, of a lasting sort, and the last thing but for
    other failures."""
    key = key_of(call)
    for past in view.recent():
        if past.ok:
            return None
        if past.key == key:
            return None if transient(past.code) else past
    return None


def outstanding(past: list[Past]) -> list[Past]:
    """Of calls in order, work that was begun and whose result nobody has collected: no later call names its handle."""
    begun: list[Past] = []
    for one in past:
        if one.ok and one.kind is not Kind.BEGIN:
            begun = [work for work in begun if not work.words & one.words]
        elif one.ok:
            begun.append(one)
    return begun
