"""`agentmesh specs`: what must hold in every trial, checked on the sealed trials of a run.

Why a command of its own beside scoring: a person who writes a specification wants to see at once where it is broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.commands import NOT_AS_WANTED
from harness.core.errors import ConfigError
from harness.specs.language import TRIAL

if TYPE_CHECKING:
    from harness.core.records import Event
    from harness.specs import Spec, Violation

SHOWN_CHARACTERS = 120
NOUNS = {"onion": "an arm"}
"""Events that stand for a thing; others are named by their kind."""
CONDITIONS = {
    "": "is",
    "not": "is not",
    "not_in": "is none of",
    "least": "is at least",
    "most": "is at most",
    "below": "is below",
    "above": "is above",
    "has": "include",
}
ENDED = ("status", "because", "duration_ms")
"""What of a trial's record says how it ended: the rest is its plan."""


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
                typer.echo(f"{spec.id}: {_plain(spec.says)}{_only_when(spec)}")
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
            if found:
                typer.echo(f"trial {record.id}  pair {record.index}  arm {record.arm}  {record.fault_class}")
            for violation in found:
                for line in lines(violation):
                    typer.echo(f"  {line}")
    typer.echo(f"{len(wanted)} specifications, {checked} trials checked, {broken} with violations")
    return broken


def lines(violation: Violation) -> Iterable[str]:
    """A violation for a person: what is broken, how often, and the shortest prefix that breaks it."""
    times = f", {violation.times} times" if violation.times > 1 else ""
    yield f"{violation.spec}{times}: {_plain(violation.says)}"
    for event in violation.prefix:
        yield f"  {event.at_ms / 1000:10.3f} s  e{event.epoch}  {event.kind:<14} {_told(event)}".rstrip()


def _told(event: Event) -> str:
    data: dict[str, Any] = {**event.data, **event.data.get("site", {})} if event.kind == "call" else event.data
    if event.kind == TRIAL:
        data = {name: data.get(name) for name in ENDED}
    said = (
        f"{key}={_value(value)}" for key, value in data.items() if key != "site" and value not in (None, "", [], {})
    )
    text = " ".join(said)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."


def _value(value: Any) -> str:
    """A value of an event as one word or several, on one line."""
    if isinstance(value, Mapping):
        return f"({', '.join(f'{key} {_value(one)}' for key, one in value.items() if one not in (None, ''))})"
    return _listed(value, ", ").replace("\n", "\\n")


def _only_when(spec: Spec) -> str:
    """When a specification applies, in words."""
    when = spec.applies_when
    if when is None:
        return ""
    of = " or ".join(NOUNS.get(kind, f"the event {kind}") for kind in when.kinds)
    conditions = [told for name, wanted in when.where.items() for told in _conditions(name, wanted)]
    return f" (only in trials with {of}{' whose ' if conditions else ''}{' and whose '.join(conditions)})"


def _conditions(name: str, wanted: Any) -> Iterator[str]:
    for how, value in wanted.items() if isinstance(wanted, Mapping) else [("", wanted)]:
        if how == "known":
            yield f"{name} is {'given' if value else 'not given'}"
        else:
            yield f"{name} {CONDITIONS[how]} {_listed(value, ' or ')}"


def _listed(value: Any, between: str) -> str:
    if isinstance(value, list | tuple):
        return between.join(_listed(one, between) for one in value)
    return "nothing" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _plain(text: str) -> str:
    """A sentence without the marks of Markdown, which a terminal does not draw."""
    return text.replace("`", "").replace("**", "")
