"""`agentmesh specs`: what must hold in every trial, checked on the sealed trials of a run.

Why a command of its own beside scoring: a person who writes a specification wants to see at once where it is broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.commands import NOT_AS_WANTED
from harness.core.errors import ConfigError

if TYPE_CHECKING:
    from harness.core.records import Event
    from harness.specs import Spec, Violation

SHOWN_CHARACTERS = 150


def add(app: typer.Typer) -> None:
    """Register the command."""

    @app.command()
    def specs(
        run: Annotated[Path | None, typer.Argument(help="Folder of a run: results/<schedule>/<run>.")] = None,
        trial: Annotated[str, typer.Option("--trial", help="Only the trial whose id begins so.")] = "",
        file: Annotated[Path | None, typer.Option("--specs", help="Check those of this file (YAML) instead.")] = None,
        listed: Annotated[bool, typer.Option("--list", help="Say what is checked.")] = False,
        gate: Annotated[bool, typer.Option("--gate", help="Exit with 1 when something is broken.")] = False,
    ) -> None:
        """Check trace specifications on a run, and show where they are broken."""
        from harness.specs import load, registered

        wanted = registered() if file is None else load(file)
        if listed:
            for spec in wanted:
                typer.echo(f"{spec.id}: {spec.says}{_only_when(spec)}")
            return
        if run is None:
            raise ConfigError("no run is named", allowed="a folder of a run, or --list")
        broken = _check(run, trial, wanted)
        raise typer.Exit(NOT_AS_WANTED if gate and broken else 0)


def _check(run: Path, trial: str, wanted: tuple[Spec, ...]) -> int:
    """Check the trials of a run and print what they break; in how many trials something is broken."""
    from harness.replay import find
    from harness.specs import Checker
    from harness.trace_store import TraceStore

    checker, checked, broken = Checker(wanted), 0, 0
    with TraceStore.open(run) as store:
        only = find(store, trial).id if trial else ""
        for sealed in store.iter(lambda record: not only or record.id == only):
            checked += sealed.record.status != "invalid"
            found = checker(sealed)
            broken += bool(found)
            record = sealed.record
            for violation in found:
                typer.echo(f"trial {record.id}  pair {record.index}  arm {record.arm}  {record.fault_class}")
                for line in lines(violation):
                    typer.echo(f"  {line}")
    typer.echo(f"{len(wanted)} specifications, {checked} trials checked, {broken} with violations")
    return broken


def lines(violation: Violation) -> Iterable[str]:
    """A violation for a person: what is broken, how often, and the shortest prefix that breaks it."""
    times = f", {violation.times} times" if violation.times > 1 else ""
    yield f"{violation.spec}{times}: {violation.says}"
    for event in violation.prefix:
        yield f"  {event.at_ms / 1000:10.3f} s  e{event.epoch}  {event.kind:<14} {_told(event)}".rstrip()


def _told(event: Event) -> str:
    data: dict[str, Any] = {**event.data, **event.data.get("site", {})} if event.kind == "call" else event.data
    said = (f"{key}={value}" for key, value in data.items() if key != "site" and value not in (None, "", [], {}))
    text = " ".join(said).replace("\n", "\\n")
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."


def _only_when(spec: Spec) -> str:
    when = spec.applies_when
    return "" if when is None else f" (where the trial has {when.event}{_conditions(when.where)})"


def _conditions(where: Mapping[str, Any]) -> str:
    told = (f"{name} {_wanted(wanted)}" for name, wanted in where.items())
    return f" with {' and '.join(told)}" if where else ""


def _wanted(wanted: Any) -> str:
    if isinstance(wanted, Mapping):
        return " and ".join(f"{how.replace('_', ' ')} {_listed(value)}" for how, value in wanted.items())
    return _listed(wanted)


def _listed(value: Any) -> str:
    return " or ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
