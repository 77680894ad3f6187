"""`agentmesh query`: SQL over the trials, calls, effects, verdicts and faults of runs."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from harness.core.errors import ConfigError, did_you_mean

STATEMENTS = (
    *("select", "with", "from", "values", "table", "explain", "describe", "show", "summarize", "pivot", "unpivot"),
    *("insert", "update", "delete", "create", "drop", "alter", "copy", "attach", "set", "pragma"),
)
"""First words of SQL."""


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command(name="query")(query)


def query(
    runs_and_sql: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN... SQL", help="Folders of runs, then a SELECT, the name of a query, or - (stdin)."),
    ] = None,
    format: Annotated[str, typer.Option("--format", help="table, csv, json or markdown.")] = "table",
    limit: Annotated[int, typer.Option(min=0, help="Rows at most; 0: all of them.")] = 1000,
    schema: Annotated[bool, typer.Option("--schema", help="Print the tables and their columns.")] = False,
    cookbook: Annotated[bool, typer.Option("--cookbook", help="Print the queries that have a name.")] = False,
    cache: Annotated[
        Path | None, typer.Option(help="Folder of the store, in place of cache/ in the run's folder.")
    ] = None,
) -> None:
    """Ask runs by SQL: trials, calls, effects, verdicts, faults and what the oracle said of them."""
    from harness.console import progress
    from harness.query import ask, build

    if schema or cookbook:
        for line in _described(schema, cookbook):
            typer.echo(line)
        return
    if format not in ask.FORMATS:
        raise ConfigError(f"unknown format {format!r}", allowed=", ".join(ask.FORMATS))
    runs, sql = _split(runs_and_sql or [])
    with progress("trials read") as step:
        stores = [build.stored(run, cache, step) for run in runs]
    held = ask.sources(runs, stores)
    for sentence in ask.unscored(held):
        typer.echo(f"agentmesh: {sentence}; first: agentmesh score RUN", err=True)
    answer = ask.ask(held, sql)
    rows = answer.rows if not limit else itertools.islice(answer.rows, limit)
    for line in ask.told(ask.Answer(answer.columns, rows), format):
        typer.echo(line)
    if limit and next(answer.rows, None) is not None:
        typer.echo(f"agentmesh: there are more than {limit} rows; --limit 0 gives all", err=True)


def _split(words: list[str]) -> tuple[list[Path], str]:
    if len(words) < 2:
        hint = 'agentmesh query RUN "SELECT arm, count(*) FROM trials GROUP BY arm"; see --schema and --cookbook'
        raise ConfigError("a query needs the folder of a run and a SELECT", hint=hint)
    from harness.query.cookbook import BY_NAME

    text = sys.stdin.read() if words[-1] == "-" else words[-1]
    recipe = BY_NAME.get(text.strip())
    if recipe is None and _is_name(text):
        hint = did_you_mean(text.strip(), BY_NAME) or "see --cookbook"
        raise ConfigError(
            f"there is no query {text.strip()!r}", allowed=f"{', '.join(BY_NAME)}, or a SELECT", hint=hint
        )
    return [Path(word) for word in words[:-1]], recipe.sql if recipe else text


def _is_name(text: str) -> bool:
    """Words alone, none of which begins a statement: a recipe was meant, and a syntax error would not help."""
    words = re.findall(r"[\w-]+", text.lower())
    return re.fullmatch(r"[\w\s-]*", text) is not None and not (
        len(words) > 1 and (words[0] in STATEMENTS or "from" in words)
    )


def _described(schema: bool, cookbook: bool) -> Iterator[str]:
    if schema:
        from harness.query.schema import described

        yield from described()
    if cookbook:
        from harness.query.cookbook import COOKBOOK

        for recipe in COOKBOOK:
            yield f"-- {recipe.name}: {recipe.question}\n{recipe.sql};\n"
