"""A small SQL-over-HTTP service with one SQLite file per namespace and service, and an audit trail of every write.

Why over HTTP: a database in the process under test could be neither cut off, nor delayed, nor watched. Why an audit
trail: the row as stored, written in the transaction of the write itself, is the only proof of what the database holds
that neither a client nor a crash can forge. Triggers note which rows a statement really changed, so the SQL is never
parsed: an upsert, a multi-row insert and an ``INSERT ... SELECT`` are all seen for what they did.
"""

import base64
import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

Truth = Callable[[str, str, dict[str, Any]], None]

AUDIT = "_audit"
"""The table of the audit trail inside each database file; clients can neither read nor change it."""

_DDL = {sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_DROP_TABLE, sqlite3.SQLITE_ALTER_TABLE}
_REFUSED = {sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH}
_REFUSED_PRAGMAS = {"writable_schema", "schema_version"}
_ERRORS = (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError)


class Execute(msgspec.Struct, frozen=True):
    """Body of ``execute``: one statement with positional or named parameters; bytes are ``{"base64": text}``."""

    sql: str
    params: list[Any] | dict[str, Any] = []


class Schema(msgspec.Struct, frozen=True):
    """Body of ``schema``: statements that are executed in one transaction."""

    statements: list[str]


class Entry(msgspec.Struct, frozen=True):
    """One line of the audit trail: an inserted row, or an UPDATE or DELETE of one table (then ``row`` is None).

    ``rowcount`` and ``lastrowid`` are those of the whole statement; ``row`` holds the columns as stored.
    """

    seq: int
    sql: str
    params: Any
    rowcount: int
    lastrowid: int | None
    table: str
    change: str
    row: dict[str, Any] | None


class Store:
    """One SQLite file. All methods raise what ``sqlite3`` raises and leave no transaction open."""

    def __init__(self, path: Path) -> None:
        self._changes: list[tuple[str, str, int]] = []
        self._guarded = self._schema_changed = False
        # No statement cache: a statement is authorized when it is prepared, and clients must not inherit ours.
        self._sqlite = sqlite3.connect(path, isolation_level=None, cached_statements=0)
        self._sqlite.execute("PRAGMA journal_mode=WAL")
        self._sqlite.execute("PRAGMA synchronous=OFF")  # survives the end of this process; only power loss could hurt
        columns = 'seq INTEGER PRIMARY KEY, sql, params, rowcount, lastrowid, "table", change, row'
        self._sqlite.execute(f"CREATE TABLE IF NOT EXISTS {AUDIT} ({columns})")
        self._sqlite.create_function("_changed", 3, lambda *change: self._changes.append(change))
        self._sqlite.set_authorizer(self._authorize)
        self._watch_tables()

    def close(self) -> None:
        self._sqlite.close()

    def execute(self, request: Execute) -> tuple[dict[str, Any], list[Entry]]:
        """Run one statement in a transaction of its own: the answer for the client, and the audit entries it made."""
        return self._transaction(lambda: self._statement(request))

    def schema(self, statements: list[str]) -> None:
        """Run statements without parameters in one transaction."""
        self._transaction(lambda: [self._statement(Execute(sql)) for sql in statements])

    def audit(self) -> list[Entry]:
        """The audit trail, oldest first."""
        cursor = self._sqlite.execute(f"SELECT * FROM {AUDIT} ORDER BY seq")
        names = [column[0] for column in cursor.description]
        lines = [dict(zip(names, line, strict=True)) for line in cursor]
        parsed = [line | {key: json.loads(line[key]) for key in ("params", "row")} for line in lines]
        return [Entry(**line) for line in parsed]

    def _transaction(self, body: Callable[[], Any]) -> Any:
        self._sqlite.execute("BEGIN IMMEDIATE")
        try:
            result = body()
            self._sqlite.execute("COMMIT")
        finally:
            self._guarded = False
            if self._sqlite.in_transaction:
                self._sqlite.execute("ROLLBACK")
        return result

    def _statement(self, request: Execute) -> tuple[dict[str, Any], list[Entry]]:
        self._changes.clear()
        params = request.params
        bound = {k: _bind(v) for k, v in params.items()} if isinstance(params, dict) else [_bind(v) for v in params]
        self._guarded, self._schema_changed = True, False
        cursor = self._sqlite.execute(request.sql, bound)
        rows = [[_plain(value) for value in row] for row in cursor.fetchall()]
        self._guarded = False
        if self._schema_changed:
            self._watch_tables()
        columns = [column[0] for column in cursor.description or ()]
        answer = {"columns": columns, "rows": rows, "rowcount": cursor.rowcount, "lastrowid": cursor.lastrowid}
        return answer, self._record(request, cursor.rowcount, cursor.lastrowid)

    def _record(self, request: Execute, rowcount: int, lastrowid: int | None) -> list[Entry]:
        """Write the audit entries of the statement that has just run: inserted rows first, then the other changes."""
        changes = [(table, change, rowid) for table, change, rowid in self._changes if change == "insert"]
        others = Counter((table, change) for table, change, _ in self._changes if change != "insert")
        entries = []
        for table, change, rowid in [*changes, *((*other, None) for other in others)]:
            row = None if rowid is None else self._row(table, rowid)
            values = (request.sql, json.dumps(request.params), rowcount, lastrowid, table, change, json.dumps(row))
            added = self._sqlite.execute(f"INSERT INTO {AUDIT} VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", values)
            seq = added.lastrowid or 0
            entries.append(Entry(seq, request.sql, request.params, rowcount, lastrowid, table, change, row))
        return entries

    def _row(self, table: str, rowid: int) -> dict[str, Any] | None:
        """The row as stored; None if the same statement replaced it again."""
        cursor = self._sqlite.execute(f"SELECT * FROM main.{_quoted(table)} WHERE rowid = ?", (rowid,))
        row = cursor.fetchone()
        return row and {column[0]: _plain(value) for column, value in zip(cursor.description, row, strict=True)}

    def _watch_tables(self) -> None:
        """Put the noting triggers on all tables anew: renamed ones would be noted under their old name.

        They are temporary, so that no client finds them in the schema. Raises ``sqlite3.OperationalError`` for a
        table WITHOUT ROWID, whose rows could not be read back.
        """
        for (name,) in self._sqlite.execute("SELECT name FROM temp.sqlite_master WHERE type = 'trigger'").fetchall():
            self._sqlite.execute(f"DROP TRIGGER temp.{_quoted(name)}")
        query = (
            "SELECT name FROM main.sqlite_master WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_' AND name <> ?"
        )
        for (table,) in self._sqlite.execute(query, (AUDIT,)).fetchall():
            self._sqlite.execute(f"SELECT rowid FROM main.{_quoted(table)} LIMIT 0")
            for change, version in (("insert", "NEW"), ("update", "NEW"), ("delete", "OLD")):
                trigger, literal = _quoted(f"{AUDIT}_{change}_{table}"), table.replace("'", "''")
                self._sqlite.execute(
                    f"CREATE TEMP TRIGGER {trigger} AFTER {change} ON main.{_quoted(table)} "
                    f"BEGIN SELECT _changed('{literal}', '{change}', {version}.rowid); END"
                )

    def _authorize(self, action: int, first: str | None, second: str | None, base: Any, inner: str | None) -> int:
        """SQLite asks this while it prepares a statement; only what clients send is restricted."""
        if not self._guarded:
            return sqlite3.SQLITE_OK
        self._schema_changed |= action in _DDL
        forged = action == sqlite3.SQLITE_FUNCTION and second == "_changed" and inner is None
        pragma = action == sqlite3.SQLITE_PRAGMA and (first or "").lower() in _REFUSED_PRAGMAS
        if action in _REFUSED or forged or pragma or (first or "").lower() == AUDIT:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK


class DatabaseService:
    """The databases of all trials of one worker, below a folder that is made when it is missing.

    POST ``/{ns}/{service}/execute`` ``{"sql", "params"}`` -> ``{"columns", "rows", "rowcount", "lastrowid"}``; POST
    ``/{ns}/{service}/schema`` ``{"statements"}`` -> ``{}``; GET ``/{ns}/{service}/audit`` -> ``{"entries": [...]}``.
    A refused statement is a 400 ``{"error": {"code", "message"}}`` with SQLite's error name as the code and changes
    nothing; a namespace that is not open is a 404. Each execute is a transaction; BEGIN, COMMIT, SAVEPOINT and ATTACH
    are refused. ``truth(namespace, "effect", {boundary, operation, service, table, change, row, sql, params,
    receipt})`` is called after the commit and before the answer: once per inserted row, once per table that an UPDATE
    or DELETE changed (``row`` is None). Rows inserted by ``schema`` are in the audit trail, but no effects.
    """

    def __init__(self, truth: Truth, folder: Path) -> None:
        self._truth = truth
        self._folder = folder
        self._made_folder = False
        self._stores: dict[str, dict[str, Store]] = {}
        self._runner: web.AppRunner | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen, and return the port (a free one for 0). Raises ``OSError`` when the port is taken."""
        self._made_folder = not self._folder.exists()
        self._folder.mkdir(parents=True, exist_ok=True)
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/{ns}/{service:[a-z0-9_-]+}/execute", self._execute)
        app.router.add_post("/{ns}/{service:[a-z0-9_-]+}/schema", self._schema)
        app.router.add_get("/{ns}/{service:[a-z0-9_-]+}/audit", self._audit)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Drop all clients and files, and free the port."""
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None
        for ns in list(self._stores):
            await self.close(ns)
        if self._made_folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def open(self, ns: str) -> None:
        """Start a namespace without any database."""
        await self.close(ns)
        (self._folder / ns).mkdir()
        self._stores[ns] = {}

    async def close(self, ns: str) -> list[str]:
        """Delete the namespace's files; returns the names of those that could not be deleted."""
        for store in self._stores.pop(ns, {}).values():
            store.close()
        shutil.rmtree(self._folder / ns, ignore_errors=True)
        return sorted(str(path.relative_to(self._folder)) for path in (self._folder / ns).rglob("*"))

    def _store(self, request: web.Request) -> Store:
        ns, service = request.match_info["ns"], request.match_info["service"]
        stores = self._stores.get(ns)
        if stores is None:
            error = {"error": {"code": "NOT_FOUND", "message": "no such database"}}
            raise web.HTTPNotFound(text=json.dumps(error), content_type="application/json")
        if service not in stores:
            stores[service] = Store(self._folder / ns / f"{service}.sqlite")
        return stores[service]

    async def _execute(self, request: web.Request) -> web.Response:
        body = await request.read()
        try:
            statement = msgspec.json.decode(body, type=Execute)
            answer, entries = self._store(request).execute(statement)
        except (*_ERRORS, msgspec.MsgspecError) as error:
            return _refused(error)
        ns, service = request.match_info["ns"], request.match_info["service"]
        for entry in entries:
            data: dict[str, Any] = {"boundary": "database", "operation": "execute", "service": service}
            data |= {
                "table": entry.table,
                "change": entry.change,
                "row": entry.row,
                "sql": entry.sql,
                "params": entry.params,
            }
            self._truth(ns, "effect", {**data, "receipt": f"{service}/{entry.seq}"})
        return _json(answer)

    async def _schema(self, request: web.Request) -> web.Response:
        body = await request.read()
        try:
            self._store(request).schema(msgspec.json.decode(body, type=Schema).statements)
        except (*_ERRORS, msgspec.MsgspecError) as error:
            return _refused(error)
        return _json({})

    async def _audit(self, request: web.Request) -> web.Response:
        return _json({"entries": self._store(request).audit()})


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def _refused(error: Exception) -> web.Response:
    """The answer to a statement that changed nothing."""
    others = {OverflowError: "DATA", UnicodeError: "DATA", sqlite3.Error: "PROGRAMMING", sqlite3.Warning: "PROGRAMMING"}
    fallback = next((code for kind, code in others.items() if isinstance(error, kind)), "REQUEST")
    code = getattr(error, "sqlite_errorname", fallback)
    return _json({"error": {"code": code, "message": str(error)}}, status=400)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _bind(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) and "base64" in value else value


def _plain(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
