"""Whether an arm told repetitions from new effects: collisions and misses of its fingerprints, counted from outside.

What an arm calls a duplicate cannot be asked of the arm. A collision is two intended effects of which one was held back
for the other's sake; a miss is an effect that was asked for again, in whatever words, when the boundary held all that
was wanted of it, and that happened once more. Both are counted against the workload's intents (statistics A.6, D.2), so
an arm without a ledger misses everything, and one that merges by likeness collides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence

from harness.core.records import TAKEN_FOR_REPETITIONS, Finding, Intent, Recognition, SealedTrial
from harness.effects import Books, Key

Place = tuple[str, str, int]  # boundary, natural key, which of its wanted repetitions


def recognition(
    trial: SealedTrial, intents: Sequence[Intent], books: Books, findings: Sequence[Finding]
) -> dict[str, Recognition]:
    """Counts by boundary; boundaries without intents are left out.

    findings: those of the same books. An effect that carries several keys is a repetition in each of them by itself.
    """
    wanted = {(i.boundary, i.key): i.required for i in intents}
    intended, merged = Counter[str](), _merged(wanted, books, findings)
    for (boundary, _), required in wanted.items():
        intended[boundary] += required
    again, missed = _again(trial, wanted, books)
    return {
        boundary: Recognition(
            intents=count, merged=merged[boundary], regenerated=again[boundary], missed=missed[boundary]
        )
        for boundary, count in sorted(intended.items())
    }


def _again(trial: SealedTrial, wanted: dict[Key, int], books: Books) -> tuple[Counter[str], Counter[str]]:
    """By boundary, the effects that were asked for when all that was wanted was there, and those that then happened."""
    asked_ms = {e.data["call_id"]: e.at_ms for e in trial.trace if e.kind == "call" and e.data["call"] == "effect"}
    there_ms: dict[Key, list[float]] = defaultdict(list)
    caused: set[tuple[str, Key]] = set()
    for commit in books.committed:
        for key in commit.keys:
            there_ms[key].append(trial.truth[commit.order].at_ms)
            if commit.by is not None:
                caused.add((commit.by.asked.call_id, key))
    again, missed = Counter[str](), Counter[str]()
    for asked in books.asked:
        for key in set(asked.keys) & wanted.keys():
            if bisect_right(there_ms[key], asked_ms[asked.call_id]) >= wanted[key]:
                again[key[0]] += 1
                missed[key[0]] += (asked.call_id, key) in caused
    return again, missed


def _merged(wanted: dict[Key, int], books: Books, findings: Sequence[Finding]) -> Counter[str]:
    """By boundary, the pairs of intended effects that stood for each other. Merging is transitive: three effects under
    one fingerprint are three pairs."""
    groups = _Groups()
    for asked in books.asked:
        if books.foreign(asked):  # it was held back: what got through owns its receipt
            owners = books.owners[asked.keys[0][0], asked.receipt or ""]
            for key in set(asked.keys) & wanted.keys():
                for owner in owners & wanted.keys():
                    groups.join((*key, 0), (*owner, 0))
    for f in findings:
        if f.status in TAKEN_FOR_REPETITIONS and 0 < f.observed < f.required:  # one of several that are wanted alike
            for nth in range(f.observed, f.required):
                groups.join((f.boundary, f.key, 0), (f.boundary, f.key, nth))
    pairs = Counter[str]()
    for (boundary, _, _), size in groups.sizes().items():
        pairs[boundary] += size * (size - 1) // 2
    return pairs


class _Groups:
    """Sets of places that grow together."""

    def __init__(self) -> None:
        self._parents: dict[Place, Place] = {}

    def _root(self, place: Place) -> Place:
        while (parent := self._parents.setdefault(place, place)) != place:
            place = parent
        return place

    def join(self, one: Place, other: Place) -> None:
        self._parents[self._root(one)] = self._root(other)

    def sizes(self) -> Counter[Place]:
        return Counter(self._root(place) for place in list(self._parents))
