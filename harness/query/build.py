"""Builds the store of a run: one DuckDB file in its cache, filled trial by trial with bounded memory.

Why a file and not memory: a run may have 100,000 trials, and the second question should not pay for the first. The file
is no part of the sealed run. It is written under a name of its own and then renamed, so that two builders at once do no
harm, and it is built again when the files it was made from have other digests.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from harness import segment
from harness.console import Step
from harness.core.errors import ConfigError
from harness.core.records import Finding
from harness.query import extract
from harness.query.schema import BY_NAME, TABLES, VERSION
from harness.report.rows import Row
from harness.trace_store import TraceStore

CACHE = "cache"
FILE = "query.duckdb"
SOURCES = ("trials.jsonl", "findings.jsonl", "rows.jsonl", "metrics.csv")
BATCH_BYTES = 16 << 20
MEMORY = "768MB"
FULL = "make room, or keep the store elsewhere with --cache; the run itself is untouched"

_JUDGED = BY_NAME["trials"].names[BY_NAME["trials"].names.index("exposed") :]
_SEEN = ("position", "at_ms", "epoch", "boundary", "receipt", "data")
_KNOWN = ("natural_key", "delegation", "required", "occurrence", "duplicate", "phantom", "superseded", "stale")


def _types(table: str, *names: str, **more: str) -> dict[str, str]:
    """Types by column: of all columns of a table, or of these and `trial`, and of more."""
    chosen = [c for c in BY_NAME[table].columns if not names or c.name in ("trial", *names)]
    return {column.name: column.type for column in chosen} | more


LOADED = {table.name: _types(table.name) for table in TABLES} | {
    "_judged": _types("trials", *_JUDGED),
    "_clean": _types("delegations", "delegation", "clean"),
    "_effects": _types("effects", *_SEEN, told="VARCHAR"),
    "_held": _types("effects", "position", *_KNOWN, cause="VARCHAR"),
}
"""Columns of all that is loaded: the tables, and with an underscore the parts that some of them are joined from."""


class _Line(Finding, frozen=True, kw_only=True):
    """A line of `findings.jsonl`."""

    trial: str


def stored(run: Path, cache: Path | None, step: Step) -> Path:
    """The store of a run, built where it is missing or out of date.

    cache: folder for it in place of the run's own. Raises ConfigError when there is no run, a file of it is damaged, or
    the disk is full.
    """
    folder = cache or run / CACHE
    marks = _marks(run)  # before the run is opened: what is sealed from here on makes the store out of date
    with TraceStore.open(run) as store:
        name = FILE if cache is None else f"{marks['trials.jsonl'][:16]}.duckdb"
        path = folder / name
        if path.exists() and _held(path) == marks:
            return path
        with segment.disk(folder, FULL):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".query-", dir=folder) as scratch, _refused(folder):
                draft = Path(scratch) / "draft.duckdb"
                _build(draft, store, marks, step)
                os.replace(draft, path)
        return path


def _marks(run: Path) -> dict[str, str]:
    """What the store depends on: digests of files, and who built it."""
    found = {"tables": str(VERSION), "duckdb": duckdb.__version__}
    found["columns"] = hashlib.sha256(repr(TABLES).encode()).hexdigest()
    if (run / "manifest.json").is_file():  # else there is no run, which is said when it is opened
        found["stopped_at"] = str(segment.read_manifest(run).get("stopping", {}).get("stopped_at"))
    for name in SOURCES:
        path = run / name
        found[name] = segment.file_sha256(path) if path.is_file() else ""
    return found


def _held(path: Path) -> dict[str, str] | None:
    """The marks of a store, or None when it cannot be read, e.g. since another version of DuckDB wrote it."""
    try:
        with duckdb.connect(str(path), read_only=True) as con:
            return dict(con.execute("SELECT name, mark FROM _marks").fetchall())
    except (duckdb.Error, OSError):
        return None


@contextmanager
def _refused(folder: Path) -> Iterator[None]:
    """What DuckDB says of a full disk is said as everywhere else."""
    try:
        yield
    except duckdb.Error as error:
        text = str(error).splitlines()[0]
        full = any(word in str(error) for word in ("No space left", "File too large", "Disk quota", "out of disk"))
        problem = f"the disk is full ({text})" if full else f"the store cannot be built: {text}"
        raise ConfigError(problem, where=str(folder), hint=FULL if full else "") from error


def _build(path: Path, store: TraceStore, marks: dict[str, str], step: Step) -> None:
    config: dict[str, Any] = {
        "memory_limit": MEMORY,
        "preserve_insertion_order": "false",
        "temp_directory": str(path.parent / "spill"),
    }
    with duckdb.connect(str(path), config=config) as con:
        for name, types in LOADED.items():
            con.execute(f"CREATE TABLE {name} ({', '.join(f'{column} {kind}' for column, kind in types.items())})")
        load = _Loader(con, path.parent)
        _load_trials(store, load, step)
        _load_judged(store.folder, load)
        load.flush()
        _join(con, store.folder)
        con.execute("CREATE TABLE _marks (name VARCHAR, mark VARCHAR)")
        con.executemany("INSERT INTO _marks VALUES (?, ?)", [list(pair) for pair in marks.items()])


def _load_trials(store: TraceStore, load: _Loader, step: Step) -> None:
    records = store.records()
    step(0, len(records), "")
    for done, record in enumerate(records, start=1):
        found = extract.of_trial(store.read(record.id))
        found["_effects"] = found.pop("effects")
        load.add(found)
        step(done, len(records), "")


def _load_judged(run: Path, load: _Loader) -> None:
    again = f"make it again: agentmesh score {run}"
    for row in segment.lines(run / "rows.jsonl", Row, again):
        found = extract.of_row(row)
        load.add({"_judged": found["judged"], "_clean": found["clean"]})
        load.add({name: found[name] for name in ("metrics", "violations")})
    for line in segment.lines(run / "findings.jsonl", _Line, again):
        found = extract.of_finding(line.trial, line)
        load.add({"findings": found["findings"], "_held": found["held"]})


def _join(con: duckdb.DuckDBPyConnection, run: Path) -> None:
    """Join what the oracle said to what the trials say, and drop the parts. `counted`: whose rows the report has."""
    counted = "NULL::BOOLEAN"
    if (run / "metrics.csv").is_file():
        csv = "CREATE TABLE _counted AS SELECT DISTINCT trial FROM read_csv(?, all_varchar = true)"
        con.execute(csv, [str(run / "metrics.csv")])
        counted = "t.trial IN (SELECT trial FROM _counted)"
    _replace(
        con,
        "trials",
        {name: f"j.{name}" for name in _JUDGED} | {"counted": counted},
        "trials t LEFT JOIN _judged j USING (trial) ORDER BY t.index, t.fault_class = 'none', t.arm, t.trial",
    )
    _replace(
        con,
        "effects",
        {name: f"h.{name}" for name in _KNOWN} | {"call_id": "coalesce(h.cause, t.told)"},
        "_effects t LEFT JOIN _held h USING (trial, position) "
        "ORDER BY t.trial, t.position, h.natural_key, h.occurrence",
    )
    _replace(
        con,
        "delegations",
        {"trial": "trial", "delegation": "delegation", "clean": "c.clean"},
        "delegations t FULL JOIN _clean c USING (trial, delegation) ORDER BY trial, delegation",
    )
    for name in ("_held", "_effects", "_judged", "_clean", "_counted"):
        con.execute(f"DROP TABLE IF EXISTS {name}")


def _replace(con: duckdb.DuckDBPyConnection, table: str, given: dict[str, str], source: str) -> None:
    """Make a table again from `source`: its columns as `given`, else as they are in `t`."""
    columns = ", ".join(f"{given.get(name, f't.{name}')} AS {name}" for name in BY_NAME[table].names)
    con.execute(f"CREATE TABLE _new AS SELECT {columns} FROM {source}")
    con.execute(f"DROP TABLE {table}")
    con.execute(f"ALTER TABLE _new RENAME TO {table}")


class _Loader:
    """Takes rows and hands them to DuckDB in batches, by a scratch file of JSON lines for each table: the quickest way
    in that needs no other library, with types as declared and a bound on memory."""

    def __init__(self, con: duckdb.DuckDBPyConnection, scratch: Path) -> None:
        self._con, self._scratch = con, scratch
        self._waiting: dict[str, bytearray] = {}
        self._encoder = msgspec.json.Encoder()

    def add(self, rows: extract.Records) -> None:
        for table, records in rows.items():
            lines = self._waiting.setdefault(table, bytearray())
            for record in records:
                lines += self._encoder.encode(record) + b"\n"
            if len(lines) > BATCH_BYTES:
                self._write(table)

    def flush(self) -> None:
        for table in list(self._waiting):
            self._write(table)

    def _write(self, table: str) -> None:
        lines = self._waiting.pop(table)
        if lines:
            path = self._scratch / f"{table}.jsonl"
            path.write_bytes(lines)
            types = ", ".join(f"{name}: '{kind}'" for name, kind in LOADED[table].items())
            options = f"format = 'newline_delimited', columns = {{{types}}}, maximum_object_size = {4 * BATCH_BYTES}"
            names = ", ".join(LOADED[table])
            self._con.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM read_json(?, {options})", [str(path)])
            path.unlink()
