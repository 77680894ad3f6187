"""`agentmesh ci`: a run as a continuous-integration server wants to see it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.core.errors import ConfigError

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command(name="ci")(ci)


def ci(
    folder: Annotated[Path, typer.Argument(help="Folder of a run: results/<schedule>/<run>.")],
    junit: Annotated[Path | None, typer.Option(help="File for JUnit XML.")] = None,
    summary: Annotated[
        Path | None, typer.Option(help=f"File for the Markdown summary; appended to where it is ${STEP_SUMMARY}.")
    ] = None,
    commands: Annotated[bool, typer.Option("--annotations", help="Print workflow commands for a server.")] = False,
) -> None:
    """Write JUnit XML, a step summary and annotations of a run; without options, print the summary."""
    from harness import analysis, segment
    from harness.report.ci import junit as junit_xml
    from harness.report.ci import workflow_commands
    from harness.report.step_summary import markdown

    found = _summary(folder)
    text = markdown(found, analysis.gate(found))
    with segment.disk(folder, "make room, or name another file"):
        if junit:
            _write(junit, junit_xml(found))
        if summary:
            _write(summary, text, append=str(summary) == os.environ.get(STEP_SUMMARY))
    if commands:
        for line in workflow_commands(found):
            typer.echo(line)
    if not (junit or summary or commands):
        typer.echo(text)


def _summary(folder: Path) -> dict[str, Any]:
    import msgspec

    from harness import analysis

    path = folder / "summary.json"
    if not path.is_file():
        raise analysis.unreported(folder, "there is no report in this folder")
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        analysis.gate(found)
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        hint = f"make it again: agentmesh report {folder}"
        raise ConfigError(f"the summary is damaged: {error}", where=str(path), hint=hint) from error
    return found


def _write(path: Path, text: str, append: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a" if append else "w", encoding="utf-8", newline="\n") as file:
        file.write(text if text.endswith("\n") else text + "\n")
