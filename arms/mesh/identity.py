"""What makes an effect the one it is: declared fields, a slot, an id of one act, or its canonical content.

Why one function: every later question (was it had before, is it in doubt, is it a repetition) is asked about what this
says, and a person who wants to know why two calls were taken for one has one place to read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec import Struct

from arms.mesh.control.canonical import strip
from arms.mesh.control.kinds import Kind, comments, kind_of, names_an_act
from harness.core import payload
from harness.core.types import DeclaredEffect, EffectCall, Json

TOOL = "tool"
"""The boundary of effects that are tool calls themselves: nobody reads them off a wire."""


class Identity(Struct, frozen=True):
    """text: equal for two calls that mean the same effect. worded: the content is part of it, so that equal content
    within one cause is a legitimate repeat; without it there is one such effect, however it is worded."""

    text: str
    worded: bool = True


def identity(call: EffectCall, clause: DeclaredEffect | None, slot: str = "", worker: str = "") -> Identity:
    """What this effect is. Of an undeclared tool call: that it hands the result up (once per delegation), else the id
    of one act that it carries, else its slot. Of everything else its canonical content.

    The content of an undeclared tool call counts within its phase; that of a declared effect in all phases.

    clause: the one of the contract that covers the call. slot: phase and number of the slot that an effect of unknown
    wording takes, "" for none. worker: this host, whose name in an argument is no part of what is done.
    """
    named = named_by_itself(call, clause)
    if named is not None:
        return named
    if slot:
        return Identity(_text("slot", call.operation, slot), worded=False)
    text = content(call, clause, worker)
    if clause is None and call.boundary == TOOL:  # a phase that was accepted is not gone through again
        text = _text(call.site.phase, text)
    return Identity(text)


def named_by_itself(call: EffectCall, clause: DeclaredEffect | None) -> Identity | None:
    """The identity of an undeclared tool call that needs no content: it hands the result up, or carries the id of one
    act. None for any other."""
    if clause is not None or call.boundary != TOOL:
        return None
    if kind_of(call.operation) is Kind.TERMINAL:
        return Identity(_text("terminal", call.operation, call.target), worded=False)
    if not any(names_an_act(name) for name in call.payload):
        return None
    act = {n: v for n, v in strip(dict(call.payload)).items() if names_an_act(n) or _is_quantity(v)}
    return Identity(_text("act", call.operation, call.target, act), worded=False)


def _is_quantity(value: Json) -> bool:
    """A number says how much is done: with another one, the same message has more to tell."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def content(call: EffectCall, clause: DeclaredEffect | None, worker: str = "") -> str:
    """Canonical operation and arguments, as JSON text: without volatile parts, of an undeclared tool also without
    arguments that only comment on the call."""
    view = payload.view(call)
    if clause is None and call.boundary == TOOL:
        view = _essential(view, worker)
    return _text(call.operation, call.target, strip(view, clause.volatile if clause else ()))


def takes_slot(call: EffectCall, clause: DeclaredEffect | None) -> bool:
    """Whether the call takes one of the contract's slots: it leaves the delegation, its wording was not declared, and
    nothing else names it."""
    return clause is None and kind_of(call.operation).leaves and named_by_itself(call, clause) is None


def leaves(call: EffectCall, clause: DeclaredEffect | None) -> bool:
    """Whether the ledger keeps account of the call. A tool that reads, waits, checks or drafts has no effect of its
    own, and may be called as often as somebody likes."""
    return clause is not None or call.boundary != TOOL or kind_of(call.operation).leaves


def _essential(arguments: Mapping[str, Json], worker: str) -> dict[str, Json]:
    """Arguments without comments on the call and without the name of the host that makes it: who acts does not change
    what is done."""
    return {name: value for name, value in arguments.items() if not comments(name) and not (worker and value == worker)}


def _text(*parts: Json) -> str:
    return json.dumps(parts, sort_keys=True, separators=(",", ":"))
