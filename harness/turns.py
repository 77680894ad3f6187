"""What agents did, read from the trace of a trial: their turns, and the instances of phases that came of them.

Why apart from the accounting of tokens: effects are judged by the same instances, and an instance is not simply an
attempt: an arm may use a number twice, and a process may die between doing and telling.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from harness.core.records import Event

File = tuple[str, str]  # path, digest
Address = tuple[str, str, int, int, int]  # delegation, phase, attempt, epoch, turn


class Turn(Struct, frozen=True, kw_only=True):
    """A `turn` event of the trace. order: its position in the trace, a total order over all processes. go: how often
    the orchestrator had begun an attempt of this number by then; an arm numbers attempts as it likes, and one that
    used a number twice would pass what it discarded off as the dead ends of an accepted attempt."""

    order: int
    at_ms: float
    epoch: int
    go: int
    delegation: str
    attempt: int
    phase: str
    turn: int
    completion: str | None
    reads: frozenset[File]
    writes: tuple[tuple[str, str, str], ...]  # path, digest, write|edit
    checks: tuple[tuple[str, bool], ...]
    done: bool

    @property
    def address(self) -> Address:
        return self.delegation, self.phase, self.attempt, self.epoch, self.turn

    @property
    def written(self) -> frozenset[File]:
        return frozenset((path, digest) for path, digest, _ in self.writes)

    def touches(self, path: str, reading: bool) -> bool:
        """Whether it wrote the path, or, if reading counts, read it."""
        return any(path == p for p, _, _ in self.writes) or (reading and any(path == p for p, _ in self.reads))


class Instance(Struct, frozen=True):
    """One go at a phase, by one attempt in one process. order, files: of the checkpoint that accepted it. go: as of
    its turns."""

    delegation: str
    phase: str
    attempt: int
    epoch: int
    order: int
    files: dict[str, str]
    go: int = 0

    def holds(self, turn: Turn) -> bool:
        here = self.delegation, self.phase, self.attempt, self.epoch, self.go
        return (*turn.address[:4], turn.go) == here


def turns_of(trace: Sequence[Event]) -> tuple[Turn, ...]:
    """All turn events, in the order of the trace."""
    begun: Counter[tuple[str, int]] = Counter()
    turns = []
    for order, e in enumerate(trace):
        if e.kind == "attempt":
            begun[_number(e)] += 1
        elif e.kind == "turn":
            place = {"order": order, "at_ms": e.at_ms, "epoch": e.epoch, "go": begun[_number(e)]}
            turns.append(msgspec.convert({**e.data, **place}, Turn))
    return tuple(turns)


def _number(event: Event) -> tuple[str, int]:
    return event.data["delegation"], event.data["attempt"]


def done_delegations(trace: Sequence[Event]) -> frozenset[str]:
    """The delegations whose last word was `done`."""
    last = {e.data["delegation"]: e.data["status"] for e in trace if e.kind == "delegation_end"}
    return frozenset(d for d, status in last.items() if status == "done")


def instances(trace: Sequence[Event]) -> dict[tuple[str, str], Instance]:
    """The instance of each (delegation, phase) that was checkpointed last; where none was seen, the last that worked.

    A process may die between the durable publish, the record of it and the trace of that. Its successor then writes
    the checkpoint without a turn of its own, or goes on with the next phase: the instance is that of the youngest
    process up to then with turns in this attempt.
    """
    begun: Counter[tuple[str, int]] = Counter()
    worked: dict[tuple[str, str, int], list[tuple[int, int]]] = defaultdict(list)  # epoch, go
    found: dict[tuple[str, str], Instance] = {}
    seen: dict[tuple[str, str], Instance] = {}
    for order, e in enumerate(trace):
        if e.kind == "attempt":
            begun[_number(e)] += 1
        elif e.kind == "turn":
            key, go = (e.data["delegation"], e.data["phase"]), begun[_number(e)]
            worked[*key, e.data["attempt"]].append((e.epoch, go))
            seen[key] = Instance(*key, e.data["attempt"], e.epoch, order, {}, go)
        elif e.kind == "checkpoint":
            key, now = (e.data["delegation"], e.data["phase"]), (e.epoch, begun[_number(e)])
            epoch, go = max((n for n in worked[*key, e.data["attempt"]] if n <= now), default=now)
            found[key] = Instance(*key, e.data["attempt"], epoch, order, e.data["files"], go)
    return seen | found
