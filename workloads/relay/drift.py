"""When the scripted agent of the relay drifts, and the walks that only look like a drift.

Why drawn per completion: whether a turn begins a drift depends on the seed, the site and how many completions were
billed there before, never on the arm; how long it lasts is up to whoever refuses it. Ends with the attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from harness.core import rng
from workloads.common.agent import Action
from workloads.relay.facts import COMPONENTS, DRIFT, DRIFT_STRONG, DRIFT_TURNS, LOOKALIKE, WALK_TURNS

KINDS = ("repeat", "alternate", "volatile")


class Episode(Struct, frozen=True):
    """What a turn is part of. kind: one of KINDS, or `walk`; age: turns since it began."""

    kind: str
    age: int

    @property
    def drifting(self) -> bool:
        return self.kind in KINDS


def episode(
    seed: int, site: Sequence[object], nth: int, messages: Sequence[dict[str, Any]], model: str
) -> Episode | None:
    """The episode that this completion is part of, if any. site: stream, delegation and phase; nth: completions billed
    there before. The first turn of a conversation is never part of one."""
    turns = sum(m["role"] == "assistant" for m in messages)
    for age in range(min(turns, DRIFT_TURNS[1], nth + 1)):
        began = (*site, nth - age)
        chance = DRIFT if model == "scripted" else DRIFT_STRONG
        point = rng.draw(seed, "episode", *began)
        if point < chance and age < rng.integer(seed, *DRIFT_TURNS, "episode turns", *began):
            return None if _refused(messages, age) else Episode(rng.choice(seed, KINDS, "episode kind", *began), age)
        if chance <= point < chance + LOOKALIKE and age < WALK_TURNS:
            return None if _refused(messages, age) else Episode("walk", age)
    return None


def _refused(messages: Sequence[dict[str, Any]], turns: int) -> bool:
    """Whether a tool call of the last so many turns was refused."""
    asked = [n for n, m in enumerate(messages) if m["role"] == "assistant"]
    since = asked[-turns] if turns else len(messages)
    return any('"refused": true' in m["content"] for m in messages[since:] if m["role"] == "tool")


def actions(what: Episode, component: str, nth: int) -> list[Action]:
    """The tool calls of a turn of an episode."""
    spec: Action = ("read", {"path": f"{component}/SPEC.md"})
    listing: Action = ("list", {"path": component})
    if what.kind == "repeat":
        return [(spec, listing)[(nth - what.age) % 2]]  # the same for the whole episode
    if what.kind == "alternate":
        return [(spec, listing)[what.age % 2]]
    if what.kind == "volatile":
        return [("grep", {"pattern": f"TODO-{1_760_000_000_000 + 600 * nth}", "path": component})]
    others = [f"{c}/{file}" for c in COMPONENTS if c != component for file in ("SPEC.md", "settings.py")]
    found = others[2 * what.age : 2 * what.age + 2]
    return [("grep", {"pattern": f"{component}:", "path": path}) for path in found]
