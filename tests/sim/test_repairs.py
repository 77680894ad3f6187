"""Repairs in whole trials on virtual time: who is woken, and that a process that dies in the middle resumes right."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import pytest
from msgspec import Struct
from msgspec.structs import replace

from arms.common.repairs import RepairWaking
from arms.mesh.m5_routing import FailureRouting
from arms.naive.arm import NAIVE
from harness.core.roles import Arm, Die, Fate, FaultView, Pass, Strike
from harness.core.types import Call, Seam
from harness.simulate import run_sim
from harness.trial import Parts, TrialResult
from tests.sim.test_trials import spec
from workloads import WORKLOADS
from workloads.relay.facts import facts

ROUTED = replace(
    NAIVE,
    name="routed",
    contained=True,
    layers=lambda ctx: (
        FailureRouting(ctx),
        *(layer for layer in NAIVE.layers(ctx) if not isinstance(layer, RepairWaking)),
    ),
)
SEEDS = [seed for seed in range(40) if len(facts(seed).defective) == 2 and not facts(seed).flow_first][:4]


class Death(Struct, frozen=True):
    """The process dies once at this site."""

    strike: Strike
    name: str = "death"
    variant: str = ""

    def fate(self, call: Call, view: FaultView) -> Fate:
        return Die() if view.visit == self.strike.visit and not view.fired else Pass()


def deaths(strike: Strike) -> Any:
    class Deaths:
        name: ClassVar[str] = "death"
        code: ClassVar[str] = "X1"
        about: ClassVar[str] = ""
        variants: ClassVar[tuple[str, ...]] = ("",)

        @classmethod
        def plan(cls, variant: str, index: int, sites: Any, pick: Any) -> Death:
            return Death(strike)

    return Deaths


def trial(arm: Arm, seed: int, strike: Strike | None = None) -> TrialResult:
    one = replace(spec(arm.name, seed=seed), workload="relay")
    one = replace(one, limits=replace(one.limits, tokens=10**9, turns=10**6))
    if strike is None:
        return run_sim(one, Parts(WORKLOADS["relay"], arm, None))
    planned = replace(spec(arm.name, "orchestrator_restart", "x", seed), workload="relay", limits=one.limits)
    return run_sim(replace(planned, faults=planned.faults[:1]), Parts(WORKLOADS["relay"], arm, deaths(strike)))


def attempts(result: TrialResult) -> list[tuple[str, int]]:
    """Repairs and acceptances in order, each attempt once, however often it was entered."""
    seen = [(e.data["delegation"], e.data["attempt"]) for e in result.trace if e.kind == "attempt"]
    return sorted({one for one in seen if one[0] == "acceptance" or one[0].startswith("repair/")})


def ends(result: TrialResult) -> dict[str, str]:
    return {e.data["delegation"]: e.data["status"] for e in result.trace if e.kind == "delegation_end"}


@pytest.mark.parametrize("seed", SEEDS)
def test_only_the_defective_components_are_woken(seed: int) -> None:
    result = trial(ROUTED, seed)
    assert {name for name, _ in attempts(result)} == {"acceptance", *(f"repair/{c}" for c in facts(seed).defective)}
    assert ends(result)["acceptance"] == "done"


PLACES = [
    ("repair", Seam.MODEL, "chat", 1, "before"),
    ("repair", Seam.MODEL, "chat", 1, "after"),
    ("repair", Seam.MODEL, "chat", 3, "before"),
    ("repair", Seam.COMMIT, "stage", 1, "after"),
    ("repair", Seam.COMMIT, "publish", 1, "before"),  # after it the repair would meet its own work
    ("acceptance", Seam.MODEL, "chat", 2, "before"),
    ("acceptance", Seam.MODEL, "chat", 2, "after"),
]


@pytest.mark.parametrize(("where", "seam", "name", "visit", "moment"), PLACES)
def test_a_death_in_the_middle_repeats_no_repair_and_takes_no_further_number(
    where: str, seam: Seam, name: str, visit: int, moment: Literal["before", "after"]
) -> None:
    for seed in SEEDS[:2]:
        delegation = f"repair/{facts(seed).defective[0]}" if where == "repair" else where
        strike = Strike(seam=seam, name=name, delegation=delegation, moment=moment, visit=visit)
        quiet, struck = trial(ROUTED, seed), trial(ROUTED, seed, strike)
        assert struck.record.exposure["fired"] == 1
        assert ends(struck)["acceptance"] == "done"
        assert attempts(struck) == attempts(quiet)
        ended = [e.data["delegation"] for e in struck.trace if e.kind == "attempt_end" and e.data["status"] == "done"]
        assert (
            len([d for d in ended if d.startswith("repair/")]) == len(set(ended) & {d for d, _ in attempts(quiet)}) - 1
        )
