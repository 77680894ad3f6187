"""M5, failure routing: the owner of the first transition that is not proven is woken, and nobody else.

That a component takes part in a failing scenario does not mean that it caused the failure, and waking it is a mandate
to edit code that was right. Where the evidence is ambiguous the router says that it abstains and falls back to
coverage, so that the true owner is never excluded. A complete ladder is no pass, and quarantined evidence is none.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from arms.common.evidence import Choice, Evidence, Seen, covered
from arms.common.repairs import RepairWaking
from arms.mesh.m6_quarantine import Observations
from arms.mesh.topology import Graph, Missing, climbs, unbegun
from harness.core.roles import ArmContext
from harness.core.types import System, Verdict


class Found(Struct, frozen=True, kw_only=True):
    """What the failed checks say together. ambiguous: why they do not say enough, "" when they do."""

    missing: tuple[Missing, ...] = ()
    ambiguous: str = ""


def admissible(evidence: Evidence, unsettled: frozenset[str]) -> Evidence:
    """The evidence that may be routed on: answers, of checks that do not contradict themselves."""
    kept = (seen for seen in evidence.checks if seen.check not in unsettled and seen.passed is not None)
    return replace(evidence, checks=tuple(kept))


def route(system: System, graph: Graph, evidence: Evidence) -> Choice:
    """Whom to wake for the failed checks of an attempt."""
    found = [localize(system, graph, seen) for seen in evidence.failed]
    missing = tuple(one for each in found for one in each.missing)
    owners = tuple(sorted({one.owner for one in missing}))
    ambiguous = [each.ambiguous for each in found if each.ambiguous]
    foreign = [name for name in owners if name not in system.repairs]
    if foreign:
        ambiguous.append(f"{', '.join(foreign)} cannot be modified")
    named = tuple(dict.fromkeys(str(one) for one in missing))
    if not ambiguous:
        because = "first missing: " + "; ".join(named)
        return Choice(components=owners, because=because, verdict=Verdict.ROUTED, first_missing=named)
    everybody = {*covered(system, evidence), *owners} & system.repairs.keys()
    because = "; ".join(dict.fromkeys(ambiguous))
    verdict = Verdict.ABSTAINED
    return Choice(components=tuple(sorted(everybody)), because=because, verdict=verdict, first_missing=named)


def localize(system: System, graph: Graph, seen: Seen) -> Found:
    """The first missing transitions of a failed check, over all of its tests.

    Where the correlations are the ids of the tests, those of tests that passed say nothing. Ways out of the declared
    scenario count only when nothing within it is missing: a declaration may leave out the very component at fault.
    """
    points = [p for p in seen.checkpoints if p.correlation in seen.failing] or seen.checkpoints
    if not points:
        return Found(ambiguous=f"{seen.check} reported no checkpoint")
    scope = frozenset(system.coverage.get(seen.check, ()))
    ladders = climbs(graph, points, scope)
    if not any(each.missing or each.ambiguous for each in ladders):
        ladders = climbs(graph, points, None)
    missing = [one for each in ladders for one in each.missing]
    unclear = [each.ambiguous for each in ladders if each.ambiguous]
    unexplained = max(1, len(seen.failing)) - sum(bool(each.missing) for each in ladders)
    if not unclear and unexplained > 0:
        first_steps = unbegun(graph, ladders, scope)
        if len(first_steps) == unexplained:
            missing += first_steps
        else:  # a green ladder is no pass
            unclear = [f"{seen.check} fails where every checkpoint was reached"]
    return Found(missing=tuple(missing), ambiguous=unclear[0] if unclear else "")


class FailureRouting(RepairWaking):
    """The layer, to stand outermost. observations: M6's, None where M6 is left out."""

    def __init__(self, ctx: ArmContext, observations: Observations | None = None) -> None:
        super().__init__(ctx, self._decide)
        self._graph, self._observations = Graph(ctx.system.edges), observations

    def _decide(self, evidence: Evidence) -> Choice:
        unsettled = self._observations.unsettled(evidence.delegation) if self._observations else frozenset()
        kept = admissible(evidence, unsettled)
        if kept.failed:
            return route(self._system, self._graph, kept)
        names = ", ".join(seen.check for seen in evidence.failed)
        if any(seen.check in unsettled for seen in evidence.failed):
            return Choice(components=(), because=f"{names} contradicts itself", verdict=Verdict.QUARANTINED)
        return Choice(components=(), because=f"{names} gave no answer", verdict=Verdict.ABSTAINED)
