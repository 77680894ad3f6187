"""What each form of a specification means: where a trial breaks it, found by looking keys up, never by searching.

Why a rule for each form and no general logic: the few forms are what specifications of this kind need, and of each it
can be said in one sentence which events make a violation.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from msgspec import Struct

from harness.specs.language import TRIAL, Related, Spec, log_of
from harness.specs.lens import Calls, Lens, Place, hashable
from harness.specs.view import View


class Break(Struct, frozen=True):
    """A place where a specification is broken; what came before that makes it one; and, where something was to follow,
    what came instead."""

    place: Place
    earlier: tuple[Place, ...] = ()
    later: tuple[Place, ...] = ()


class Rule(Protocol):
    """A specification made ready. lenses: all its patterns, that of its own events first."""

    @property
    def lenses(self) -> tuple[Lens, ...]: ...

    def breaks(self, view: View) -> Iterator[Break]: ...


_AT = operator.itemgetter(0)


def _ms(place: Place) -> float:
    return place[1].at_ms


class _Other:
    """Events related to those of a specification, and how the two stand in time: by position within one log, by the
    clock between two. `surely` before or after is in every order that the logs allow, otherwise in one of them."""

    def __init__(self, mine: Lens, related: Related) -> None:
        self.lens = Lens(related)
        self.mine = tuple(mine for mine, _ in related.pairs)
        self.theirs = tuple(theirs for _, theirs in related.pairs)
        self._keys = mine.keys(self.mine)
        self.one_log = one_log(mine, self.lens)

    def by_key(self, view: View) -> dict[Any, list[Place]]:
        return view.table(self.lens, self.theirs)

    def like(self, place: Place, view: View) -> list[Place]:
        """Those that have the fields in common with an event, in the order of their log."""
        table = self.by_key(view)
        return table.get(hashable(self._keys([place], view.calls)[0]), _NONE) if table else _NONE

    def last_before(self, places: list[Place], at: Place, *, surely: bool) -> Place | None:
        if self.one_log:
            end = bisect_left(places, at[0], key=_AT)
        else:
            end = (bisect_left if surely else bisect_right)(places, at[1].at_ms, key=_ms)
        return places[end - 1] if end else None

    def comes_after(self, places: list[Place], at: Place) -> bool:
        """Whether one of them may be after an event."""
        last = places[-1] if places else None
        return last is not None and (last[0] > at[0] if self.one_log else last[1].at_ms >= at[1].at_ms)


_NONE: list[Place] = []


def one_log(one: Lens, other: Lens) -> bool:
    kinds = {log_of(kind) for lens in (one, other) for kind in lens.kinds}
    return len(kinds) == 1 and TRIAL not in (*one.kinds, *other.kinds)


def _between(
    places: list[Place], start: Place, end: Place, *, start_log: bool, end_log: bool, surely: bool
) -> Place | None:
    """The first of the places after `start`, if it is before `end`. start_log, end_log: whether they share its log."""
    if start_log:
        first = bisect_right(places, start[0], key=_AT)
    else:
        first = (bisect_right if surely else bisect_left)(places, start[1].at_ms, key=_ms)
    if first == len(places):
        return None
    found = places[first]
    if end_log:
        return found if found[0] < end[0] else None
    before = found[1].at_ms < end[1].at_ms if surely else found[1].at_ms <= end[1].at_ms
    return found if before else None


class _Never:
    def __init__(self, spec: Spec) -> None:
        self.lenses: tuple[Lens, ...] = (Lens(spec.subject),)

    def breaks(self, view: View) -> Iterator[Break]:
        return map(Break, view.found(self.lenses[0]))


class _Related:
    """What the three forms share that compare an event with others. Events with one key are looked at together: mostly
    the first or the last of them shows that all are well."""

    def __init__(self, spec: Spec) -> None:
        mine, related = Lens(spec.subject), spec.needs or spec.not_after or spec.then
        assert related is not None
        self._mine, self._other = mine, _Other(mine, related)
        self._unless = [_Other(mine, each) for each in spec.unless]
        self._other_log = [one_log(self._other.lens, each.lens) for each in self._unless]
        self._alike = all(set(each.mine) <= set(self._other.mine) for each in self._unless)
        self.lenses: tuple[Lens, ...] = (mine, self._other.lens, *(each.lens for each in self._unless))

    def _groups(self, view: View) -> Iterator[tuple[list[Place], list[Place]]]:
        """Events with one key, and the others with that key."""
        others = self._other.by_key(view)
        for key, places in view.table(self._mine, self._other.mine).items():
            yield places, others.get(key, _NONE)

    def _undone(self, view: View, start: Place, end: Place, *, surely: bool) -> Place | None:
        """What came between the two and makes the first of no account."""
        for unless, start_log in zip(self._unless, self._other_log, strict=True):
            like = unless.like(end, view)
            if like and (
                found := _between(like, start, end, start_log=start_log, end_log=unless.one_log, surely=surely)
            ):
                return found
        return None


class _Needs(_Related):
    def breaks(self, view: View) -> Iterator[Break]:
        if not self._unless and self._all_well(view.table(self._mine, self._other.mine), self._other.by_key(view)):
            return
        for places, others in self._groups(view):
            first = self._other.last_before(others, places[0], surely=False) if others else None
            if first is not None and (not self._unless or self._lasts(view, first, places[-1])):
                continue
            for place in places:
                before = self._other.last_before(others, place, surely=False)
                if before is None:
                    yield Break(place)
                elif (undone := self._undone(view, before, place, surely=True)) is not None:
                    yield Break(place, (before, undone))

    def _all_well(self, mine: dict[Any, list[Place]], theirs: dict[Any, list[Place]]) -> bool:
        """Whether the first of each key comes after the first of the others, which settles nearly every trial."""
        if self._other.one_log:
            return all([key in theirs and theirs[key][0][0] < first[0] for key, (first, *_) in mine.items()])
        return all([key in theirs and theirs[key][0][1].at_ms <= first[1].at_ms for key, (first, *_) in mine.items()])

    def _lasts(self, view: View, first: Place, last: Place) -> bool:
        return self._alike and self._undone(view, first, last, surely=True) is None


class _NotAfter(_Related):
    def breaks(self, view: View) -> Iterator[Break]:
        if not self._other.by_key(view):
            return
        for places, others in self._groups(view):
            if not others or self._other.last_before(others, places[-1], surely=True) is None:
                continue
            for place in places:
                before = self._other.last_before(others, place, surely=True)
                if before is not None and self._undone(view, before, place, surely=False) is None:
                    yield Break(place, (before,))


class _Then(_Related):
    def breaks(self, view: View) -> Iterator[Break]:
        if self._other.one_log:
            mine, theirs = view.table(self._mine, self._other.mine), self._other.by_key(view)
            if all([key in theirs and theirs[key][-1][0] > places[-1][0] for key, places in mine.items()]):
                return
        for places, others in self._groups(view):
            if self._other.comes_after(others, places[-1]):
                continue
            for place in places:
                known = ((self._other, others), *((each, each.like(place, view)) for each in self._unless))
                if not any(each.comes_after(like, place) for each, like in known):
                    yield Break(place, (), (view.end,))


class _Within:
    def __init__(self, spec: Spec) -> None:
        assert spec.within is not None
        self._lens, self._within = Lens(spec.subject), spec.within
        bounded = spec.within.least is not None or spec.within.most is not None
        self._one_of = None if bounded or spec.within.one_of is None else frozenset(spec.within.one_of)
        self.lenses: tuple[Lens, ...] = (self._lens,)
        self._values = self._lens.keys((spec.within.field,))

    def breaks(self, view: View) -> Iterator[Break]:
        places = view.found(self._lens)
        values = self._values(places, view.calls)
        if self._one_of is not None and all([value in self._one_of for value in values]):
            return
        for place, value in zip(places, values, strict=True):
            if not self._inside(value):
                yield Break(place)

    def _inside(self, value: Any) -> bool:
        it = self._within
        if it.one_of is not None and value not in it.one_of:
            return False
        if it.least is None and it.most is None:
            return True
        number = isinstance(value, int | float)
        return number and (it.least is None or value >= it.least) and (it.most is None or value <= it.most)


class _AtMost:
    def __init__(self, spec: Spec) -> None:
        assert spec.at_most is not None
        self._lens, self._per, self._most = Lens(spec.subject), spec.per, spec.at_most
        self.lenses: tuple[Lens, ...] = (self._lens,)

    def breaks(self, view: View) -> Iterator[Break]:
        groups = view.table(self._lens, self._per).values()
        for places in groups if max(map(len, groups), default=0) > self._most else ():
            for n in range(self._most, len(places)):
                yield Break(places[n], tuple(places[:n]))


class _Rising:
    def __init__(self, spec: Spec) -> None:
        assert spec.rising is not None
        self._lens, self._per, self._rising = Lens(spec.subject), spec.per, spec.rising
        self.lenses: tuple[Lens, ...] = (self._lens,)
        self._values = self._lens.keys((spec.rising.field,))
        self._order = {name: rank for rank, name in enumerate(spec.rising.in_order)}

    def breaks(self, view: View) -> Iterator[Break]:
        for places in view.table(self._lens, self._per).values():
            before: Place | None = None
            for place in places:
                if before is not None and not self._up(before, place, view.calls):
                    yield Break(place, (before,))
                before = place

    def _up(self, before: Place, after: Place, calls: Calls) -> bool:
        low, high = self._values([before, after], calls)
        if self._order:
            low, high = self._order.get(low, -1), self._order.get(high, -1)
        return bool(low < high if self._rising.strictly else low <= high)


RULES: dict[str, Callable[[Spec], Rule]] = {
    "never": _Never,
    "needs": _Needs,
    "not_after": _NotAfter,
    "then": _Then,
    "within": _Within,
    "at_most": _AtMost,
    "rising": _Rising,
}
