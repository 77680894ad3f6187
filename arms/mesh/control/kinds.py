"""What a tool does, by the words of its name: the default for tools that nobody declared.

A declaration always goes first; this is what a control plane ships for every tool of a kind.
"""

from __future__ import annotations

import functools
import re
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from arms.mesh.control import strict
from harness.core.errors import ConfigError


class Kind(StrEnum):
    """read and wait change nothing (wait is asked again until something changes); check judges; draft changes the
    workspace only; effect changes the outside; terminal hands the result up; begin starts work that goes on by itself;
    repair has something mended; destructive takes away what others may need."""

    READ = "read"
    WAIT = "wait"
    CHECK = "check"
    DRAFT = "draft"
    EFFECT = "effect"
    TERMINAL = "terminal"
    BEGIN = "begin"
    REPAIR = "repair"
    DESTRUCTIVE = "destructive"

    @property
    def leaves(self) -> bool:
        """Whether a call of this kind changes something outside the workspace."""
        return self not in (Kind.READ, Kind.WAIT, Kind.CHECK, Kind.DRAFT)


class Waits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a waiting tool that nobody declared may be asked, and how far apart."""

    interval_min_ms: float
    reading_interval_min_ms: float
    polls_max: int


class Terminal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Both a verb and a noun make a tool one that hands the result up."""

    verbs: frozenset[str]
    nouns: frozenset[str]


class ToolPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`tools.yaml`. kinds: words by kind, looked for in `order`. acts: first words that do something. annotations:
    argument names (a pattern) that only comment on a call. deliveries: argument names (a pattern) whose value names one
    act. verdicts: answers (a pattern) that judge something. transient: beginnings of error codes that say nothing
    against sending the same call once more. acknowledgements: results that tell nothing apart from that the call
    arrived."""

    version: int
    kinds: dict[Kind, tuple[str, ...]]
    acts: frozenset[str]
    order: tuple[Kind, ...]
    terminal: Terminal
    waits: Waits
    annotations: str
    deliveries: str
    verdicts: str
    transient: tuple[str, ...]
    acknowledgements: frozenset[str]

    def __post_init__(self) -> None:
        missing = [kind for kind in (*self.order, *_OF_OBJECTS) if kind not in self.kinds]
        if missing:
            raise ConfigError(f"no words for {missing[0]}", where="kinds", allowed="words for each kind of `order`")


_OF_OBJECTS = (Kind.REPAIR, Kind.CHECK, Kind.DRAFT)

FILE = Path(__file__).with_name("tools.yaml")
POLICY = strict.load(FILE, ToolPolicy)
_ANNOTATION = strict.pattern(POLICY.annotations, FILE, "annotations", re.IGNORECASE)
_DELIVERY = strict.pattern(POLICY.deliveries, FILE, "deliveries", re.IGNORECASE)
_VERDICT = strict.pattern(POLICY.verdicts, FILE, "verdicts", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


@functools.lru_cache(maxsize=1024)
def kind_of(tool: str) -> Kind:
    """The kind of a tool: by the words of the last part of a dotted name, which says what is done. The parts before it
    say to what, and tell only what judges, mends or drafts."""
    every = {word.lower() for word in _WORD.findall(tool)}
    if tool == "done" or (every & POLICY.terminal.verbs and every & POLICY.terminal.nouns):
        return Kind.TERMINAL
    last, *before = reversed(re.split(r"[./:]", tool))
    for part, kinds in ((last, POLICY.order), *((part, _OF_OBJECTS) for part in before)):
        words = [word.lower() for word in _WORD.findall(part)]
        if part is last and words and words[0] in POLICY.acts and not set(words) & set(POLICY.kinds[Kind.DRAFT]):
            return Kind.EFFECT
        for kind in kinds:
            if any(word in POLICY.kinds[kind] for word in words):
                return kind
    return Kind.EFFECT


def comments(argument: str) -> bool:
    """Whether an argument of this name only comments on a call, and says nothing of what it does."""
    return _ANNOTATION.fullmatch(argument) is not None


def names_an_act(argument: str) -> bool:
    """Whether the value of an argument of this name names one act: equal for its repetition, new for another."""
    return _DELIVERY.fullmatch(argument) is not None


def judges(tool: str, result: object) -> bool:
    """Whether a call judges something: by the kind of its tool, or by an answer that is a verdict."""
    return kind_of(tool) is Kind.CHECK or (isinstance(result, str) and _VERDICT.fullmatch(result.strip()) is not None)


def transient(code: str) -> bool:
    """Whether an error says nothing against sending the same call once more."""
    return code.startswith(POLICY.transient)


def says_nothing(result: object) -> bool:
    """Whether a result is a mere acknowledgement: equal answers of that sort are no evidence of standing still."""
    return str(result).strip().lower() in POLICY.acknowledgements
