"""Checks trace specifications on one trial: pure, and linear in the number of its events.

Why two clocks are no problem: the trace and the truth are written by different processes. Within one log the order of
lines decides; between them the time does, and at one instant the order is unknown, so that a specification counts as
broken only where it is broken in every order.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from harness.core.records import Event, SealedTrial
from harness.core.types import Json
from harness.specs.language import Spec, log_of, registered
from harness.specs.lens import Lens, Place
from harness.specs.rules import RULES, Break, Rule
from harness.specs.view import View


class Violation(Struct, frozen=True, kw_only=True):
    """A specification that a trial breaks. times: how often; the rest is about the first time.

    log, event_index: the event that breaks it, as a position in its log. prefix: the shortest prefix of the trial that
    is enough to see it, with only the events that matter, in order, and with the call that the last one speaks of.
    """

    spec: str
    says: str
    times: int
    log: str
    event_index: int
    at_ms: float
    prefix: tuple[Event, ...]


class _Ready(Struct, frozen=True):
    spec: Spec
    rule: Rule
    when: Lens | None

    def applies(self, view: View) -> bool:
        return self.when is None or bool(view.found(self.when))


class Checker:
    """Specifications made ready, for many trials: `Checker(specs)(trial)`."""

    def __init__(self, specs: Iterable[Spec]) -> None:
        self._ready = tuple(
            _Ready(spec, RULES[spec.form](spec), Lens(spec.applies_when) if spec.applies_when else None)
            for spec in specs
        )
        lenses = (lens for each in self._ready for lens in (each.when, *each.rule.lenses) if lens is not None)
        self._wanted = frozenset(kind for lens in lenses for kind in lens.kinds)

    def __call__(self, trial: SealedTrial) -> tuple[Violation, ...]:
        """The specifications that the trial breaks, in their order. An invalid trial breaks none, since our own
        machinery spoiled it."""
        if trial.record.status == "invalid":
            return ()
        view = View(trial, self._wanted)
        found = (_violation(each, view) for each in self._ready if each.applies(view))
        return tuple(violation for violation in found if violation is not None)

    def asked(self, trial: SealedTrial) -> tuple[str, ...]:
        """Names of the specifications that have something to speak of in this trial."""
        view = View(trial, self._wanted)
        return tuple(e.spec.id for e in self._ready if e.applies(view) and view.found(e.rule.lenses[0]))


@functools.cache
def standard() -> Checker:
    """The checker of the registered specifications."""
    return Checker(registered())


def check(trial: SealedTrial, specs: Sequence[Spec] | None = None) -> tuple[Violation, ...]:
    """The specifications that the trial breaks, in their order: pure. specs: the registered ones when None."""
    return (standard() if specs is None else Checker(specs))(trial)


def _violation(ready: _Ready, view: View) -> Violation | None:
    breaks = list(ready.rule.breaks(view))
    if not breaks:
        return None
    first = min(breaks, key=lambda each: _time(each.place))
    position, event = first.place
    return Violation(
        spec=ready.spec.id,
        says=ready.spec.says,
        times=len(breaks),
        log=log_of(event.kind),
        event_index=position,
        at_ms=event.at_ms,
        prefix=tuple(_prefix(first, view)),
    )


def _prefix(first: Break, view: View) -> Iterator[Event]:
    call = view.call_behind(first.place[1])
    before = {(log_of(place[1].kind), place[0]): place for place in (*first.earlier, *([call] if call else []))}
    before.pop((log_of(first.place[1].kind), first.place[0]), None)
    yield from (event for _, event in sorted(before.values(), key=_time))
    yield first.place[1]
    yield from (event for _, event in first.later)


def _time(place: Place) -> tuple[float, bool, int]:
    return place[1].at_ms, log_of(place[1].kind) == "truth", place[0]


def row_of(trial: SealedTrial, violation: Violation) -> dict[str, Json]:
    """A line of `violations.jsonl`."""
    record = trial.record
    head = {"trial": record.id, "pair": record.pair, "index": record.index, "arm": record.arm}
    told: dict[str, Json] = msgspec.to_builtins(violation)
    prefix = [{"at_ms": e.at_ms, "epoch": e.epoch, "kind": e.kind, "data": e.data} for e in violation.prefix]
    return {**head, **told, "prefix": prefix}
