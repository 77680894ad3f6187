"""A process of its own that looks at a run while it goes on, and says after every pair whether it may end.

Why a process: judging loads oracles, and nothing that runs trials may ever hold one. It reads what is sealed, like any
reader, and the only thing that comes back is a line of numbers.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from harness.core.errors import ConfigError
from harness.report.arrange import arrange
from harness.report.prereg import Prereg, parse_prereg
from harness.report.rows import Row, ordered, row_of
from harness.report.stopping import UNTIL, Look, Until, look
from harness.schedule import canonical, from_resolved, trials
from harness.score import oracle_of, score
from harness.trace_store import TraceStore

POLL_S = 0.5


class Watch:
    """The rows of a run as far as it is sealed. until: the rule by which it may end."""

    def __init__(self, folder: Path, until: Until) -> None:
        self._folder, self._until = folder, until
        self._rows: dict[str, Row] = {}
        self._looked, self._ended = 0, False
        with TraceStore.open(folder) as store:
            self._manifest = store.manifest
        self._prereg: Prereg = parse_prereg(self._manifest["preregistration"]["document"])
        self._pairs: dict[int, list[str]] = {}
        for spec in trials(from_resolved(canonical(self._manifest["schedule"]["resolved"]))):
            if not spec.twin:
                self._pairs.setdefault(spec.index, []).append(spec.id)

    def look(self) -> Look | None:
        """Judge what was sealed since the last time; None where no further pair is complete in all of its arms, or the
        run was allowed to end already."""
        with TraceStore.open(self._folder) as store:
            complete = list(_complete(self._pairs, store.sealed_ids()))
            if len(complete) <= self._looked or self._ended:
                return None
            wanted = [trial for index in complete[self._looked :] for trial in self._pairs[index]]
            for trial_id in wanted:
                trial = store.read(trial_id)
                self._rows[trial_id] = row_of(score(trial, oracle_of(trial.record.workload)))
        run = arrange(ordered(self._rows.values()), self._manifest, self._prereg)
        treatment = run.rows[run.treatment] if run.treatment else ()
        looked, self._looked = self._looked, len(complete)
        seen = look(run.rows[run.control], treatment, self._prereg, self._until, looked)
        self._ended = seen.stop_at is not None
        return seen


def _complete(pairs: dict[int, list[str]], sealed: Iterable[str]) -> Iterator[int]:
    """The pairs of the registered prefix of which every trial is sealed."""
    held = set(sealed)
    for index in sorted(pairs):
        if not held.issuperset(pairs[index]):
            return
        yield index


def main(folder: str, until: str) -> None:
    """Say looks as lines of JSON until standard input ends; then look once more, since the run is over."""
    if until not in UNTIL:
        raise ConfigError(f"unknown rule {until!r}", allowed=", ".join(UNTIL))
    watch, over = Watch(Path(folder), until), False
    while not over:
        over = bool(select.select([sys.stdin], [], [], POLL_S)[0])
        seen = watch.look()
        if seen is not None:
            sys.stdout.buffer.write(msgspec.json.encode(seen) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except BrokenPipeError:  # the run is dead: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the end flushes into the same pipe
