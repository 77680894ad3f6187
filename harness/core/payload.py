"""Reading an effect's payload by dotted path, equal in both worlds and in what a probe compares."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import sqlglot
from sqlglot import exp

from harness.core.types import EffectCall, Json


def rows_of(sql: str, params: Sequence[Json]) -> tuple[str, list[dict[str, Json]]] | None:
    """Table and rows of an INSERT, whatever its spelling; None for any other statement or one that cannot be read."""
    shape = _shape(sql)
    if shape is None:
        return None
    table, columns, rows = shape
    values = iter(params)
    return table, [{c: next(values, None) if v is _MARK else v for c, v in zip(columns, r, strict=False)} for r in rows]


_MARK = object()


@functools.lru_cache(maxsize=4096)
def _shape(sql: str) -> tuple[str, tuple[str, ...], tuple[tuple[Json, ...], ...]] | None:
    try:
        tree = sqlglot.parse_one(sql, dialect="sqlite")
    except sqlglot.errors.SqlglotError:
        return None
    if not isinstance(tree, exp.Insert) or not isinstance(tree.this, exp.Schema):
        return None
    columns = tuple(column.name for column in tree.this.expressions)
    rows = tuple(
        tuple(_value(item) for item in row.expressions)
        for row in (tree.expression.expressions if isinstance(tree.expression, exp.Values) else [])
    )
    return tree.this.this.name, columns, rows


def _value(item: exp.Expression) -> Json:
    if isinstance(item, exp.Placeholder):
        return _MARK
    if isinstance(item, exp.Literal):
        return item.this if item.is_string else (float(item.this) if "." in item.this else int(item.this))
    return item.sql()


def view(call: EffectCall) -> dict[str, Json]:
    """The payload as keys and volatile paths address it: of an INSERT, its first row under `row`."""
    if call.boundary != "database":
        return call.payload
    parsed = rows_of(call.payload["sql"], call.payload.get("params") or [])
    if parsed is None:
        return call.payload
    table, rows = parsed
    return {"table": table, "row": rows[0] if rows else {}, "rows": rows}


def at(payload: Mapping[str, Json], path: str) -> Json:
    """The value at a dotted path, or None."""
    value: Json = payload
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def same_key(a: Mapping[str, Json], b: Mapping[str, Json], paths: Sequence[str]) -> bool:
    """Whether two payloads carry the same business key: at least one path is there, and all agree."""
    pairs = [(at(a, p), at(b, p)) for p in paths]
    return any(x is not None for x, _ in pairs) and all(x == y for x, y in pairs)
