"""The exoneration corpus: work that is known to be correct, which no gate may refuse, and ways to break it.

A member is a short scene (what crossed before, and the call that is judged). Its breaks are mutations that make it
wrong: the gate it belongs to must refuse each of them, or that gate proves nothing.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import yaml
from msgspec import Struct, ValidationError, convert

from arms.mesh.gates.base import Gate, Ruling, judge
from arms.mesh.gates.learn import enter, learn_commit, learn_effect, learn_model, learn_refusal, learn_tool
from arms.mesh.gates.view import View
from harness.core.errors import ConfigError
from harness.core.types import (
    Call,
    Commit,
    EffectCall,
    EffectContract,
    Err,
    Json,
    ModelCall,
    Ok,
    Outcome,
    Seam,
    Site,
    ToolCall,
)

FOLDER = Path(__file__).parents[1] / "control" / "corpus"
PHASE = "implementation"
DELEGATION = "corpus"
"""What scenes are scenes of, where a file does not say."""


class Crossing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call of a scene: a tool with `args`, a model turn, an effect or a commit (their fields by name).

    answer: the value of its ok; error: code of its failure, which is certain unless `lost`; refused: the subject that
    its refusal by `gate` was about."""

    tool: str = ""
    args: dict[str, Json] = {}
    model: dict[str, Json] | None = None
    effect: dict[str, Json] | None = None
    commit: dict[str, Json] | None = None
    phase: str = PHASE
    attempt: int = 1
    turn: int = 0
    index: int = 0
    answer: Json = None
    receipt: str | None = None
    error: str = ""
    lost: bool = False
    refused: str = ""
    gate: str = ""
    at_fault: str = ""
    took_ms: float = 0.0


class Break(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mutation of a member: `put` sets what stands at a dotted place, `swap` replaces a text by another in the text
    there."""

    how: str
    at: str
    put: Json = None
    swap: tuple[str, str] | None = None


class Member(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A correct artifact. gate: whose it is; verified_by: who or what says, independently of the gate, that it is
    correct. quarantined: checks that M6 holds to be so."""

    id: str
    gate: str
    verified_by: str
    call: Crossing
    breaks: tuple[Break, ...]
    contract: EffectContract = EffectContract()
    phases: tuple[str, ...] = (PHASE,)
    before: tuple[Crossing, ...] = ()
    quarantined: tuple[str, ...] = ()


class _File(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    schema: Literal["agentmesh-corpus/1"]
    version: int
    members: list[dict[str, Json]]


class Corpus(Struct, frozen=True):
    """members: as they are judged; raw: as they stand in their files, for mutation."""

    members: tuple[Member, ...]
    raw: dict[str, dict[str, Json]]


@functools.cache
def load(folder: Path = FOLDER) -> Corpus:
    """All members of a folder of corpus files. Raises ConfigError with the file and what is wrong there."""
    members: list[Member] = []
    raw: dict[str, dict[str, Json]] = {}
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # tenfold faster, and it is waited for at every start
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        hint = "without its corpus no gate is known to let correct work through; install the program again"
        raise ConfigError("there is no corpus file (*.yaml)", where=str(folder), hint=hint)
    for path in paths:
        try:
            file = convert(yaml.load(path.read_text(encoding="utf-8"), loader), _File)
            for told in file.members:
                member = convert(told, Member)
                if member.id in raw:
                    raise ConfigError(f"two members are called {member.id!r}", where=str(path))
                if not member.verified_by:
                    raise ConfigError(
                        f"{member.id}: nobody verified it", where=str(path), hint="say who did in `verified_by`"
                    )
                members.append(member)
                raw[member.id] = told
        except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError, ValueError, RecursionError) as error:
            problem = " ".join(str(error).split())
            raise ConfigError(problem, where=str(path), hint="see the other files of the corpus") from error
    if not members:
        raise ConfigError("the corpus has no member", where=str(folder))
    return Corpus(tuple(members), raw)


# --- scenes -------------------------------------------------------------------------------------------------------


def scene(member: Member) -> tuple[Call, View]:
    """The call that is judged, and the view as it is by then. Raises ConfigError for a crossing that is no call."""
    view = View(contract=member.contract, phases=member.phases, quarantined=frozenset(member.quarantined))
    try:
        for one in member.before:
            learn(view, one)
        call = call_of(member.call)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"member {member.id!r} tells of no call: {type(error).__name__}: {error}"
        raise ConfigError(problem, where="exoneration corpus", hint="see the other members of its gate") from error
    enter(view, call.attempt)
    return call, view


def learn(view: View, one: Crossing) -> None:
    """What the layer would have kept of this crossing."""
    call = call_of(one)
    enter(view, call.attempt)
    if one.refused or one.at_fault:
        learn_refusal(view, one.gate, one.refused, one.at_fault)
        return
    outcome: Outcome = Ok(value=one.answer, receipt=one.receipt)
    if one.error:
        outcome = Err(code=one.error, definite=not one.lost)
    if isinstance(call, ToolCall):
        learn_tool(view, call, outcome, one.took_ms)
    elif isinstance(call, ModelCall):
        learn_model(view, call, outcome)
    elif isinstance(call, EffectCall):
        learn_effect(view, call, outcome)
    else:
        learn_commit(view, call, outcome)


def call_of(one: Crossing, call_id: str = "c") -> Call:
    """The crossing as a call."""

    def site(seam: Seam, name: str) -> Site:
        return Site(delegation=DELEGATION, phase=one.phase, seam=seam, name=name)

    if one.model is not None:
        request = {"messages": [], **one.model}
        return ModelCall(
            site=site(Seam.MODEL, "chat"), call_id=call_id, attempt=one.attempt, turn=one.turn, request=request
        )
    if one.commit is not None:
        step: Literal["stage", "publish"] = "stage" if one.commit["step"] == "stage" else "publish"
        return Commit(
            site=site(Seam.COMMIT, step),
            call_id=call_id,
            attempt=one.attempt,
            step=step,
            changes=one.commit.get("changes", {}),
        )
    at: dict[str, Json] = {"call_id": call_id, "attempt": one.attempt, "turn": one.turn, "index": one.index}
    if one.effect is not None:
        usual = {"ordinal": 0, "cause": "t", "origin": "check", "operation": "", "target": "", "payload": {}}
        told: dict[str, Json] = usual | one.effect
        return EffectCall(site=site(Seam.TOOL, told["boundary"]), **at, **told)
    return ToolCall(site=site(Seam.TOOL, one.tool), **at, tool=one.tool, args=one.args)


# --- breaks -------------------------------------------------------------------------------------------------------


def broken(corpus: Corpus, member: Member) -> Iterator[tuple[Break, Member]]:
    """The member with each of its breaks. Raises ConfigError for a break that changes nothing."""
    for mutation in member.breaks:
        told = copy.deepcopy(corpus.raw[member.id])
        place, last, after = _change(told, mutation, member.id)
        place[last] = after
        yield mutation, convert(told, Member)


def check_breaks(corpus: Corpus) -> None:
    """Raises ConfigError for a break that changes nothing; judges none of them."""
    for member in corpus.members:
        for mutation in member.breaks:
            _change(corpus.raw[member.id], mutation, member.id)


def _change(told: Json, mutation: Break, member: str) -> tuple[Json, str | int, Json]:
    """The list or mapping that a break changes, where in it, and what comes to stand there."""
    *outer, last = (int(part) if part.isdigit() else part for part in mutation.at.split("."))
    place: Json = told
    try:
        for part in outer:
            place = place[part]
        before: Json = place.get(last) if isinstance(place, dict) else place[last]
        after = mutation.put if mutation.swap is None else str(before).replace(*mutation.swap)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        problem = f"break {mutation.how!r} finds nothing at {mutation.at}"
        raise ConfigError(problem, where=f"exoneration corpus: {member}") from error
    if after == before:
        raise ConfigError(f"break {mutation.how!r} changes nothing", where=f"exoneration corpus: {member}")
    return place, last, after


def rulings(gates: Sequence[Gate], member: Member) -> Iterator[tuple[Gate, Ruling]]:
    """What each gate says of a member."""
    call, view = scene(member)
    for gate in gates:
        yield gate, judge(gate, call, view)
