"""X5: the model provider fails, before or after the tokens were spent."""

from __future__ import annotations

from typing import ClassVar

from faults.common import OneShot, Pick, offers, one_of
from harness.core.roles import Cut, Fail, Fate, SiteOffer

_FATES: dict[str, Fate] = {
    "rate_limited": Fail(code="http-429"),
    "unavailable": Fail(code="http-503"),
    "reset": Cut(how="reset", ms=1_000.0, stream="upstream"),
    "response_lost": Cut(how="limit", ms=0.0, stream="downstream", bytes=0),
    "stream_cut": Cut(how="limit", ms=0.0, stream="downstream", bytes=700),
}
"""700 bytes: past the headers and the opening of a streamed answer, inside its first tool call."""


class ProviderInterruption:
    name: ClassVar[str] = "provider_interruption"
    code: ClassVar[str] = "X5"
    about: ClassVar[str] = "429, 503, connection reset, response lost after billing, stream cut inside a tool call."
    variants: ClassVar[tuple[str, ...]] = tuple(_FATES)

    @classmethod
    def plan(cls, variant: str, index: int, sites: tuple[SiteOffer, ...], pick: Pick) -> OneShot:
        site = one_of(offers(sites, "model"), index, pick)
        strike = site.strike(1 + pick(f"visit{index}", site.visits))
        return OneShot(name=cls.name, variant=variant, strike=strike, decided=_FATES[variant])
