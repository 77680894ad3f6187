"""`example`: the provider is down for several calls in a row."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from faults.common import Pick, offers, one_of
from harness.core.roles import Fail, Fate, FaultView, Pass, SiteOffer, Strike
from harness.core.types import Call


class ExampleFault(Struct, frozen=True, kw_only=True):
    """One fault of one trial. `fate` must be pure; error codes are those that the world can produce."""

    name: str
    variant: str
    strike: Strike
    calls: int

    def fate(self, call: Call, view: FaultView) -> Fate:
        return Fail(code="http-503") if view.fired < self.calls else Pass()


class Example:
    """How the faults of a trial are made, from the sites that the workload offers."""

    name: ClassVar[str] = "example"
    code: ClassVar[str] = "X5"
    about: ClassVar[str] = "503 for so many model calls in a row."
    variants: ClassVar[tuple[str, ...]] = ("calls_2", "calls_5")

    @classmethod
    def plan(cls, variant: str, index: int, sites: tuple[SiteOffer, ...], pick: Pick) -> ExampleFault:
        site = one_of(offers(sites, "model"), index, pick)
        strike = Strike(seam=site.seam, name=site.name, delegation=site.delegation, phase=site.phase)
        return ExampleFault(name=cls.name, variant=variant, strike=strike, calls=int(variant.removeprefix("calls_")))
