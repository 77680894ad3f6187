"""Gates on what leaves the workspace: effects, packages, and acts that take away what others may need."""

from __future__ import annotations

import re

from arms.mesh.control.kinds import Kind, kind_of
from arms.mesh.gates.base import ALLOW, Gate, Ruling, reject, route, wait
from arms.mesh.gates.view import Past, View, leaves, scalars
from harness.core.types import BOUNDARIES, EffectCall, ToolCall

UNDECLARED_EFFECT = Gate(
    name="undeclared_effect", about="An effect needs a clause of the declaration.", module=__name__,
    crossings=("effect",),
)  # fmt: skip
PACKAGE_ALLOW_LIST = Gate(
    name="package_allow_list", about="Only declared packages are fetched.", module=__name__, crossings=("effect",)
)
DESTRUCTIVE = Gate(
    name="destructive", about="Nothing is destroyed on a guess, or over work that was recorded since.", module=__name__
)
UNKNOWN_OUTCOME = Gate(
    name="unknown_outcome", about="Nobody builds on a call that was ended from outside and looks like a success.",
    module=__name__,
)  # fmt: skip

GOING_BACK = frozenset({"restore", "rollback", "revert", "reset", "undo"})
"""Words of tools that bring back an earlier state, and with it lose what came later."""


def undeclared_effect(call: EffectCall, view: View) -> Ruling:
    """Of the six boundaries only: what a tool sends under its own name has no clauses."""
    if call.boundary not in BOUNDARIES or view.contract.clause(call) is not None:
        return ALLOW
    declared = ", ".join(f"{e.boundary} {e.operation} {e.target}" for e in view.contract.effects) or "none"
    said = f"{call.boundary} {call.operation} {call.target} is declared nowhere"
    return reject(said, f"declared are: {declared}", boundary=call.boundary, target=call.target)


def package_allow_list(call: EffectCall, view: View) -> Ruling:
    """Names are compared as package indexes do (PEP 503). A declaration that lists none says nothing about them."""
    allowed, package = view.contract.packages, call.payload.get("package")
    if call.boundary != "registry" or allowed is None or not isinstance(package, str):
        return ALLOW
    if normal(package) in {normal(name) for name in allowed}:
        return ALLOW
    return reject(f"package {package!r} is not on the list", f"allowed are: {', '.join(allowed) or 'none'}")


def normal(package: str) -> str:
    """The name of a package as an index knows it."""
    return re.sub(r"[-_.]+", "-", package).lower()


def destructive(call: ToolCall, view: View) -> Ruling:
    """Waits for a person while an effect is in doubt, and where going back would lose effects recorded since."""
    if kind_of(call.tool) is not Kind.DESTRUCTIVE:
        return ALLOW
    if view.doubts:
        tools = sorted(set(view.doubts.values()))
        return wait(
            f"nobody knows what came of {', '.join(tools)}", "settle that first, or have it waived", doubts=tools
        )
    lost = lost_by(call, view)
    if lost:
        names = [name_of(one) for one in lost]
        return wait(f"what was recorded since would be lost: {', '.join(names)}", "have the loss waived", lost=names)
    return ALLOW


def lost_by(call: ToolCall, view: View) -> list[Past]:
    """Effects recorded since the state that this call goes back to, when it names one that an earlier call named."""
    if not GOING_BACK & set(re.findall(r"[a-z]+", call.tool.lower())):
        return []
    named = scalars(call.args)
    points = [i for i, past in enumerate(view.past) if past.ok and past.words & named and past.tool != call.tool]
    since = view.past[points[-1] + 1 :] if points else []
    return [one for one in since if one.ok and one.kind.leaves and one.kind is not Kind.TERMINAL]


def name_of(past: Past) -> str:
    return f"{past.tool}({', '.join(sorted(past.words))})"


def unknown_outcome(call: ToolCall, view: View) -> Ruling:
    """An empty answer later than the tool's limit is no success (see `learn.ended_by_somebody`): whatever leaves the
    workspace after it waits for somebody to look what really happened."""
    if not view.unknown or not leaves(call):
        return ALLOW
    said = f"{view.unknown[0]} was ended from outside: how far it came is unknown"
    return route("reconciliation", said, unknown=list(view.unknown))
