"""X4: the network is cut during an install, or on the way to the transport, a database or a git remote."""

from __future__ import annotations

from typing import ClassVar, Literal

from faults.common import OneShot, Pick, offers, one_of
from harness.core.roles import Cut, SiteOffer

_STREAMS: tuple[Literal["upstream"], Literal["downstream"]] = ("upstream", "downstream")
_HOW = ("reset", "timeout", "blackhole", "limit")
_CUT_MS = 3_000.0
_BLACKHOLE_MS = 12_000.0  # longer than the 10 s after which a client gives up


def _cut(how: str, pick: Pick, index: int) -> Cut:
    stream = _STREAMS[pick(f"stream{index}", 2)]
    if how == "reset":
        return Cut(how="reset", ms=_CUT_MS, stream=stream)
    if how == "timeout":
        return Cut(how="timeout", ms=_CUT_MS, stream=stream, hold_ms=2_000.0)
    if how == "blackhole":
        return Cut(how="blackhole", ms=_BLACKHOLE_MS, stream=stream)
    return Cut(how="limit", ms=0.0, stream=stream, bytes=10)


class NetworkPartition:
    name: ClassVar[str] = "network_partition"
    code: ClassVar[str] = "X4"
    about: ClassVar[str] = "Reset, held and closed, black hole, or cut after n bytes, towards one boundary."
    variants: ClassVar[tuple[str, ...]] = tuple(
        f"{boundary}_{how}" for boundary in ("registry", "transport", "database") for how in _HOW
    )
    further: ClassVar[tuple[str, ...]] = tuple(f"repository_{how}" for how in _HOW)

    @classmethod
    def plan(cls, variant: str, index: int, sites: tuple[SiteOffer, ...], pick: Pick) -> OneShot:
        boundary, _, how = variant.partition("_")
        site = one_of(offers(sites, "effect", boundary), index, pick)
        strike = site.strike(1 + pick(f"visit{index}", site.visits))
        return OneShot(name=cls.name, variant=variant, strike=strike, decided=_cut(how, pick, index))
