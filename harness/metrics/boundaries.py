"""Duplicate incidence per boundary, hooks included: where the effects escape."""

from __future__ import annotations

from collections.abc import Callable

from harness.core.records import Metric, NotApplicable, ScoredTrial
from harness.core.types import BOUNDARIES
from harness.metrics.effects import per_intent


def _at(boundary: str) -> Callable[[ScoredTrial], float | NotApplicable]:
    def incidence(scored: ScoredTrial) -> float | NotApplicable:
        findings = [finding for finding in scored.findings if finding.boundary == boundary]
        return per_intent(sum(finding.duplicated for finding in findings), findings)

    return incidence


DUPLICATES_BY_BOUNDARY: dict[str, Metric] = {
    f"duplicates_{boundary}": Metric(
        name=f"duplicates_{boundary}",
        unit="share of intended effects",
        better="lower",
        about=f"intended effects at the {boundary} boundary committed more often than required / intended ones there",
        source="the paper's co-primary metric, split by boundary",
        of=_at(boundary),
    )
    for boundary in BOUNDARIES
}
