"""What a tool does, by the words of its name: the default for tools that nobody declared.

A declaration always goes first; this is what a control plane ships for every tool of a kind.
"""

from __future__ import annotations

import functools
import re
from enum import StrEnum
from pathlib import Path

import yaml
from msgspec import Struct, convert


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


class Waits(Struct, frozen=True, kw_only=True):
    interval_min_ms: float
    polls_max: int


class ToolPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`tools.yaml`. annotations: argument names that only comment on a call. deliveries: argument names whose value
    names one act. acknowledgements: results that tell nothing apart from that the call arrived."""

    version: int
    kinds: dict[Kind, tuple[str, ...]]
    order: tuple[Kind, ...]
    waits: Waits
    annotations: frozenset[str]
    deliveries: frozenset[str]
    acknowledgements: frozenset[str]


POLICY = convert(yaml.safe_load(Path(__file__).with_name("tools.yaml").read_text(encoding="utf-8")), ToolPolicy)
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


@functools.lru_cache(maxsize=1024)
def kind_of(tool: str) -> Kind:
    """The kind of a tool. The last part of a dotted name counts first, then the part before it."""
    for part in reversed(re.split(r"[./:]", tool)):
        words = [word.lower() for word in _WORD.findall(part)]
        for kind in POLICY.order:
            if any(word in POLICY.kinds[kind] for word in words):
                return kind
    return Kind.EFFECT


def says_nothing(result: object) -> bool:
    """Whether a result is a mere acknowledgement: equal answers of that sort are no evidence of standing still."""
    return str(result).strip().lower() in POLICY.acknowledgements
