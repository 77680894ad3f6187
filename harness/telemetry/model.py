"""What a span is here, before it becomes a message: keys in place of ids, nominal milliseconds in place of times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

Attributes = dict[str, str | bool | int | float]


class Mark(Struct, frozen=True):
    """Something that happened at one moment of a span."""

    name: str
    at_ms: float
    attributes: Attributes = {}


class Link(Struct, frozen=True):
    """To another span of the trial, by its key."""

    key: str
    because: str


class Span(Struct, frozen=True, kw_only=True):
    """A span under a key that is unique in its trial. Times are nominal milliseconds since the trial began.

    parent: a key, "" for the root. error: why it is one, "" if it is none. client: it calls somebody else.
    """

    key: str
    parent: str
    name: str
    start_ms: float
    end_ms: float
    attributes: Attributes = {}
    marks: tuple[Mark, ...] = ()
    links: tuple[Link, ...] = ()
    error: str = ""
    client: bool = False


def named(prefix: str, data: Mapping[str, Any], *names: str) -> Attributes:
    """The plain values among these, under their names with a prefix."""
    return {
        f"{prefix}.{name}": data[name]
        for name in names
        if isinstance(data.get(name), str | bool | int | float) and data[name] != ""
    }
