"""Where what a delegation declared and what was observed of it part: the enforcement signal.

Why counted and not blocked here: a gate blocks what must not happen; this says how far a declaration can be trusted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from msgspec import Struct

from harness.core.types import EffectCall, EffectContract, Json

Effect = tuple[str, str, str]
"""Boundary, operation and target."""


class Divergence(Struct, frozen=True):
    """undeclared: observed effects that no clause covers. unobserved: clauses of which no effect was observed, as
    boundary, operation and target; "*" stands for any target. observed: kinds of effects, declared or not."""

    undeclared: tuple[Effect, ...]
    unobserved: tuple[Effect, ...]
    observed: int

    def told(self) -> dict[str, Json]:
        return {
            "undeclared": [list(effect) for effect in self.undeclared],
            "unobserved": [list(effect) for effect in self.unobserved],
            "observed": self.observed,
        }


def effect_of(call: EffectCall) -> Effect:
    return call.boundary, call.operation, call.target


def diverges(contract: EffectContract, seen: Iterable[tuple[Effect, bool]], accounted: Iterable[str]) -> Divergence:
    """Declaration against observation. seen: effects that this process let through, and whether a clause covers them.
    accounted: business keys of the ledger, for what processes before it let through; they name boundary and target."""
    every = dict(seen)
    before = {tuple(json.loads(business)[:2]) for business in accounted}
    before |= {(boundary, target) for boundary, _, target in every}
    clauses = {(c.boundary, c.operation, c.target) for c in contract.effects}
    unseen = {c for c in clauses if not any(b == c[0] and c[2] in ("*", t) for b, t in before)}
    undeclared = {effect for effect, declared in every.items() if not declared}
    return Divergence(tuple(sorted(undeclared)), tuple(sorted(unseen)), len(every))
