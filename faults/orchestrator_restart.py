"""X2: the orchestrator is restarted between turns, between delegations, or while it resumes."""

from __future__ import annotations

from typing import ClassVar

from faults.common import OneShot, Pick, offers, one_of
from harness.core.roles import Die, SiteOffer, Strike
from harness.core.types import Seam


class OrchestratorRestart:
    name: ClassVar[str] = "orchestrator_restart"
    code: ClassVar[str] = "X2"
    about: ClassVar[str] = "SIGKILL or SIGTERM between turns, between delegations, or during a resume."
    variants: ClassVar[tuple[str, ...]] = ("between_turns", "between_delegations", "during_resume")

    @classmethod
    def plan(cls, variant: str, index: int, sites: tuple[SiteOffer, ...], pick: Pick) -> OneShot:
        decided = Die(signal="SIGTERM" if pick(f"signal{index}", 2) else "SIGKILL")
        if variant == "during_resume" and index > 0:  # the first of the pair makes the resume that this one hits
            strike = Strike(seam=Seam.MODEL, name="chat", epoch_min=1)
            return OneShot(name=cls.name, variant=variant, strike=strike, decided=decided)
        tag = "start" if variant == "between_delegations" else "model"
        site = one_of(offers(sites, tag), index, pick)
        visit = 1 if variant == "between_delegations" else site.visits
        strike = site.strike(visit)
        return OneShot(name=cls.name, variant=variant, strike=strike, decided=decided)
