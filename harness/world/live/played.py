"""Which recorded answers a replay has asked for, noted by all processes of a run in one file.

Why: a replay that asks for fewer answers than were recorded misses none of them, and yet is not the run that was
recorded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from harness.world.live.cassette import Tape, ident_of

BEGUN = -1
"""In place of an answer: the trial begins, and what an earlier try asked for counts no more."""


class Played:
    """Appends to a file of lines `trial place`, each by one write, so that several processes can share it."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def mark(self, trial: str, place: int) -> None:
        """The answer at this place of the cassette was asked for, or BEGUN. Raises OSError when the disk is full."""
        line = f"{trial} {place}\n".encode()
        if os.write(self._fd, line) != len(line):
            raise OSError("what a replay asked for could not be noted in full")

    def close(self) -> None:
        os.close(self._fd)


def never_asked(tape: Tape, path: Path, trials: Mapping[str, str | None]) -> tuple[int, int]:
    """How many answers recorded for these trials nobody asked for, and how many were recorded for them.

    trials: of each the id of the completion that reached a limit, None where none did. What was under way when a limit
    stopped a trial changed nothing any more and is a matter of chance, so it is not missed.
    """
    asked: dict[str, set[int]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        trial, _, place = line.rpartition(" ")
        if int(place) == BEGUN:
            asked[trial] = set()
        else:
            asked.setdefault(trial, set()).add(int(place))
    held = {trial: tape.order(trial) for trial in trials}
    last = {e.trial: tape.place(e) for e in tape.entries() if trials.get(e.trial) == ident_of(e)}
    unasked = sum(
        place not in asked.get(trial, ()) and place <= last.get(trial, place)
        for trial, places in held.items()
        for place in places
    )
    return unasked, sum(map(len, held.values()))
