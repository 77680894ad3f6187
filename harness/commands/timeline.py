"""`agentmesh timeline`: the trials of one pair side by side, as a page of its own.

Why a command: the report shows a chosen few, since all pairs would not fit in one page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.core.errors import ConfigError


def add(app: typer.Typer) -> None:
    """Register the command."""

    @app.command()
    def timeline(
        folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
        pair: Annotated[int, typer.Argument(min=0, help="Number of the pair in registered order.")],
        out: Annotated[Path, typer.Option("-o", "--out", help="File to write.")] = Path("timeline.html"),
        arms: Annotated[str, typer.Option(help="Arms to show, with commas. Default: control and treatment.")] = "",
    ) -> None:
        """Draw faults, calls, effects and verdicts of one pair on one axis of nominal time."""
        from harness import timeline as courses
        from harness.report.render import timeline_page
        from harness.report.timeline import Chosen

        wanted = [name.strip() for name in arms.split(",") if name.strip()] or courses.default_arms(folder)
        found = courses.pairs(folder, [Chosen(pair, "")], wanted)
        try:
            out.write_text(timeline_page(found, f"Pair {pair} of {folder.resolve().name}"), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"the file cannot be written: {error.strerror}", where=str(out)) from error
        typer.echo(out)
