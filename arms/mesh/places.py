"""The places that effects take: rows of equal ones, in which each that goes well, or is under way, has a number.

Why in memory: every attempt counts anew. What was had before stands in the ledger, under the key that a place leads to.
"""

from __future__ import annotations

from collections import defaultdict

Row = tuple[str, ...]
"""What the effects in it have in common; a row that belongs to one tool call begins with its id."""

Place = tuple[Row, int]


class Places:
    """The places of one process, by row."""

    def __init__(self) -> None:
        self._taken: defaultdict[Row, set[int]] = defaultdict(set)
        self._settled: dict[Row, int] = {}

    def free(self, row: Row) -> int:
        """The first number that no equal effect has or is about to have."""
        taken = self._taken[row]
        return min(set(range(len(taken) + 1)) - taken)

    def following(self, row: Row) -> int:
        """The next that is free; once an effect of this row was in doubt, whoever calls again means that one."""
        return self._settled.get(row, self.free(row))

    def take(self, place: Place) -> None:
        self._taken[place[0]].add(place[1])

    def give_back(self, place: Place) -> None:
        self._taken[place[0]].discard(place[1])

    def settle(self, place: Place) -> None:
        """The effect at this place was in doubt, and was found to be there."""
        self._settled[place[0]] = place[1]

    def clear(self, call_id: str) -> None:
        """A tool call is run once more: it means the same effects, not further ones."""
        for row in [row for row in self._taken if row[0] == call_id]:
            del self._taken[row]
