"""The policy of the progress breaker, read from `breaker.yaml`.

Why data: what counts as standing still is a matter of operation, and it changes without the code.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from arms.mesh.control import strict
from harness.core.types import Verdict


class SessionPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    repeats_max: int
    cycles_max: int
    period_max: int
    reworded_max: int
    transient_max: int
    window_calls: int
    rereads_max: int


class TurnPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    idle_max: int
    unjudged: frozenset[Verdict]


class CheckPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    stall_ms: float
    watch_ms: float


class RoundPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    stuck_max: int
    rounds_max: int
    draft_suspect: frozenset[str]


class GradedPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    component_grants_max: int
    run_grants_max: int
    run_stops_max: int
    models: dict[str, str]


class BreakerPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`breaker.yaml`; the meaning of each number stands beside it there."""

    version: int
    session: SessionPolicy
    turns: TurnPolicy
    checks: CheckPolicy
    rounds: RoundPolicy
    graded: GradedPolicy
    evidence_shown_max: int


POLICY = strict.load(Path(__file__).with_name("breaker.yaml"), BreakerPolicy)
