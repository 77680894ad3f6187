"""X6: the same check on the same workspace gives another answer, or the monitor itself fails."""

from __future__ import annotations

from typing import ClassVar

from faults.common import OneShot, Pick, offers, one_of
from harness.core.roles import Alter, SiteOffer

_FATES = {"flip": Alter(how="flip"), "monitor_raises": Alter(how="raise")}


class Nondeterminism:
    name: ClassVar[str] = "nondeterminism"
    code: ClassVar[str] = "X6"
    about: ClassVar[str] = "A check's verdict turns, or its monitor raises."
    variants: ClassVar[tuple[str, ...]] = tuple(_FATES)

    @classmethod
    def plan(cls, variant: str, index: int, sites: tuple[SiteOffer, ...], pick: Pick) -> OneShot:
        site = one_of(offers(sites, "check"), index, pick)
        strike = site.strike(site.visits)
        return OneShot(name=cls.name, variant=variant, strike=strike, decided=_FATES[variant])
