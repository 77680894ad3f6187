"""Asks a boundary's public read interface whether effects with the same business identity are there.

Why only the public interface: an arm must find out what any client could find out, over the same proxied network. What
identifies an effect is what its declaration names as the key, never an id that the harness gave it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from harness.core import payload
from harness.core.types import DeclaredEffect, EffectCall, Json, Probe
from harness.world.live import resp
from harness.world.live.upstream import NETWORK_ERRORS, Upstreams, ask_resp, session

CANNOT_TELL = Probe(count=None)

PAGE = 100
"""Stored completions asked for at once; the most that the protocol allows."""


class _Untold(Exception):
    """The boundary cannot tell."""


async def probe(
    call: EffectCall, declared: DeclaredEffect, upstreams: Upstreams, ns: str, *, timeout_s: float | None = None
) -> Probe:
    """How many effects with the business key of `call` its boundary holds; `count` None when it cannot tell.

    declared.key: dotted payload paths (transport `event.subject`, provider `metadata.ref` and `model`), or for the
    database `row.<column>`, the value that the INSERT gives to a column. The registry counts downloads per file and
    needs no key. The repository tells how a reference moved, and what the objects say that it went to: `ref` and
    `trailers.<name>`. receipts: in order. value: the result of the youngest, as `perform` would have returned it; None
    for the registry. timeout_s: real seconds for each request; None waits for ever.
    """
    ask = {
        "transport": _transport,
        "database": _database,
        "registry": _registry,
        "provider": _provider,
        "repository": _repository,
    }
    try:
        return await ask[call.boundary](call, declared.key, upstreams, ns, timeout_s)
    except (LookupError, ValueError, _Untold, *NETWORK_ERRORS):  # LookupError: a hook, or no such key
        return CANNOT_TELL


def _dig(value: Json, path: str) -> Json:
    """The value at a dotted path. Raises _Untold if there is none."""
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            raise _Untold
        value = value[part]
    return value


async def _transport(
    call: EffectCall, key: Sequence[str], upstreams: Upstreams, ns: str, timeout_s: float | None
) -> Probe:
    wanted = [_dig(call.payload, path) for path in key]
    if not wanted:
        raise _Untold
    command = resp.command("XRANGE", f"{ns}:{call.target}", "-", "+")
    entries = await ask_resp(upstreams.transport, command, timeout_s)
    if not isinstance(entries, list):
        raise _Untold
    found = [ident.decode() for ident, fields in entries if _has(fields, key, wanted)]
    return Probe(count=len(found), receipts=tuple(found), value=found[-1] if found else None)


def _has(fields: list[bytes], key: Sequence[str], wanted: list[Json]) -> bool:
    entry = {name.decode(errors="replace"): value for name, value in zip(fields[::2], fields[1::2], strict=True)}
    try:
        payload = {"event": json.loads(entry.get("event", b"null")), "fields": entry}
        return [_dig(payload, path) for path in key] == wanted
    except (ValueError, _Untold):
        return False


async def _registry(
    call: EffectCall, key: Sequence[str], upstreams: Upstreams, ns: str, timeout_s: float | None
) -> Probe:
    file = call.payload["file"]
    count = (await _get(f"{upstreams.base('registry')}/stats/{file}", {}, timeout_s))["downloads"]
    return Probe(count=count, receipts=(file,) * count)


async def _repository(
    call: EffectCall, key: Sequence[str], upstreams: Upstreams, ns: str, timeout_s: float | None
) -> Probe:
    """Moves of the reference, and not commits that it has: one push may bring several, or none that is new."""
    if "ref" not in key or not upstreams.repository:
        raise _Untold
    wanted, ref = payload.view(call), call.payload["ref"]
    url = f"{upstreams.base('repository')}/{call.target}/activity"
    moves = (await _get(url, {"ref": ref}, timeout_s))["moves"]
    views = [{"ref": ref, **move, "trailers": payload.trailers(move["message"])} for move in moves]
    found = [move for move, view in zip(moves, views, strict=True) if payload.same_key(view, wanted, key)]
    value = {"ref": ref, "old": found[-1]["old"], "new": found[-1]["new"]} if found else None
    return Probe(count=len(found), receipts=tuple(f"{ref}@{move['new']}" for move in found), value=value)


async def _provider(
    call: EffectCall, key: Sequence[str], upstreams: Upstreams, ns: str, timeout_s: float | None
) -> Probe:
    query = {"limit": str(PAGE)}
    for path in key:
        head, _, rest = path.partition(".")
        if path != "model" and (head != "metadata" or not rest):
            raise _Untold
        query[f"metadata[{rest}]" if rest else path] = str(_dig(call.payload, path))
    if len(query) == 1 or not call.payload.get("store"):  # what is not stored cannot be listed
        raise _Untold
    found: list[dict[str, Any]] = []
    while True:
        page = await _get(f"{upstreams.base('provider')}/v1/chat/completions", query, timeout_s)
        found += page["data"]
        if not page.get("has_more"):
            break
        query["after"] = page["data"][-1]["id"]
    if "model" in key:
        found = [one for one in found if one.get("model") == call.payload["model"]]
    return Probe(count=len(found), receipts=tuple(one["id"] for one in found), value=found[-1] if found else None)


async def _get(url: str, query: dict[str, str], timeout_s: float | None) -> dict[str, Any]:
    async with session(timeout_s) as client, client.get(url, params=query) as response:
        if response.status != 200:
            raise _Untold
        return await response.json()


# --- database -----------------------------------------------------------------------------------------------------

Value = tuple[str, tuple[Json, ...]]
"""A value of an INSERT: its SQL expression and the parameters in it, in order."""


class Insert(Struct, frozen=True):
    """What an INSERT writes: its table, the names of the columns (none when it does not say), and its rows."""

    table: str
    names: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


async def _database(
    call: EffectCall, key: Sequence[str], upstreams: Upstreams, ns: str, timeout_s: float | None
) -> Probe:
    """Every distinct row of the statement must be there; the scarcest one says how often the statement happened."""
    wanted = [path.removeprefix("row.").lower() for path in key if path.startswith("row.")]
    if not wanted or len(wanted) != len(key):
        raise _Untold
    insert = parse_insert(call.payload["sql"], call.payload["params"])
    table = '"' + insert.table.replace('"', '""') + '"'
    url = f"{upstreams.base('database')}/{call.target}/execute"
    columns = [name.lower() for name in (await _query(url, f"SELECT * FROM {table} LIMIT 0", (), timeout_s))["columns"]]
    wanted = [name for name in wanted if name in columns]  # a contract names the keys of all its tables
    if not wanted:
        raise _Untold
    named = [name.lower() for name in insert.names] or columns
    places = [named.index(name) for name in wanted]
    where = [tuple(row[place] for place in places) for row in insert.rows]
    scarcest = Probe(count=None)
    for values in dict.fromkeys(map(json.dumps, where)):
        matches = " AND ".join(
            f'"{name}" IS ({sql})' for name, (sql, _) in zip(wanted, json.loads(values), strict=True)
        )
        params = [param for _, bound in json.loads(values) for param in bound]
        sql = f"SELECT rowid FROM {table} WHERE {matches} ORDER BY rowid"
        ids = [row[0] for row in (await _query(url, sql, params, timeout_s))["rows"]]
        times = len(ids) // list(map(json.dumps, where)).count(values)
        if scarcest.count is None or times < scarcest.count:
            written: Json = {"columns": [], "rows": [], "rowcount": len(where), "lastrowid": ids[-1] if ids else None}
            receipts = tuple(f"{call.target}/{ident}" for ident in ids[:times])
            scarcest = Probe(count=times, receipts=receipts, value=written if times else None)
    return scarcest


async def _query(url: str, sql: str, params: Sequence[Json], timeout_s: float | None) -> dict[str, Any]:
    body = {"sql": sql, "params": list(params)}
    async with session(timeout_s) as client, client.post(url, json=body) as response:
        if response.status != 200:
            raise _Untold
        return await response.json()


def parse_insert(sql: str, params: Any) -> Insert:
    """What an INSERT writes, with its parameters dealt out to the values that they belong to.

    The values stay SQL expressions, to be compared by the database itself: so every spelling of a value finds what it
    was stored as. Understands lists of VALUES and SELECT without FROM, and `?` and `:name`. Raises _Untold for any
    other statement.
    """
    import sqlglot  # only when a probe needs it: 0.1 s
    from sqlglot import exp

    try:
        insert = sqlglot.parse_one(sql, dialect="sqlite")
    except sqlglot.errors.SqlglotError as error:
        raise _Untold from error
    if not isinstance(insert, exp.Insert) or insert.args.get("with_"):
        raise _Untold
    source = insert.expression
    if isinstance(source, exp.Values):
        tuples = [one.expressions for one in source.expressions]
    elif isinstance(source, exp.Select) and not source.args.get("from_"):
        tuples = [[one.unalias() for one in source.expressions]]
    else:
        raise _Untold
    position = iter(params if isinstance(params, list) else ())

    def value(node: exp.Expression) -> Value:
        marks = list(node.find_all(exp.Placeholder, bfs=False))
        bound = tuple(params[mark.this] if mark.this else next(position) for mark in marks)
        plain = node.transform(lambda part: exp.Placeholder() if isinstance(part, exp.Placeholder) else part)
        return plain.sql(dialect="sqlite"), bound

    target = insert.this
    names = tuple(column.name for column in target.expressions) if isinstance(target, exp.Schema) else ()
    table = target.this.name if isinstance(target, exp.Schema) else target.name
    return Insert(table, names, tuple(tuple(map(value, one)) for one in tuples))
