"""X3: a check that never returns, or that is slow but gets on."""

from __future__ import annotations

from typing import ClassVar

from faults.common import OneShot, Pick, offers, one_of
from harness.core.roles import Hang, SiteOffer

SLOW_MS = 90_000.0
"""Longer than a 60 s test timeout (Bazel's `short`), much shorter than its `moderate` 300 s."""

_FATES = {"hung": Hang(), "hung_after_work": Hang(after=True), "slow": Hang(ms=SLOW_MS)}


class HungCheck:
    name: ClassVar[str] = "hung_check"
    code: ClassVar[str] = "X3"
    about: ClassVar[str] = "A check's process stops before or after its work; or it is slow, with progress."
    variants: ClassVar[tuple[str, ...]] = tuple(_FATES)

    @classmethod
    def plan(cls, variant: str, index: int, sites: tuple[SiteOffer, ...], pick: Pick) -> OneShot:
        site = one_of(offers(sites, "check"), index, pick)
        strike = site.strike(site.visits)
        return OneShot(name=cls.name, variant=variant, strike=strike, decided=_FATES[variant])
