"""A readable account of one sealed trial: faults, calls, effects and verdicts, in the order in which they happened.

Trace and truth are shown side by side here, for a person who asks why; during a trial nobody sees both.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import segment
from harness.core.errors import ConfigError
from harness.core.records import Event, SealedTrial, TrialRecord
from harness.trace_store import TraceStore

SHOWN_CHARACTERS = 110
BEFORE = ("call", "epoch", "attempt", "phase")
"""Kinds that begin something: what the truth notes at the same instant comes after them."""


def find(store: TraceStore, prefix: str) -> TrialRecord:
    """The one sealed trial whose id begins with `prefix`. Raises ConfigError when there is none, or several."""
    found = [record for record in store.records() if record.id.startswith(prefix)]
    if not found:
        some = ", ".join(f"{r.id} (pair {r.index}, {r.arm})" for r in itertools.islice(store.records(), 3))
        raise ConfigError(
            f"no sealed trial has an id that begins with {prefix!r}",
            where=str(store.folder),
            allowed=f"those in trials.jsonl, such as {some}" if some else "",
        )
    if len(found) > 1:
        some = ", ".join(record.id for record in found[:8])
        raise ConfigError(f"{len(found)} trials have an id that begins with {prefix!r}", allowed=f"one of {some}")
    return found[0]


def lines(trial: SealedTrial, findings: Iterable[Mapping[str, Any]] = ()) -> Iterator[str]:
    """The account, line by line. findings: what the oracle said of this trial, where it was asked."""
    record = trial.record
    yield f"trial {record.id}  pair {record.index} ({record.pair})  arm {record.arm}  {record.workload}, {record.world}"
    faults = f"{record.faults_scheduled} x {record.fault_class} ({record.variant})" if record.faults_scheduled else "no"
    yield f"faults: {faults}   variation L{record.variation}   seed {record.seed}"
    because = f": {record.because}" if record.because else ""
    yield f"{record.status}{because} after {record.duration_ms / 1000:.1f} s nominal, {record.tries} tries"
    yield ""
    for hidden, event in merged(trial.trace, trial.truth):
        side = "|" if hidden else " "
        yield f"{event.at_ms / 1000:10.3f} s  e{event.epoch} {side} {event.kind:<14} {_told(event)}".rstrip()
    judged = list(findings)
    if judged:
        yield ""
        yield "the oracle:"
    for one in judged:
        counts = f"required {one.get('required')}, observed {one.get('observed')}"
        yield f"  {one.get('status', ''):<22} {one.get('boundary', ''):<10} {one.get('key', '')}  ({counts})"


def findings(folder: Path, trial_id: str) -> Iterator[Mapping[str, Any]]:
    """The oracle's findings on a trial; none when the run is not scored."""
    return (one for one in all_findings(folder) if one.get("trial") == trial_id)


def all_findings(folder: Path) -> Iterator[Mapping[str, Any]]:
    """The oracle's findings on all trials of a run; none when it is not scored."""
    return segment.lines(folder / "findings.jsonl", dict[str, Any], f"make it again: agentmesh score {folder}")


def merged(trace: Sequence[Event], truth: Sequence[Event]) -> Iterator[tuple[bool, Event]]:
    """Both logs in one order: (is it truth, event). Each keeps its own order; at the same instant what really happened
    comes after the call it belongs to and before that call's outcome."""
    called: set[Any] = set()
    numbers = {event.data.get("call_id") for event in trace if event.kind == "call"}
    at = 0
    for event in trace:
        while at < len(truth) and _first(truth[at], event, called, numbers):
            yield True, truth[at]
            at += 1
        if event.kind == "call":
            called.add(event.data.get("call_id"))
        yield False, event
    for event in truth[at:]:
        yield True, event


def _first(hidden: Event, seen: Event, called: set[Any], numbers: set[Any]) -> bool:
    """Does the event of the truth come before that of the trace?"""
    if hidden.at_ms != seen.at_ms:
        return hidden.at_ms < seen.at_ms
    number = hidden.data.get("call_id")
    if number in numbers:
        return number in called
    return seen.kind not in BEFORE


def _told(event: Event) -> str:
    data = dict(event.data)
    if event.kind == "call":
        return _call(data)
    if event.kind == "outcome":
        said = ("call_id", "result", "verdict")
        return _join([data.get(key) for key in said], _rest(data, *said))
    if event.kind == "fault":
        name = f"#{data.get('fault')} {data.get('class', '')}/{data.get('variant', '')}".rstrip("/ ")
        return _join([name, str(data.get("state", "")).upper()], _rest(data, "fault", "class", "variant", "state"))
    return _join([], data)


def _call(data: dict[str, Any]) -> str:
    site = data.get("site")
    where = ""
    if isinstance(site, Mapping):
        where = f"{site.get('delegation')}/{site.get('phase')} {site.get('seam')} {site.get('name')}"
    return _join([data.get("call_id"), where], _rest(data, "call_id", "site", "call"))


def _rest(data: Mapping[str, Any], *without: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in without and value not in (None, "", [], {})}


def _join(words: Sequence[Any], rest: Mapping[str, Any]) -> str:
    said = [_short(word) for word in words if word not in (None, "")]
    return "  ".join([*said, " ".join(f"{key}={_short(value)}" for key, value in rest.items())]).strip()


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = text.replace("\n", "\\n")
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."
