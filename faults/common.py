"""What most faults are: one fate at one site, once."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from harness.core.roles import Fate, FaultView, Pass, SiteOffer, Strike
from harness.core.types import Call

Pick = Callable[[str, int], int]


class OneShot(Struct, frozen=True, kw_only=True):
    """Strikes once, at the visit that its strike names; later crossings pass."""

    name: str
    variant: str
    strike: Strike
    decided: Fate

    def fate(self, call: Call, view: FaultView) -> Fate:
        return self.decided if view.fired == 0 and view.visit >= self.strike.visit else Pass()


def offers(sites: tuple[SiteOffer, ...], *tags: str) -> list[SiteOffer]:
    """The sites that carry all these tags."""
    return [s for s in sites if set(tags) <= set(s.tags)]


def one_of(found: list[SiteOffer], index: int, pick: Pick) -> SiteOffer:
    """A site for the `index`-th fault of a trial. Two faults of a trial draw independently."""
    if not found:
        raise LookupError("the workload offers no site for this fault")
    return found[pick(f"site{index}", len(found))]
