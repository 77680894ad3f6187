"""Routing by coverage: whoever a failing scenario goes through is woken, as the usual platform does.

What it confuses: that a component takes part in a scenario, and that it caused the failure.
"""

from __future__ import annotations

from arms.common.evidence import Choice, Evidence, covered
from arms.common.repairs import RepairWaking
from harness.core.roles import ArmContext
from harness.core.types import System, Verdict


def by_coverage(system: System, evidence: Evidence) -> Choice:
    """All components that the scenarios of the failed checks go through."""
    because = "; ".join(f"{seen.check} fails: {', '.join(seen.failing) or seen.error}" for seen in evidence.failed)
    return Choice(components=covered(system, evidence), because=because, verdict=Verdict.ROUTED)


def coverage_routing(ctx: ArmContext) -> RepairWaking:
    """The routing layer of the naive arms, to stand outermost."""
    return RepairWaking(ctx, lambda evidence: by_coverage(ctx.system, evidence))
