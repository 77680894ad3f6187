"""One trial as specifications look at it: its events by kind, and tables of those by the fields that must agree.

Why built once for all specifications: most of them look at a few kinds of events, so that a trial is walked through
once, and each event is looked at again only by those whom it concerns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from harness.core.records import Event, SealedTrial
from harness.specs.language import TRIAL
from harness.specs.lens import Lens, Place, hashable

_PART = {"call": "call", "note": "note", "fault": "state", "outcome": ""}
"""The field that tells events of a kind apart; outcomes are told apart by their call."""


class View:
    """wanted: the kinds of events that will be asked for."""

    def __init__(self, trial: SealedTrial, wanted: frozenset[str]) -> None:
        self.calls: dict[Any, Event] = {}
        self._trial = trial
        self._kinds: dict[str, list[Place]] = {kind: [] for kind in wanted}
        self._parts: dict[str, dict[Any, list[Place]]] = {kind: {} for kind in _PART}
        for named, places in self._kinds.items():
            kind, slash, part = named.partition("/")
            if slash:
                self._parts[kind][part] = places
        self._found: dict[str, list[Place]] = {}
        self._tables: dict[tuple[str, tuple[str, ...]], dict[Any, list[Place]]] = {}
        self._sort(trial.trace)
        self._sort(trial.truth)
        if TRIAL in self._kinds:
            self._kinds[TRIAL].append(self.end)

    def _sort(self, log: Sequence[Event]) -> None:
        whole, parts, calls = self._kinds.get, self._parts.get, self.calls
        for place in enumerate(log):
            event = place[1]
            kind = event.kind
            places, split = whole(kind), parts(kind)
            if places is not None:
                places.append(place)
            if split is None:
                continue
            data = event.data
            if kind == "outcome":
                call = calls.get(data.get("call_id"))
                part = None if call is None else call.data.get("call")
            else:
                part = data.get(_PART[kind])
                if kind == "call":
                    calls[data.get("call_id")] = event
            if part in split:
                split[part].append(place)

    @property
    def end(self) -> Place:
        """What comes once, after everything: how the trial ended, as its record says."""
        trial = self._trial
        last_ms = max([trial.record.duration_ms, *(log[-1].at_ms for log in (trial.trace, trial.truth) if log)])
        position = len(trial.trace)
        return position, Event(position, last_ms, 0, TRIAL, msgspec.to_builtins(trial.record))

    def found(self, lens: Lens) -> list[Place]:
        """The events of a pattern, in the order of their log."""
        found = self._found.get(lens.name)
        if found is None:
            found = self._found[lens.name] = lens.select(self._kinds, self.calls)
        return found

    def table(self, lens: Lens, fields: tuple[str, ...]) -> dict[Any, list[Place]]:
        """The events of a pattern by the values of these fields."""
        table = self._tables.get((lens.name, fields))
        if table is None:
            table = self._tables[lens.name, fields] = {}
            places = self.found(lens)
            for key, place in zip(lens.keys(fields)(places, self.calls), places, strict=True):
                try:
                    like = table.get(key)
                except TypeError:
                    key = hashable(key)
                    like = table.get(key)
                if like is None:
                    table[key] = [place]
                else:
                    like.append(place)
        return table

    def call_behind(self, event: Event) -> Place | None:
        """The call that an event speaks of by its id, with its position in the trace."""
        call = self.calls.get(event.data.get("call_id"))
        return next((place for place in enumerate(self._trial.trace) if place[1] is call), None)
