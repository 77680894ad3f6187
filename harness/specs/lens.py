"""Patterns made ready: which events one means, and the values of its fields as keys.

Why made into Python source: each event of each trial passes through here, and a comprehension that reads the fields in
place takes a fifth of the time of functions that call each other. Names and values of a specification get into the
source as literals or by reference only.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from harness.core.records import Event
from harness.core.types import Json
from harness.specs.language import Pattern, Related

Calls = Mapping[Any, Event]
Place = tuple[int, Event]
"""An event and its position in its own log."""

Select = Callable[[list[Place], Calls], list[Place]]
Keys = Callable[[list[Place], Calls], list[Any]]

_SITE = ("delegation", "phase", "seam", "name")
_ANSWER = ("call_id", "result", "verdict", "code", "definite", "receipt", "passed", "because")

_CONDITIONS = {
    "not": "{value} != {limit}",
    "not_in": "{value} not in {limit}",
    "least": "(it := {value}) is not None and it >= {limit}",
    "most": "(it := {value}) is not None and it <= {limit}",
    "below": "(it := {value}) is not None and it < {limit}",
    "above": "(it := {value}) is not None and it > {limit}",
    "has": "{limit} in ({value} or ())",
    "known": "({value} is not None) is {limit}",
}


class Lens:
    """A pattern made ready. Equal patterns have equal names, and share what was found."""

    def __init__(self, pattern: Pattern | Related) -> None:
        self.kinds: tuple[str, ...] = (pattern.event,) if isinstance(pattern.event, str) else pattern.event
        self.name = msgspec.json.encode([self.kinds, pattern.where], order="sorted").decode()
        self._keys: dict[tuple[str, ...], Keys] = {}
        self._selects = [(kind, _select(kind, pattern.where)) for kind in self.kinds]

    def select(self, kinds: Mapping[str, list[Place]], calls: Calls) -> list[Place]:
        """The events that the pattern means, in the order of their log."""
        if len(self._selects) == 1:
            ((kind, select),) = self._selects
            return select(kinds[kind], calls)
        found = (place for kind, select in self._selects for place in select(kinds[kind], calls))
        return sorted(found, key=operator.itemgetter(0))

    def keys(self, fields: tuple[str, ...]) -> Keys:
        """Reads the fields of events: the value of a single field, else a tuple of them."""
        if fields not in self._keys:
            self._keys[fields] = self._reader(fields)
        return self._keys[fields]

    def _reader(self, fields: tuple[str, ...]) -> Keys:
        each = {kind.partition("/")[0]: _keys(kind, fields) for kind in self.kinds}
        if len(set(each.values())) == 1:  # the same source, and so the same function
            return next(iter(each.values()))
        return lambda places, calls: [each[place[1].kind]([place], calls)[0] for place in places]


def hashable(key: Any) -> Any:
    """The key itself, or its text where it holds lists or mappings."""
    try:
        hash(key)
    except TypeError:
        return msgspec.json.encode(key, order="sorted")
    return key


def _select(kind: str, where: Mapping[str, Json]) -> Select:
    if not where:
        return lambda places, calls: places
    limits: list[Json] = []
    tests = []
    for field, wanted in where.items():
        asked = wanted if isinstance(wanted, dict) else {"": wanted}
        for condition, limit in asked.items():
            value, named = _read(kind, field), f"limits[{len(limits)}]"
            limits.append(limit)
            plain = "{value} in {limit}" if isinstance(limit, list) else "{value} == {limit}"
            tests.append(f"({_CONDITIONS.get(condition, plain).format(value=value, limit=named)})")
    source = f"[place for place in places for event in (place[1],) if {' and '.join(tests)}]"
    return _compiled(source, limits=limits)


def _keys(kind: str, fields: tuple[str, ...]) -> Keys:
    values = [_read(kind, field) for field in fields]
    key = values[0] if len(values) == 1 else f"({', '.join(values)}{',' if values else ''})"
    return _keys_of(f"[{key} for _, event in places]")


@functools.lru_cache(maxsize=1024)
def _keys_of(source: str) -> Keys:
    return _compiled(source)


def _read(kind: str, field: str) -> str:
    """The source that reads a field of `event`; None where it is missing."""
    kind = kind.partition("/")[0]
    if field in ("@epoch", "@at_ms"):
        return f"event.{field[1:]}"
    if kind == "call" and field in _SITE:
        return f"event.data.get('site', nothing).get({field!r})"
    if kind == "outcome" and field not in _ANSWER:
        return f"behind(event, calls, {field!r})"
    return f"event.data.get({field!r})"


def _behind(event: Event, calls: Calls, field: str) -> Any:
    """A field of the call that an outcome answers."""
    call = calls.get(event.data.get("call_id"))
    if call is None:
        return None
    return call.data.get("site", {}).get(field) if field in _SITE else call.data.get(field)


def _compiled(source: str, **values: Any) -> Callable[[list[Place], Calls], Any]:
    made: Callable[[list[Place], Calls], Any] = eval(
        f"lambda places, calls: {source}", {"behind": _behind, "nothing": {}, **values}
    )
    return made
