"""The policy of the budget lattice, read from `budget.yaml`.

Why data: what a failure may cost is a matter of operation, and it changes without the code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

from arms.mesh.control import strict
from harness.core.errors import ConfigError

Quantity = Literal["tokens", "turns", "checks"]
Ceiling = Literal["run", "component", "delegation"]
Allowance = Literal["strategy", "fingerprint", "session"]


class BudgetPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`budget.yaml`. ceilings are durable; allowances begin anew with each process of the orchestrator. ladder: tokens
    that are held for an answer, tried in this order."""

    version: int
    ladder: tuple[int, ...]
    ceilings: dict[Ceiling, dict[Quantity, int]]
    allowances: dict[Allowance, dict[Quantity, int]]
    credit: int

    def __post_init__(self) -> None:
        if not self.ladder or list(self.ladder) != sorted(self.ladder, reverse=True):
            raise ConfigError(f"the ladder is {list(self.ladder)}", where="ladder", allowed="numbers that go down")


POLICY = strict.load(Path(__file__).with_name("budget.yaml"), BudgetPolicy)
