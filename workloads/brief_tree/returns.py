"""What hops hand up: composed by the script, and read by the parents and by the judge.

The bytes of a return depend on what it says and on nothing else, so that the accepted report can be known in advance.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from workloads.brief_tree.contract import COLUMNS
from workloads.brief_tree.facts import WORKERS, Facts, brief, children_of, needed, neighbour

_DATES = ("2026-03-16", "2026-02-02")
_STALE = "2025-06-30"
_DOMAIN = "https://f.example"


class Company(Struct, frozen=True):
    """What a return says of a company: claims as (source, date)."""

    name: str
    claims: tuple[tuple[str, str], ...]


class Return(Struct, frozen=True, kw_only=True):
    """A return as text, and the children whose part the parent had to make itself."""

    text: str
    repaired: tuple[str, ...] = ()


def company(name: str, claims: int) -> Company:
    """A company with so many claims, youngest first, as whoever looks it up finds it."""
    slug = name.lower().replace(" ", "-")
    return Company(name, tuple((f"{_DOMAIN}/{slug}/{n}", date) for n, date in enumerate(_DATES[:claims])))


def text_of(companies: Iterable[Company]) -> str:
    """A return as CSV, one line per claim; a company without one has a line by itself."""
    lines = [f"{one.name},{source},{as_of}\n" for one in companies for source, as_of in (one.claims or (("", ""),))]
    return "".join([f"{','.join(COLUMNS)}\n", *lines])


def flawless(scope: Iterable[str], hop: str) -> str:
    """The return that says what a brief of this scope asks for."""
    return text_of(company(name, needed(hop)) for name in scope)


def consumable(text: str | None, hop: str) -> list[Company] | None:
    """The companies of a return, if the parent of the hop can write from it; it does not ask whether they are the right
    ones."""
    header, *rows = list(csv.reader(io.StringIO(text or ""))) or [[]]
    if header != COLUMNS or not rows or any(len(row) != len(COLUMNS) for row in rows):
        return None
    names = dict.fromkeys(row[0] for row in rows)
    claims = {name: tuple((source, as_of) for one, source, as_of in rows if one == name and as_of) for name in names}
    return [Company(*one) for one in claims.items()] if all(len(c) >= needed(hop) for c in claims.values()) else None


def composed(f: Facts, hop: str, received: Mapping[str, str | None], given_up: int, nth: int) -> Return:
    """The `nth` return of a hop, from 0, with the mistake that it has by draw. received: what its children handed up.

    A supervisor passes on what it got where it can write from it. Told that something is wrong, it makes its return
    anew from its brief, as a worker does.
    """
    scope, slip = brief(f, hop)["scope"], f.slip(hop, given_up, nth)
    own = [company(name, needed(hop)) for name in scope]
    repaired: list[str] = []
    if hop not in WORKERS:
        passed: list[Company] = []
        for child in children_of(hop):
            asked = brief(f, child)["scope"]
            got = consumable(received.get(child), child)
            strange = nth > 0 and got is not None and {one.name for one in got} != set(asked)
            if got is None or strange:
                repaired.append(child)
            passed += [_youngest(one) for one in got] if got is not None else [company(name, 1) for name in asked]
        own = own if nth > 0 else sorted(passed, key=lambda one: one.name)
    return Return(text=text_of(_slipped(own, slip, hop)), repaired=tuple(repaired))


def _youngest(one: Company) -> Company:
    return replace(one, claims=tuple(sorted(one.claims, key=lambda claim: claim[1], reverse=True)[:1]))


def _slipped(companies: list[Company], slip: str, hop: str) -> list[Company]:
    """The companies with this mistake in the first of them."""
    if not slip or not companies:
        return companies
    first, *others = companies
    (source, as_of), *rest = first.claims or (("", ""),)
    drifted = company(neighbour(hop), needed(hop))
    made: dict[str, list[Company]] = {
        "no_date": [replace(first, claims=((source, ""), *rest)), *others],
        "bare_source": [replace(first, claims=((_DOMAIN, as_of), *rest)), *others],
        "stale": [replace(first, claims=tuple((source, _STALE) for source, _ in first.claims)), *others],
        "thin": [replace(first, claims=first.claims[: needed(hop) - 1]), *others],
        "unsorted": [replace(one, claims=one.claims[::-1]) for one in companies[::-1]],
        "swapped": [*others, drifted],
        "extra": [*companies, drifted],
    }
    return made[slip]
