"""`agentmesh telemetry`: the trials of a run as OpenTelemetry traces."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from harness.core.errors import ConfigError


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command(name="telemetry")(telemetry)


def telemetry(
    folder: Annotated[Path, typer.Argument(help="Folder of a run: results/<schedule>/<run>.")],
    trial: Annotated[list[str] | None, typer.Option(help="Id of a trial, or how it begins; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option(help="File of OTLP JSON lines, one for each trial.")] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="Collector to post to (OTLP over HTTP), such as http://127.0.0.1:4318.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option(help="NAME=VALUE to send along; may be repeated.")] = None,
) -> None:
    """Export trials as traces: attempts, turns, calls, the states of effects, and links to the faults that hit them."""
    from harness import replay, segment
    from harness.console import progress
    from harness.telemetry import export, otlp
    from harness.trace_store import TraceStore

    if out and endpoint:
        raise ConfigError("the spans go to a file or to a collector", allowed="--out or --endpoint")
    headers = _headers(header or [])
    with TraceStore.open(folder) as store, ExitStack() as stack:
        chosen = [replay.find(store, prefix) for prefix in trial or []] or list(store.records())
        step = stack.enter_context(progress("trials exported"))
        file, spans = None, 0
        if not endpoint:
            stack.enter_context(segment.disk(out.parent if out else folder, "make room, or name another file"))
            file = stack.enter_context(out.open("w", encoding="utf-8")) if out else sys.stdout
        for done, message in enumerate(export.messages(store, chosen), start=1):
            if endpoint:
                otlp.post(endpoint, message, headers)
            elif file:
                file.write(otlp.to_json(message) + "\n")
            spans += export.span_count(message)
            step(done, len(chosen), "")
    if out or endpoint:
        typer.echo(f"{out or endpoint}: spans: {spans}, trials: {len(chosen)}{' (a line for each)' if out else ''}")
    if not export.scored(folder):
        typer.echo(
            f"agentmesh: the run is not scored, so no effect has a natural key; first: agentmesh score {folder}",
            err=True,
        )


def _headers(given: list[str]) -> dict[str, str]:
    wrong = [text for text in given if not text.partition("=")[0] or "=" not in text]
    if wrong:
        raise ConfigError(f"a header is not understood: {wrong[0]!r}", allowed="NAME=VALUE")
    return dict(text.split("=", 1) for text in given)
