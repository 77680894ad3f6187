"""The outside of an orchestrator, behind one protocol: the live and the sim world are two answers to it.

A call may come with a harm, a fate that `inject` decided: the world then really suffers it, and the side that was
harmed says so in the truth.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from harness.core.roles import Alter, Cut, Fail, Hang
from harness.core.types import (
    Attempt,
    Commit,
    DeclaredEffect,
    EffectCall,
    Json,
    ModelCall,
    Outcome,
    Probe,
    ToolCall,
)

Harm = Fail | Hang | Cut | Alter
Truth = Callable[[str, Mapping[str, Json]], None]
CrossEffect = Callable[[EffectCall], Awaitable[Outcome]]


class World(Protocol):
    """Where calls take effect. `bind` hands it the way by which effects of its processes cross S2."""

    def bind(self, cross_effect: CrossEffect) -> None: ...
    async def begin(self, attempt: Attempt) -> None: ...
    def changes(self, attempt: Attempt) -> dict[str, str | None]: ...
    def accepted(self, attempt: Attempt) -> dict[str, str]: ...
    async def model(self, call: ModelCall, harm: Harm | None) -> Outcome: ...
    async def tool(self, call: ToolCall, harm: Harm | None) -> Outcome: ...
    async def effect(self, call: EffectCall, harm: Harm | None) -> Outcome: ...
    async def commit(self, call: Commit, harm: Harm | None) -> Outcome: ...
    async def probe(self, call: EffectCall, declared: DeclaredEffect) -> Probe: ...
    def progress(self, call_id: str) -> int: ...
