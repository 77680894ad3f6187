"""What the gates know of a delegation: kept by the layer out of the calls that crossed it, read by pure rules.

Why it is bounded and in memory: a gate that does not know something must not refuse on it, so what a restart loses
makes gates milder, never stricter. `whole` says whether everything since the delegation began was seen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from msgspec import Struct

from arms.mesh.control.kinds import Kind, kind_of
from harness.core.types import EffectCall, EffectContract, Json, ToolCall

PAST_MAX = 512
SOURCES_MAX = 128
TEXT_MAX = 65_536
"""Bounds, per delegation: calls remembered, sources remembered, characters of each."""

WHOLE_ANSWERS = ("stop", "tool_calls", None)
"""Reasons with which a provider ends an answer that is complete; None where it gives none."""


class Source(Struct, frozen=True, kw_only=True):
    """A file that the agent was shown, or wrote. text: all of it, or its beginning where it is longer."""

    path: str
    digest: str
    text: str


class Past(Struct, frozen=True, kw_only=True):
    """A finished call. key: the call, byte for byte. words: values of its arguments and its result. code: of an error,
    "" when it went well. certain: it is known what came of it."""

    tool: str
    kind: Kind
    key: str
    attempt: int
    words: frozenset[str]
    result: str = ""
    code: str = ""
    certain: bool = True

    @property
    def ok(self) -> bool:
        return not self.code


class Observation(Struct, frozen=True, kw_only=True):
    """The last answer of a check. check: its name, or that of the tool that is one. passed None: there was none.
    contested: it answered otherwise before, on the same."""

    phase: str
    check: str
    passed: bool | None
    result: str
    receipt: str | None
    contested: bool
    words: frozenset[str]


class Answer(Struct, frozen=True, kw_only=True):
    """The model answer that the calls of a turn come from. calls: name and arguments as they were sent."""

    phase: str
    turn: int
    cut: bool
    calls: tuple[tuple[str, Json], ...]


class View(Struct, kw_only=True):
    """Read-only for gates. wrote: path to digest of what the agent wrote. offered: argument schema by tool, as the
    agent was told. refused: how often a gate refused a subject. doubts: effects whose outcome nobody knows, by key.
    unknown: calls of this attempt that somebody else ended. off_scope: how the last result differed from what it had
    to be about. quarantined: checks that may not be relied on, as M6 says. ended: whether the last attempt ended
    well."""

    contract: EffectContract
    phases: tuple[str, ...] = ()
    whole: bool = True
    attempt: int = 0
    wrote: dict[str, str] = {}
    sources: dict[str, Source] = {}
    past: list[Past] = []
    observations: dict[str, Observation] = {}
    answer: Answer | None = None
    offered: dict[str, Json] = {}
    staged: str = ""
    accepted: list[str] = []
    ended: bool = False
    published: set[str] = set()
    refused: dict[str, int] = {}
    at_fault: str = ""
    doubts: dict[str, str] = {}
    unknown: list[str] = []
    off_scope: dict[str, list[str]] = {}
    quarantined: frozenset[str] = frozenset()

    def times_refused(self, gate: str, subject: str) -> int:
        return self.refused.get(f"{gate} {subject}", 0)

    def recent(self) -> Iterator[Past]:
        """Calls of this attempt, the last one first."""
        return (one for one in reversed(self.past) if one.attempt == self.attempt)


def key_of(call: ToolCall | EffectCall) -> str:
    """A call, byte for byte."""
    said: list[Json] = [call.tool, call.args] if isinstance(call, ToolCall) else [call.boundary, call.payload]
    return json.dumps(said, sort_keys=True)


def scalars(value: Json) -> frozenset[str]:
    """The texts and numbers in a JSON value, as text."""
    if isinstance(value, dict):
        return frozenset().union(*(scalars(item) for item in value.values()))
    if isinstance(value, list):
        return frozenset().union(*(scalars(item) for item in value))
    known = isinstance(value, str | int | float) and not isinstance(value, bool) and len(str(value)) <= 200
    return frozenset({str(value)} if known and value != "" else ())


def leaves(call: ToolCall) -> bool:
    """Whether a call changes something outside. Ending a delegation as blocked does not: it hands up no result."""
    kind = kind_of(call.tool)
    return kind.leaves and not (kind is Kind.TERMINAL and call.args.get("status", "complete") == "blocked")


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def text_after(view: View, call: ToolCall) -> str | None:
    """The text of a file once this write or edit is done, or None where that is not known."""
    if call.tool == "write":
        content = call.args.get("content")
        return content if isinstance(content, str) else None
    known, old, new = view.sources.get(str(call.args.get("path"))), call.args.get("old"), call.args.get("new")
    if known is None or not isinstance(old, str) or not isinstance(new, str):
        return None
    return known.text.replace(old, new) if known.text.count(old) == 1 and len(known.text) < TEXT_MAX else None
