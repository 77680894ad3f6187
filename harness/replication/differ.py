"""Where two files or two values differ, in words a person can act on: the key, the line or the byte.

"The file differs" sends a reader to a diff of a megabyte; the first key that differs mostly says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

import msgspec

SHOWN_MAX = 3
EXCERPT_CHARACTERS = 40
SAME_TO = 1e-9
TEXT = (".csv", ".md", ".html", ".svg", ".tex", ".txt")


class Leaf(msgspec.Struct, frozen=True):
    """One place where two values differ: dotted path, and what stands there in either (ABSENT: nothing)."""

    path: str
    first: Any
    second: Any


ABSENT = "(absent)"


def leaves(first: Any, second: Any, path: str = "") -> Iterator[Leaf]:
    """All places where two decoded JSON values differ, in the order of the first."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for key in dict.fromkeys((*first, *second)):
            yield from leaves(first.get(key, ABSENT), second.get(key, ABSENT), f"{path}.{key}" if path else str(key))
    elif isinstance(first, list) and isinstance(second, list):
        for i, (one, other) in enumerate(zip_longest(first, second, fillvalue=ABSENT)):
            yield from leaves(one, other, f"{path}[{i}]")
    elif first != second or type(first) is not type(second):
        yield Leaf(path, first, second)


def file_difference(name: str, held: bytes, made: bytes) -> str:
    """How the file `name` that is held differs from the one that was made; empty where all bytes are equal."""
    if held == made:
        return ""
    if name.endswith(".json"):
        return _json(held, made)
    if name.endswith((".jsonl", *TEXT)):
        return _lines(held, made, name.endswith(".jsonl"))
    at = next((i for i, (a, b) in enumerate(zip(held, made, strict=False)) if a != b), min(len(held), len(made)))
    return f"differs from byte {at} on ({len(held)} bytes, made again {len(made)})"


def said(found: list[Leaf]) -> str:
    """The first of the places that differ, and how many there are."""
    parts = [f"{one.path or 'the value'} is {_short(one.first)}, made again {_short(one.second)}" for one in found]
    more = f"; {len(found) - SHOWN_MAX} more keys differ" if len(found) > SHOWN_MAX else ""
    rounding = "; all of them are numbers that differ by rounding alone" if all(map(_rounding, found)) else ""
    return "; ".join(parts[:SHOWN_MAX]) + more + rounding


def _json(held: bytes, made: bytes) -> str:
    try:
        found = list(leaves(msgspec.json.decode(held), msgspec.json.decode(made)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return f"is no JSON, or another text: {_texts(held, made)}"
    return said(found) if found else "has the same values in another layout"


def _lines(held: bytes, made: bytes, is_json: bool) -> str:
    pairs = zip_longest(held.split(b"\n"), made.split(b"\n"), fillvalue=b"")
    number, (one, other) = next((n, pair) for n, pair in enumerate(pairs, start=1) if pair[0] != pair[1])
    if is_json and one and other:
        return f"line {number}: {_json(one, other)}"
    return f"line {number}: {_texts(one, other)}"


def _texts(held: bytes, made: bytes) -> str:
    at = next((i for i, (a, b) in enumerate(zip(held, made, strict=False)) if a != b), min(len(held), len(made)))
    start = max(0, at - EXCERPT_CHARACTERS // 2)
    shown = [repr(text[start : start + EXCERPT_CHARACTERS].decode(errors="replace")) for text in (held, made)]
    return f"{shown[0]}, made again {shown[1]}"


def _short(value: Any) -> str:
    text = value if value == ABSENT else msgspec.json.encode(value).decode()
    return text if len(text) <= EXCERPT_CHARACTERS else text[:EXCERPT_CHARACTERS] + "..."


def _rounding(leaf: Leaf) -> bool:
    numbers = [v for v in (leaf.first, leaf.second) if isinstance(v, int | float) and not isinstance(v, bool)]
    return len(numbers) == 2 and math.isclose(*numbers, rel_tol=SAME_TO)
