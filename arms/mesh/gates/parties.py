"""Gates on who may hand on to whom, and on whom a repair goes to: a wrong name wakes the wrong party."""

from __future__ import annotations

from collections.abc import Iterator

from arms.mesh.control.kinds import Kind, kind_of
from arms.mesh.gates.base import ALLOW, Gate, Ruling, reject, route
from arms.mesh.gates.view import Observation, View, scalars
from harness.core.types import ToolCall

HAND_OFF = Gate(name="hand_off", about="A hand-off goes only where its source may hand on.", module=__name__)
MISDIRECTED_REPAIR = Gate(
    name="misdirected_repair", about="A repair goes to the party at fault, and never on evidence in quarantine.",
    module=__name__,
)  # fmt: skip

SOURCES, TARGETS = ("from", "source", "sender"), ("to", "target", "recipient")
PARTIES = ("agent", "to", "component", "owner")
"""Argument names by which a call says who hands on, to whom, and who is to mend."""


def hand_off(call: ToolCall, view: View) -> Ruling:
    """Judges calls that name a source whose hand-offs are declared. Source, target and allowed come from the check
    itself, never from a text, and the source is the party at fault."""
    source, target = _named(call, SOURCES), _named(call, TARGETS)
    allowed = view.contract.handoffs.get(source)
    if allowed is None or not target or target in allowed:
        return ALLOW
    return reject(
        f"{source} may not hand on to {target}",
        f"{source} may hand on to: {', '.join(allowed) or 'nobody'}",
        at_fault=at_fault(source, target),
        source=source,
        target=target,
        allowed=list(allowed),
    )


def at_fault(source: str, target: str) -> str:
    """Who has to change something after a refused hand-off: the one who chose the target."""
    return source


def misdirected_repair(call: ToolCall, view: View) -> Ruling:
    """Routes a repair to whom a gate named, or to whoever looks after a check whose answers contradict each other."""
    if kind_of(call.tool) is not Kind.REPAIR:
        return ALLOW
    party = _named(call, PARTIES)
    if view.at_fault and party and party != view.at_fault:
        return route(view.at_fault, f"the fault is with {view.at_fault}, not with {party}", named=party)
    silent = unanswered(call, view)
    if silent:
        said = f"{silent} could not run, which says nothing about the work"
        return route("the provider of the check", said, check=silent)
    doubtful = contested(call, view)
    if doubtful:
        said = f"the evidence is in quarantine: {doubtful} answers differently on the same"
        return route("flake triage", said, check=doubtful)
    return ALLOW


def unanswered(call: ToolCall, view: View) -> str:
    """The check that this repair rests on and that gave no answer at all, or ""."""
    return next((seen.check for seen in _rests_on(call, view) if seen.passed is None and not seen.result), "")


def contested(call: ToolCall, view: View) -> str:
    """The quarantined check that this repair rests on, or ""."""
    return next((s.check for s in _rests_on(call, view) if s.contested or s.check in view.quarantined), "")


def _rests_on(call: ToolCall, view: View) -> Iterator[Observation]:
    """The checks that a repair names as its cause. One that names no cause rests on all that was seen."""
    cause = scalars({key: value for key, value in call.args.items() if key not in PARTIES})
    return (seen for seen in view.observations.values() if not cause or cause & (seen.words | {seen.check}))


def _named(call: ToolCall, names: tuple[str, ...]) -> str:
    return next((str(call.args[name]) for name in names if name in call.args), "")
