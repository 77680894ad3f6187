"""How the judges of workloads recognise an effect: its natural keys, by boundary.

Keys are read from what the services hold (or from a call's payload) and never from how the agent composed it, so that
another spelling, another order or a batch is the same effect, and another subject is another one. Grammar of the keys:
transport `stream/type/subject` · database `service.table/business key` · registry `package==version` · provider
`metadata.ref` · repository `refs/heads/branch/Change-Ref` and `refs/tags/name` · hook `hook/path`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import sqlglot
from sqlglot import exp

from harness.core.types import Json

CHANGE_REF = re.compile(r"^Change-Ref:[ \t]*(\S+)[ \t]*$", re.MULTILINE)
"""The trailer of a commit that carries its business key."""


def natural_keys(effect: dict[str, Json]) -> tuple[str, ...]:
    """The keys that an effect carries, one per occurrence; none when it cannot be recognised."""
    return tuple(_READERS[effect["boundary"]](effect))


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _asked(effect: dict[str, Json]) -> dict[str, Json]:
    """What a boundary was asked for: the payload of a call, or the very fields of what a sink holds."""
    fields = effect.get("payload", effect)
    return fields if isinstance(fields, dict) else {}


def _transport(effect: dict[str, Json]) -> Iterator[str]:
    event, stream = _asked(effect).get("event"), effect.get("stream", effect.get("target"))
    if not isinstance(event, dict):
        return
    kind, data = event.get("type"), event.get("data")
    items = data.get("items") if isinstance(data, dict) else None
    batch = isinstance(kind, str) and kind.endswith(".batch") and isinstance(items, list)
    for item in items if batch and items else [event]:
        if isinstance(item, dict) and isinstance(item.get("type"), str) and isinstance(item.get("subject"), str):
            yield f"{stream}/{item['type']}/{item['subject']}"


def _database(effect: dict[str, Json]) -> Iterator[str]:
    if "payload" in effect:
        asked = _asked(effect)
        yield from _inserted(str(effect["target"]), str(asked.get("sql")), asked.get("params") or [])
    elif isinstance(effect.get("row"), dict):  # an UPDATE or a DELETE leaves no row
        refs = [value for column, value in effect["row"].items() if column.lower().endswith("_ref")]
        yield from (f"{effect['service']}.{effect['table'].lower()}/{ref}" for ref in refs[:1])


def _inserted(service: str, sql: str, params: list[Json] | dict[str, Json]) -> Iterator[str]:
    """The keys of the rows of an INSERT with a column list, in any order, by parameters or literals."""
    try:
        tree = sqlglot.parse_one(sql, dialect="sqlite")
    except sqlglot.errors.SqlglotError:
        return
    if not isinstance(tree, exp.Insert) or not isinstance(tree.this, exp.Schema):
        return
    source, columns = tree.expression, [column.name.lower() for column in tree.this.expressions]
    rows = source.expressions if isinstance(source, exp.Values) else [source]
    positional = iter(params if isinstance(params, list) else ())
    for row in rows:
        for column, cell in zip(columns, row.expressions, strict=False):
            marks = list(cell.find_all(exp.Placeholder))
            bound = [params.get(m.name) if isinstance(params, dict) else next(positional, None) for m in marks]
            plain = cell.unalias()
            value = bound[0] if isinstance(plain, exp.Placeholder) else plain.name
            if column.endswith("_ref") and isinstance(plain, exp.Placeholder | exp.Literal) and value is not None:
                yield f"{service}.{tree.this.this.name.lower()}/{value}"


def _registry(effect: dict[str, Json]) -> Iterator[str]:
    asked = _asked(effect)
    if isinstance(asked.get("package"), str) and isinstance(asked.get("version"), str):
        name = re.sub("[-_.]+", "-", asked["package"]).lower()  # as PEP 503 compares names
        yield f"{name}=={asked['version']}"


def _provider(effect: dict[str, Json]) -> Iterator[str]:
    metadata = _asked(effect).get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("ref"), str):
        yield metadata["ref"]


def _repository(effect: dict[str, Json]) -> Iterator[str]:
    """The reference, and for a branch the business key in the trailer of the commit that it was moved to."""
    asked = _asked(effect)
    ref = str(asked.get("ref"))
    if ref.startswith("refs/tags/"):
        yield ref
    elif ref.startswith("refs/heads/") and (change := CHANGE_REF.search(str(asked.get("message")))):
        yield f"{ref}/{change[1]}"


def _hook(effect: dict[str, Json]) -> Iterator[str]:
    path, hook = _asked(effect).get("path"), effect.get("hook", effect.get("target"))
    if isinstance(path, str):
        yield f"{hook}/{path}"


_READERS = {
    "transport": _transport,
    "database": _database,
    "registry": _registry,
    "provider": _provider,
    "repository": _repository,
    "hook": _hook,
}
