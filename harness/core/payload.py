"""Reading an effect's payload by dotted path, equal in both worlds and in what a probe compares."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import sqlglot
from sqlglot import exp

from harness.core.types import EffectCall, Json


def rows_of(sql: str, params: Sequence[Json]) -> tuple[str, list[dict[str, Json]]] | None:
    """Table and rows of an INSERT of plain values, whatever its spelling; None for anything else.

    Plain: a VALUES list of literals and `?`, with a list of just as many parameters. What is only half understood would
    let two different rows look alike, so it is left as it is.
    """
    shape = _shape(sql)
    if shape is None or not isinstance(params, list | tuple):
        return None
    table, columns, rows = shape
    if sum(v is _MARK for row in rows for v in row) != len(params):
        return None
    values = iter(params)
    return table, [{c: next(values) if v is _MARK else v for c, v in zip(columns, r, strict=True)} for r in rows]


_MARK = object()


@functools.lru_cache(maxsize=4096)
def _shape(sql: str) -> tuple[str, tuple[str, ...], tuple[tuple[Json, ...], ...]] | None:
    try:
        tree = sqlglot.parse_one(sql, dialect="sqlite")
    except sqlglot.errors.SqlglotError:
        return None
    if not isinstance(tree, exp.Insert) or not isinstance(tree.this, exp.Schema):
        return None
    if not isinstance(tree.expression, exp.Values):
        return None
    columns = tuple(column.name for column in tree.this.expressions)
    try:
        rows = tuple(tuple(_value(item) for item in row.expressions) for row in tree.expression.expressions)
    except ValueError:
        return None
    return (tree.this.this.name, columns, rows) if all(len(row) == len(columns) for row in rows) else None


def _value(item: exp.Expression) -> Json:
    """A literal's value or the mark of a parameter; raises ValueError for an expression."""
    if isinstance(item, exp.Placeholder) and not item.this:
        return _MARK
    if isinstance(item, exp.Null):
        return None
    if isinstance(item, exp.Neg) and isinstance(item.this, exp.Literal) and not item.this.is_string:
        return -_value(item.this)
    if isinstance(item, exp.Literal):
        return item.this if item.is_string else (int(item.this) if item.this.isdigit() else float(item.this))
    raise ValueError(f"not a plain value: {item}")


def view(call: EffectCall) -> dict[str, Json]:
    """The payload as keys and volatile paths address it: of an INSERT, its first row under `row`; of an update at a
    repository, the trailers of its message under `trailers`."""
    if call.boundary == "repository":
        return {**call.payload, "trailers": trailers(str(call.payload.get("message", "")))}
    if call.boundary != "database":
        return call.payload
    parsed = rows_of(call.payload["sql"], call.payload.get("params") or [])
    if parsed is None:
        return call.payload
    table, rows = parsed
    return {"table": table, "row": rows[0] if rows else {}, "rows": rows}


def trailers(message: str) -> dict[str, Json]:
    """The trailers of a commit's or tag's message, `Name: value` lines that are its last paragraph; the last of a name
    counts. Source: git-interpret-trailers, in its strict form."""
    head, _, last = message.rstrip().rpartition("\n\n")
    lines = [line.partition(":") for line in last.splitlines()] if head else []
    if not all(colon and name and not name.count(" ") for name, colon, _ in lines):
        return {}
    return {name: value.strip() for name, _, value in lines}


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
