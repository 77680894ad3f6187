"""How workloads declare their effects and offer the sites where faults may strike."""

from __future__ import annotations

from collections.abc import Iterable

from harness.core.roles import SiteOffer
from harness.core.types import DeclaredEffect, Delegation, Seam

FETCH = DeclaredEffect(boundary="registry", operation="fetch", target="*", key=("package", "version"), content=True)
CHAT = DeclaredEffect(boundary="provider", operation="chat", target="small", key=("metadata.ref",), content=True)
PUSH = DeclaredEffect(
    boundary="repository",
    operation="push",
    target="origin",
    key=("ref", "trailers.Change-Ref"),
    volatile=("new", "old"),
)
TAG = DeclaredEffect(
    boundary="repository", operation="tag", target="origin", key=("ref", "trailers.Change-Ref"), volatile=("new", "old")
)
HOOK = DeclaredEffect(boundary="hook", operation="run", target="publish_manifest", key=("path",), volatile=("digest",))


def events(stream: str) -> DeclaredEffect:
    """Events on a stream. What differs between two spellings is declared as far as its author thought of it."""
    return DeclaredEffect(
        boundary="transport",
        operation="XADD",
        target=stream,
        key=("event.type", "event.subject"),
        volatile=("event.id", "event.time", "event.traceparent"),
    )


def rows(service: str, *keys: str) -> DeclaredEffect:
    """Rows of a service's database, by the columns that name them."""
    return DeclaredEffect(
        boundary="database", operation="execute", target=service, key=keys, volatile=("row.created_at",)
    )


def phase_sites(delegations: Iterable[Delegation], committing: Iterable[str]) -> list[SiteOffer]:
    """Two model calls of each phase, and the commits of the delegations that write."""
    offers = []
    for d in delegations:
        for phase in d.phases:
            if d.id in committing:
                offers += [
                    SiteOffer(delegation=d.id, phase=phase, seam=Seam.COMMIT, name=step, tags=("commit", step))
                    for step in ("stage", "publish")
                ]
            tags = ("model", *(("start",) if phase == d.phases[0] else ()))
            offers.append(SiteOffer(delegation=d.id, phase=phase, seam=Seam.MODEL, name="chat", visits=2, tags=tags))
    return offers


def effect_site(delegation: str, phase: str, boundary: str, check: str, visits: int = 1) -> SiteOffer:
    """The effects of a check at one boundary."""
    return SiteOffer(
        delegation=delegation,
        phase=phase,
        seam=Seam.TOOL,
        name=boundary,
        check=check,
        visits=visits,
        tags=("effect", boundary),
    )


def check_site(delegation: str, phase: str, check: str, visit: int = 1) -> SiteOffer:
    """One run of a check: rates of real check failures are per run."""
    return SiteOffer(
        delegation=delegation,
        phase=phase,
        seam=Seam.TOOL,
        name="run_check",
        check=check,
        visits=visit,
        tags=("check",),
    )
