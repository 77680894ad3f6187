"""Asks the store: one read-only SELECT over one run or several, its answer in four formats, its errors in one line.

Why only one SELECT: what a query says of a run must be found again by whoever asks the same, so no query may leave
anything behind, read another file or reach the network.
"""

from __future__ import annotations

import csv
import difflib
import io
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import msgspec
from msgspec import Struct

from harness.core.errors import ConfigError
from harness.query.build import MEMORY
from harness.query.schema import BY_NAME, TABLES

FORMATS = ("table", "csv", "json", "markdown")
CHUNK = 2048
CELL_CHARACTERS_MAX = 60
"""Longest cell of the two formats that people read; scripts get all of it."""


class Answer(Struct, frozen=True):
    """columns, and rows in chunks that are read as they are needed."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


class Source(Struct, frozen=True):
    """A run under the name that its rows carry in the column `run`."""

    name: str
    store: Path


def sources(runs: Sequence[Path], stores: Sequence[Path]) -> tuple[Source, ...]:
    """Runs by the names of their folders, or by their paths where two folders have one name. Raises ConfigError for a
    run that is named twice, whose trials would count twice."""
    if twice := [run for run in runs if [other.resolve() for other in runs].count(run.resolve()) > 1]:
        raise ConfigError("the run is named twice", where=str(twice[-1]), hint="name each run once")
    names = [run.resolve().name for run in runs]
    shown = names if len(set(names)) == len(names) else [str(run) for run in runs]
    return tuple(Source(name, store) for name, store in zip(shown, stores, strict=True))


def ask(held: Sequence[Source], sql: str) -> Answer:
    """The answer to one SELECT over these runs.

    Raises ConfigError, in one line with the nearest names, when the SQL is wrong or is no single SELECT.
    """
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise ConfigError("the query is not UTF-8 text", where="query") from error
    con = _connect(held)
    try:
        statements = duckdb.extract_statements(sql)
        if len(statements) != 1 or statements[0].type not in (
            duckdb.StatementType.SELECT,
            duckdb.StatementType.EXPLAIN,
        ):
            raise ConfigError("a query is one SELECT", where="query", hint="tables: agentmesh query RUN --schema")
        con.execute(sql)
        columns = tuple(column[0] for column in con.description or ())
    except duckdb.Error as error:
        raise _explained(error) from error
    return Answer(columns, _rows(con))


def unscored(held: Sequence[Source]) -> list[str]:
    """What is missing because the oracle was not asked, or was asked by an earlier version; a sentence for each run."""
    con = _connect(held)
    said = []
    for number, source in enumerate(held):
        where = "WHERE run = ?"
        stopped = f"(SELECT TRY_CAST(mark AS INTEGER) FROM _run{number}._marks WHERE name = 'stopped_at')"
        meant = f"status <> 'invalid' AND index < coalesce({stopped}, index + 1)"  # beyond, no trial is ever scored
        (trials,) = _one(con, f"SELECT count(*) FROM trials {where} AND success IS NULL AND {meant}", source)
        (findings,) = _one(con, f"SELECT count(*) FROM findings {where}", source)
        if not findings:
            said.append(f"{source.name} is not scored: findings, metrics, violations and what comes of them are empty")
        elif trials:
            said.append(f"{source.name}: {trials} trials were sealed after the run was scored")
        else:
            judged = f"(SELECT trial FROM trials WHERE run = effects.run AND {meant})"
            lacking = f"occurrence IS NULL AND trial IN {judged}"
            (lost,) = _one(con, f"SELECT count(*) FROM effects {where} AND {lacking}", source)
            if lost:
                said.append(f"{source.name} was scored by an earlier version: {lost} effects have no natural key")
    return said


def _one(con: duckdb.DuckDBPyConnection, sql: str, source: Source) -> tuple[Any, ...]:
    return con.execute(sql, [source.name]).fetchall()[0]


def _connect(held: Sequence[Source]) -> duckdb.DuckDBPyConnection:
    """A connection of its own, in which the tables are views over all runs, and nothing else can be opened."""
    con = duckdb.connect(config={"memory_limit": MEMORY, "autoload_known_extensions": "false"})
    try:
        for number, source in enumerate(held):
            con.execute(f"ATTACH {_quoted(str(source.store))} AS _run{number} (READ_ONLY)")
        for table in TABLES:
            parts = (f"SELECT {_quoted(s.name)} AS run, * FROM _run{n}.{table.name}" for n, s in enumerate(held))
            con.execute(f"CREATE VIEW {table.name} AS {' UNION ALL '.join(parts)}")
        con.execute("SET enable_external_access = false")
        con.execute("SET lock_configuration = true")
    except duckdb.Error as error:
        con.close()
        problem = f"the store cannot be opened: {str(error).splitlines()[0]}"
        raise ConfigError(problem, where=", ".join(str(s.store) for s in held), hint="delete the file") from error
    return con


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _rows(con: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    try:
        while chunk := con.fetchmany(CHUNK):
            yield from (tuple(float(v) if isinstance(v, Decimal) else v for v in row) for row in chunk)
    except duckdb.Error as error:
        raise _explained(error) from error
    finally:
        con.close()


# --- errors -------------------------------------------------------------------------------------------------------

_COLUMN = re.compile(r'(?:column "|column named ")"?([^"]+)"')
_TABLE = re.compile(r"Table with name \"?([^\s\"!]+)\"?")


def _explained(error: duckdb.Error) -> ConfigError:
    """DuckDB's message in one line, with the names that come nearest to an unknown one, and where those are."""
    text = str(error)
    first = re.sub(r"\s+", " ", text.split("\n\n")[0].split("\nCandidate")[0].split("\nDid you mean")[0]).strip()
    first = re.sub(r"^(?:Binder|Catalog|Parser|Conversion|Invalid Input) Error: ", "", first)
    allowed, near = "", ""
    column, table = _COLUMN.search(text), _TABLE.search(text)
    if column:
        near = ", ".join(_near_columns(column[1].split(".")[-1]))
    elif table:
        allowed, near = ", ".join(BY_NAME), ", ".join(difflib.get_close_matches(table[1], BY_NAME, n=1, cutoff=0.75))
    hint = "tables and columns: agentmesh query --schema"
    return ConfigError(first, where="query", allowed=allowed, hint=f"did you mean {near}? {hint}" if near else hint)


def _near_columns(name: str) -> list[str]:
    known = {c for table in TABLES for c in table.names}
    near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.6)
    near += sorted(c for c in known - set(near) if len(name) > 2 and name in c)[:3]
    return [f"{column} ({', '.join(table.name for table in TABLES if column in table.names)})" for column in near]


# --- formats ------------------------------------------------------------------------------------------------------


def told(answer: Answer, format: str) -> Iterator[str]:
    """An answer as lines: `csv` and `json` as they come, `table` and `markdown` for people, so cells are cut.

    `json` is an array of objects, one a line. Raises ConfigError for another format, or an error of the query.
    """
    if format not in FORMATS:
        raise ConfigError(f"unknown format {format!r}", allowed=", ".join(FORMATS))
    yield from {"csv": _csv, "json": _json, "markdown": _markdown, "table": _table}[format](answer)


def _csv(answer: Answer) -> Iterator[str]:
    buffer = io.StringIO()
    out = csv.writer(buffer, lineterminator="\n")
    out.writerow(answer.columns)
    for row in answer.rows:
        yield _taken(buffer)
        out.writerow(["" if value is None else _text(value) for value in row])
    yield _taken(buffer)


def _taken(buffer: io.StringIO) -> str:
    text = buffer.getvalue().removesuffix("\n")
    buffer.seek(0)
    buffer.truncate()
    return text


def _json(answer: Answer) -> Iterator[str]:
    names = _distinct(answer.columns)
    before = "["
    for row in answer.rows:
        cells = dict(zip(names, row, strict=True))
        yield before + msgspec.json.encode(cells, enc_hook=str).decode()
        before = ","
    yield "]" if before == "," else "[]"


def _distinct(columns: Sequence[str]) -> list[str]:
    """Names for the keys of an object: a name that comes again gets a number."""
    names: list[str] = []
    for column in columns:
        number, name = 1, column
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names


def _markdown(answer: Answer) -> Iterator[str]:
    yield _piped(answer.columns)
    yield _piped(["---"] * len(answer.columns))
    for row in answer.rows:
        yield _piped([_cut(value) for value in row])


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells) + " |"


def _table(answer: Answer) -> Iterator[str]:
    """Columns lined up, numbers to the right."""
    rows = list(answer.rows)
    cells = [[_cut(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(answer.columns, *cells, strict=True)]
    numbers = [all(isinstance(v, int | float) or v is None for v in column) for column in zip(*rows, strict=True)]
    numbers = numbers or [False] * len(widths)
    for line in (list(answer.columns), ["-" * width for width in widths], *cells):
        padded = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(line, widths, numbers, strict=True))
        yield "  ".join(padded).rstrip()


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict | tuple):
        return msgspec.json.encode(value, enc_hook=str).decode()
    return str(value)


def _cut(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = "" if value is None else re.sub(r"\s+", " ", _text(value))
    return text if len(text) <= CELL_CHARACTERS_MAX else text[: CELL_CHARACTERS_MAX - 1] + "…"
