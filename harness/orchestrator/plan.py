"""Which delegations may start: pure decisions over the DAG, with failure isolated to what depends on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.errors import ConfigError
from harness.core.types import Delegation

DEPTH_MAX = 3


def ready(plan: Sequence[Delegation], ended: Mapping[str, str], running: set[str]) -> list[Delegation]:
    """Delegations whose needs all ended well and that neither run nor ended, in the order of the plan."""
    return [
        d
        for d in plan
        if d.id not in ended and d.id not in running and all(ended.get(need) == "done" for need in d.needs)
    ]


def unreachable(plan: Sequence[Delegation], ended: Mapping[str, str]) -> list[Delegation]:
    """Delegations that can never start, because something they need ended otherwise than well."""
    lost = {id for id, status in ended.items() if status != "done"}
    for _ in plan:  # a chain is at most as long as the plan
        lost |= {d.id for d in plan if any(need in lost for need in d.needs)}
    return [d for d in plan if d.id in lost and d.id not in ended]


def validate(plan: Sequence[Delegation]) -> None:
    """Raise ConfigError unless ids are unique, needs and parents exist, there is no cycle and no depth over 3."""
    ids = [d.id for d in plan]
    for d in plan:
        if ids.count(d.id) > 1:
            raise ConfigError(f"delegation {d.id!r} appears twice")
        for other in (*d.needs, *([d.parent] if d.parent else [])):
            if other not in ids:
                raise ConfigError(f"delegation {d.id!r} names {other!r}", allowed=", ".join(ids))
        if not 1 <= d.depth <= DEPTH_MAX:
            raise ConfigError(f"delegation {d.id!r} has depth {d.depth}", allowed=f"1 to {DEPTH_MAX}")
    done: dict[str, str] = {}
    while len(done) < len(plan):
        layer = ready(plan, done, set())
        if not layer:
            raise ConfigError("delegations wait for each other: " + ", ".join(i for i in ids if i not in done))
        done |= {d.id: "done" for d in layer}
