"""A PEP 249 client for the SQL-over-HTTP service, as services under test use it: ``import sqlhttp``.

Why a file of its own without imports of ours: it is handed to those services as an ordinary client library, so only
the standard library may be used.

* ``connect("http://host:port/{namespace}/{service}")``; ``paramstyle`` is ``qmark``, ``threadsafety`` 1.
* Autocommit: every ``execute`` is a transaction of its own, which is committed when ``execute`` returns. ``commit``
  therefore does nothing and ``rollback`` raises ``NotSupportedError``, since there is nothing left to roll back.
* A statement is sent once. When the connection fails during a call, ``OperationalError`` is raised and nobody knows
  whether the statement took effect; the next call connects anew.
* Values: None, bool, int, float, str, bytes; date and datetime go out as ISO 8601 text.

Errors: the hierarchy of PEP 249. ``DatabaseError.code`` is the service's error code, e.g. ``SQLITE_CONSTRAINT_UNIQUE``.
"""

import base64
import datetime
import http.client
import json
import select
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"


class Warning(Exception):
    """Required by PEP 249; never raised."""


class Error(Exception):
    """Anything that this module raises; ``code`` names the cause."""

    def __init__(self, message: str = "", code: str = "") -> None:
        super().__init__(message)
        self.code = code


class InterfaceError(Error):
    """Wrong use of this client: a closed cursor, a value that has no SQL form."""


class DatabaseError(Error):
    """The service refused a statement, or its answer never came."""


class DataError(DatabaseError):
    """A value out of range or of the wrong type."""


class OperationalError(DatabaseError):
    """The connection failed, or the database is locked, full or out of reach."""


class IntegrityError(DatabaseError):
    """A constraint would be violated."""


class InternalError(DatabaseError):
    """The database is damaged."""


class ProgrammingError(DatabaseError):
    """Wrong SQL, an unknown table, a wrong number of parameters."""


class NotSupportedError(DatabaseError):
    """Something that the service does not do, such as a rollback."""


_BY_CODE = (
    ("SQLITE_CONSTRAINT", IntegrityError),
    ("SQLITE_MISMATCH", DataError),
    ("SQLITE_TOOBIG", DataError),
    ("SQLITE_CORRUPT", InternalError),
    ("SQLITE_NOTADB", InternalError),
    ("SQLITE_ERROR", ProgrammingError),
    ("SQLITE_AUTH", NotSupportedError),
    ("PROGRAMMING", ProgrammingError),
    ("DATA", DataError),
)


def connect(url: str, timeout: float | None = None) -> "Connection":
    """A connection to one service's database; nothing is sent before the first statement.

    ``timeout`` in seconds bounds each wait for the network (None: for ever); after it comes ``OperationalError``.
    """
    return Connection(url, timeout)


class Connection:
    """One keep-alive HTTP connection. ``with`` closes it at the end."""

    def __init__(self, url: str, timeout: float | None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise InterfaceError(f"not an http URL: {url!r}")
        self._http = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=timeout)
        self._path = parts.path.rstrip("/")
        self._closed = False

    def cursor(self) -> "Cursor":
        return Cursor(self)

    def execute(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> "Cursor":
        """A new cursor on which the statement was executed."""
        return self.cursor().execute(sql, params)

    def commit(self) -> None:
        """Nothing: every statement is committed already."""

    def rollback(self) -> None:
        raise NotSupportedError("every statement is a transaction of its own")

    def close(self) -> None:
        self._closed = True
        self._http.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _request(self, sql: str, params: Any) -> dict[str, Any]:
        if self._closed:
            raise InterfaceError("the connection is closed")
        named = isinstance(params, Mapping)
        sent = {name: _outgoing(params[name]) for name in params} if named else [_outgoing(value) for value in params]
        body = json.dumps({"sql": sql, "params": sent}).encode()
        if self._http.sock is not None and select.select([self._http.sock], [], [], 0)[0]:
            self._http.close()  # the server hung up while we were idle: nothing is in flight, so reconnecting is safe
        try:
            self._http.request("POST", f"{self._path}/execute", body, {"Content-Type": "application/json"})
            response = self._http.getresponse()
            answer = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._http.close()
            raise OperationalError(f"connection failed: {error or type(error).__name__}", "CONNECTION") from error
        if response.status != 200:
            raise _error(answer)
        return answer


class Cursor:
    """The result of one statement at a time, as PEP 249 wants it; ``description`` holds names only."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.description: tuple[tuple[Any, ...], ...] | None = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self._rows: Iterator[tuple[Any, ...]] | None = None
        self._closed = False

    def execute(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> "Cursor":
        """Run and commit one statement. ``rowcount`` is -1 unless it wrote; returns the cursor itself."""
        if self._closed:
            raise InterfaceError("the cursor is closed")
        answer = self.connection._request(sql, params)
        columns = answer["columns"]
        self.description = tuple((name, *[None] * 6) for name in columns) if columns else None
        self.rowcount, self.lastrowid = answer["rowcount"], answer["lastrowid"]
        self._rows = iter([tuple(map(_incoming, row)) for row in answer["rows"]]) if columns else None
        return self

    def executemany(self, sql: str, seq_of_params: Iterable[Sequence[Any] | Mapping[str, Any]]) -> "Cursor":
        """Execute once per element, each in its own transaction: a failure keeps what came before it."""
        total = 0
        for params in seq_of_params:
            self.execute(sql, params)
            total += max(self.rowcount, 0)
        self.rowcount = total
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(self, None)

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        wanted = self.arraysize if size is None else size
        return [row for _, row in zip(range(wanted), self, strict=False)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self)

    def __iter__(self) -> "Cursor":
        return self

    def __next__(self) -> tuple[Any, ...]:
        if self._rows is None:
            raise InterfaceError("no statement that returns rows was executed")
        return next(self._rows)

    def close(self) -> None:
        self._closed, self._rows = True, None

    def setinputsizes(self, sizes: object) -> None:
        """Nothing; required by PEP 249."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Nothing; required by PEP 249."""


def _error(answer: dict[str, Any]) -> Error:
    """The exception for an error answer; OperationalError for a code that is not known here."""
    detail = answer.get("error", {})
    code, message = detail.get("code", ""), detail.get("message", "the service refused the statement")
    kind = next((kind for prefix, kind in _BY_CODE if code.startswith(prefix)), OperationalError)
    return kind(message, code)


def _outgoing(value: Any) -> Any:
    """A parameter as JSON; bytes travel as ``{"base64": text}``."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    raise InterfaceError(f"a {type(value).__name__} has no SQL form")


def _incoming(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


# The type objects and constructors that PEP 249 names. Columns of SQLite have no type, so nothing is equal to these.
Date, Time, Timestamp, Binary = datetime.date, datetime.time, datetime.datetime, bytes
STRING, BINARY, NUMBER, DATETIME, ROWID = "STRING", "BINARY", "NUMBER", "DATETIME", "ROWID"


def DateFromTicks(ticks: float) -> datetime.date:
    return datetime.date.fromtimestamp(ticks)


def TimeFromTicks(ticks: float) -> datetime.time:
    return datetime.datetime.fromtimestamp(ticks).time()


def TimestampFromTicks(ticks: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ticks)
