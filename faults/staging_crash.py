"""X1: the orchestrator dies inside transaction staging, or around an effect."""

from __future__ import annotations

from typing import ClassVar

from faults.common import OneShot, Pick, offers, one_of
from harness.core.roles import Die, SiteOffer

_COMMIT = {
    "before_stage": ("stage", "before", False),
    "after_stage": ("stage", "after", False),
    "before_publish": ("publish", "before", False),
    "published_unrecorded": ("publish", "after", True),
}
_EFFECT = {
    "effect_before": ("before", False),
    "effect_unacknowledged": ("after", False),
    "effect_unrecorded": ("after", True),
}


class StagingCrash:
    name: ClassVar[str] = "staging_crash"
    code: ClassVar[str] = "X1"
    about: ClassVar[str] = "SIGKILL of the orchestrator around a commit's stage and publish, or around an effect."
    variants: ClassVar[tuple[str, ...]] = (*_COMMIT, *_EFFECT)

    @classmethod
    def plan(cls, variant: str, index: int, sites: tuple[SiteOffer, ...], pick: Pick) -> OneShot:
        if variant in _COMMIT:
            step, moment, at_record = _COMMIT[variant]
            site = one_of(offers(sites, "commit", step), index, pick)
        else:
            moment, at_record = _EFFECT[variant]
            site = one_of(offers(sites, "effect"), index, pick)
        strike = site.strike(1 + pick(f"visit{index}", site.visits), "before" if moment == "before" else "after")
        return OneShot(name=cls.name, variant=variant, strike=strike, decided=Die(at_record=at_record))
