"""Canonical form of an effect: what stays equal when the same effect is spelt again.

Two sources decide what is volatile: the delegation's declaration (paths), and control-plane rules for every tool of a
kind (shapes of values and usual names of bookkeeping fields), since a declaration written by a person misses some.
The rules know nothing of any workload.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from arms.mesh.control import strict
from harness.core.types import Json


class Rules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Versioned canonicalization rules. shapes: regular expressions of volatile values; names: field names that are
    bookkeeping wherever they stand; epoch_ms: numbers in this range are points in time."""

    version: int
    shapes: tuple[str, ...]
    names: tuple[str, ...]
    epoch_ms: tuple[int, int]


FILE = Path(__file__).with_name("canonicalization.yaml")
RULES = strict.load(FILE, Rules)
for _number, _shape in enumerate(RULES.shapes):
    strict.pattern(_shape, FILE, f"shapes[{_number}]")  # each alone: together nobody could tell which is wrong
_SHAPES = strict.pattern("|".join(f"(?:{shape})" for shape in RULES.shapes), FILE, "shapes")
_NAMES = frozenset(RULES.names)


def fingerprint(text: str) -> str:
    """Content address of a canonical text."""
    return hashlib.sha256(text.encode()).hexdigest()


def strip(value: Json, volatile: Iterable[str] = ()) -> Json:
    """A JSON value without its volatile parts. volatile: dotted paths; `row.x` also stands for every row."""
    paths = frozenset(volatile) | {p.replace("row.", "rows.", 1) for p in volatile if p.startswith("row.")}
    return _strip(value, "", paths)


def _strip(value: Json, path: str, volatile: frozenset[str]) -> Json:
    if isinstance(value, Mapping):
        kept = {}
        for key, item in value.items():
            inner = f"{path}.{key}" if path else key
            if inner not in volatile and key.lower() not in _NAMES and not _is_volatile(item):
                kept[key] = _strip(item, inner, volatile)
        return kept
    if isinstance(value, list):
        return [_strip(item, path, volatile) for item in value if not _is_volatile(item)]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _is_volatile(value: Json) -> bool:
    if isinstance(value, str):
        return _SHAPES.fullmatch(value) is not None
    low, high = RULES.epoch_ms
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def leaf_texts(value: Json) -> list[str]:
    """Every leaf of a JSON value as text, in order; keys are left out."""
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in leaf_texts(item)]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in leaf_texts(item)]
    return [str(value)]
