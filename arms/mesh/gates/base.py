"""What a gate is and what it may answer.

Why a gate is a name and not a function: whoever asks it looks the function up in its module, so that a mutation can put
another one there and show that the gate decides.
"""

from __future__ import annotations

import sys
from typing import Literal

from msgspec import Struct

from arms.mesh.gates.view import View
from harness.core.types import Call, Json

Crossing = Literal["tool", "effect", "commit"]


class Ruling(Struct, frozen=True, kw_only=True):
    """A gate's answer. satisfied_by: what the caller can do to get through. party: who has to act, of a route. subject:
    what a refusal is about, so that a second request for it can be told. at_fault: whom a repair belongs to. dropped:
    paths of a commit that are left out of it. fields: the same facts for a program."""

    kind: Literal["allow", "reject", "wait", "route"]
    because: str = ""
    satisfied_by: str = ""
    party: str = ""
    subject: str = ""
    at_fault: str = ""
    dropped: tuple[str, ...] = ()
    fields: dict[str, Json] = {}

    @property
    def allowed(self) -> bool:
        return self.kind == "allow"

    @property
    def told(self) -> str:
        """The answer in one line, for the agent and for a person."""
        said = f"{self.because} (for: {self.party})" if self.party else self.because
        return f"{said}; {self.satisfied_by}" if self.satisfied_by else said


ALLOW = Ruling(kind="allow")


def reject(because: str, satisfied_by: str = "", *, subject: str = "", at_fault: str = "", **fields: Json) -> Ruling:
    """The call is wrong as it stands. fields: the facts of the refusal by name."""
    return Ruling(
        kind="reject", because=because, satisfied_by=satisfied_by, subject=subject, at_fault=at_fault, fields=fields
    )


def wait(because: str, satisfied_by: str = "", **fields: Json) -> Ruling:
    """Only a person, or an event that is not there yet, can let this through."""
    return Ruling(kind="wait", because=because, satisfied_by=satisfied_by, fields=fields)


def route(party: str, because: str, **fields: Json) -> Ruling:
    """Somebody else has to act first."""
    return Ruling(kind="route", party=party, because=because, fields=fields)


class Gate(Struct, frozen=True, kw_only=True):
    """A rule that calls have to pass. name: of the function `(call, view) -> Ruling` in `module`, pure in both.
    crossings: the calls that it is asked about."""

    name: str
    about: str
    module: str
    crossings: tuple[Crossing, ...] = ("tool",)

    @property
    def target(self) -> str:
        """Where its decision stands, as a guard names it."""
        return f"{self.module}:{self.name}"


def crossing_of(call: Call) -> str:
    """`tool`, `effect`, `commit` or `model`."""
    return str(call.__struct_config__.tag)


def judge(gate: Gate, call: Call, view: View) -> Ruling:
    """What the gate says of this call. Whatever its function raises goes through."""
    if crossing_of(call) not in gate.crossings:
        return ALLOW
    ruling: Ruling = vars(sys.modules[gate.module])[gate.name](call, view)
    return ruling
