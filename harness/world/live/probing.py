"""Asks a boundary's public read interface whether effects with the same business identity are there.

Why only the public interface: an arm must find out what any client could find out, over the same proxied network. What
identifies an effect is what its declaration names as the key, never an id that the harness gave it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from harness.core.types import DeclaredEffect, EffectCall, Json, Probe
from harness.world.live import resp
from harness.world.live.upstream import NETWORK_ERRORS, Refusal, Upstreams, ask_resp, session

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
    needs no key. receipts: in order. value: the result of the youngest, as `perform` would have returned it; None for
    the registry. timeout_s: real seconds for each request; None waits for ever.
    """
    ask = {"transport": _transport, "database": _database, "registry": _registry, "provider": _provider}
    try:
        return await ask[call.boundary](call, declared.key, upstreams, ns, timeout_s)
    except (KeyError, _Untold, Refusal, *NETWORK_ERRORS):  # KeyError: a hook, or a payload without the key
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


class InsertedRow(Struct, frozen=True):
    """A row that an INSERT writes: for each column its SQL expression and the parameters in it, in order."""

    table: str
    columns: dict[str, tuple[str, tuple[Json, ...]]]


async def _database(
    call: EffectCall, key: Sequence[str], upstreams: Upstreams, ns: str, timeout_s: float | None
) -> Probe:
    """Every distinct row of the statement must be there; the scarcest one says how often the statement happened."""
    names = [path.removeprefix("row.") for path in key if path.startswith("row.")]
    if not names or len(names) != len(key):
        raise _Untold
    url = f"{upstreams.base('database')}/{call.target}/execute"
    rows = inserted_rows(call.payload["sql"], call.payload["params"])
    if rows and not rows[0].columns:
        raise _Untold
    asked = [_lookup(row, names) for row in rows]
    scarcest: Probe | None = None
    for query in {json.dumps(one): one for one in asked}.values():
        ids = [row[0] for row in (await _post(url, query, timeout_s))["rows"]]
        times = len(ids) // asked.count(query)
        if scarcest is None or times < (scarcest.count or 0):
            receipts = tuple(f"{call.target}/{ident}" for ident in ids[:times])
            written = {"columns": [], "rows": [], "rowcount": len(rows), "lastrowid": ids[-1] if ids else None}
            scarcest = Probe(count=times, receipts=receipts, value=written if times else None)
    return scarcest or CANNOT_TELL


async def _post(url: str, query: dict[str, Json], timeout_s: float | None) -> dict[str, Any]:
    async with session(timeout_s) as client, client.post(url, json=query) as response:
        if response.status != 200:
            raise _Untold
        return await response.json()


def _lookup(row: InsertedRow, names: list[str]) -> dict[str, Json]:
    """The query for rows that hold the same values in the named columns. The expressions are compared by the database
    itself, so that any spelling of a value finds what it was stored as."""
    columns = {name.lower(): value for name, value in row.columns.items()}
    found = [columns[name.lower()] for name in names]
    where = " AND ".join(f'"{name}" IS ({sql})' for name, (sql, _) in zip(names, found, strict=True))
    params = [value for _, values in found for value in values]
    return {"sql": f'SELECT rowid FROM "{row.table}" WHERE {where} ORDER BY rowid', "params": params}


def inserted_rows(sql: str, params: Any) -> list[InsertedRow]:
    """The rows that an INSERT writes, in order, with a named column for each value.

    Understands VALUES lists and SELECT without FROM, parameters by position or by name. Raises _Untold for any other
    statement. Positional parameters are dealt out in the order of the text, by their number in it.
    """
    import sqlglot  # only when a probe needs it: 0.1 s
    from sqlglot import exp

    try:
        insert = sqlglot.parse_one(sql, dialect="sqlite")
    except sqlglot.errors.SqlglotError as error:
        raise _Untold from error
    if not isinstance(insert, exp.Insert):
        raise _Untold
    schema, source = insert.this, insert.expression
    names = [column.name for column in schema.expressions] if isinstance(schema, exp.Schema) else []
    if isinstance(source, exp.Values):
        tuples = [list(one.expressions) if isinstance(one, exp.Tuple) else [one] for one in source.expressions]
    elif isinstance(source, exp.Select) and not source.args.get("from_"):
        tuples = [[one.unalias() for one in source.expressions]]
    else:
        raise _Untold
    position = 0
    rows = []
    for values in tuples:
        if len(values) != len(names):
            raise _Untold
        columns: dict[str, tuple[str, tuple[Json, ...]]] = {}
        for name, value in zip(names, values, strict=True):
            bound: list[Json] = []
            for mark in value.find_all(exp.Placeholder, bfs=False):
                if mark.name:
                    bound.append(params[mark.name])
                    mark.replace(exp.Placeholder())
                else:
                    bound.append(params[position])
                    position += 1
            columns[name] = (value.sql(dialect="sqlite"), tuple(bound))
        rows.append(InsertedRow(schema.this.name, columns))
    return rows
