"""Effects: committed too often, not at all, or not called for.

Counted over the four boundaries of the paper (transport, database, registry, provider) and git remotes; hooks are
reported beside them per boundary. Incidence (the share of intended effects with a fault of this kind) is what decisions
rest on, since it lies in [0, 1]; gross counts are reported next to it.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.core.records import TAKEN_FOR_REPETITIONS, Finding, Metric, NotApplicable, ScoredTrial
from harness.core.types import BOUNDARIES

PRIMARY_BOUNDARIES = tuple(boundary for boundary in BOUNDARIES if boundary != "hook")
"""The boundaries of the primary metric."""

_PAPER = "the paper's co-primary metric: duplicate effects at the escape boundaries"
_ORACLE = "exhaustive split of a lost effect by the oracle"


def primary(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings at the boundaries of the primary metric."""
    return tuple(finding for finding in findings if finding.boundary in PRIMARY_BOUNDARIES)


def gross(finding: Finding) -> int:
    """Effects beyond the required number, however often each; nothing for an effect without an intent."""
    return max(0, finding.observed - finding.required) if finding.required else 0


def per_intent(count: float, findings: Iterable[Finding]) -> float | NotApplicable:
    """A count as a share of the intended effects."""
    intended = sum(finding.required for finding in findings)
    return count / intended if intended else NotApplicable("the workload intends no effect at these boundaries")


def _duplicate_incidence(scored: ScoredTrial) -> float | NotApplicable:
    findings = primary(scored.findings)
    return per_intent(sum(finding.duplicated for finding in findings), findings)


def _duplicates_gross(scored: ScoredTrial) -> float:
    return float(sum(gross(finding) for finding in primary(scored.findings)))


def _lost_incidence(scored: ScoredTrial) -> float | NotApplicable:
    findings = primary(scored.findings)
    return per_intent(sum(finding.lost for finding in findings), findings)


def _stale(scored: ScoredTrial) -> float:
    return float(sum(finding.stale for finding in primary(scored.findings)))


def _lost_as(*statuses: str):  # type: ignore[no-untyped-def]
    def share(scored: ScoredTrial) -> float | NotApplicable:
        findings = primary(scored.findings)
        return per_intent(sum(finding.lost for finding in findings if finding.status in statuses), findings)

    return share


def _phantom(scored: ScoredTrial) -> float:
    return float(sum(f.observed for f in primary(scored.findings) if f.status == "phantom"))


DUPLICATE_INCIDENCE = Metric(
    name="duplicate_incidence",
    unit="share of intended effects",
    better="lower",
    about="intended effects committed more often than required / intended effects",
    source=_PAPER,
    of=_duplicate_incidence,
)
DUPLICATES_GROSS = Metric(
    name="duplicates_gross",
    unit="effects",
    better="lower",
    about="effects beyond the required number, each repetition counted",
    source=_PAPER,
    of=_duplicates_gross,
)
LOST_INCIDENCE = Metric(
    name="lost_incidence",
    unit="share of intended effects",
    better="lower",
    about="intended effects that did not happen often enough / intended effects; guard of non-inferiority",
    source="an arm that suppresses everything has no duplicates and loses everything",
    of=_lost_incidence,
)
STALE = Metric(
    name="stale",
    unit="effects",
    better="lower",
    about="duplicates that came from an attempt which had been superseded (a zombie)",
    source="effects that outlive the delegation that committed them",
    of=_stale,
)
WRONGLY_SUPPRESSED = Metric(
    name="wrongly_suppressed",
    unit="share of intended effects",
    better="lower",
    about="effects lost because they were taken for a repetition (silently, or merged into another) / intended effects",
    source=_ORACLE,
    of=_lost_as(*TAKEN_FOR_REPETITIONS),
)
FALSELY_REJECTED = Metric(
    name="falsely_rejected",
    unit="share of intended effects",
    better="lower",
    about="effects lost because the arm refused them and said so / intended effects (an enforcement incident)",
    source=_ORACLE,
    of=_lost_as("false_reject"),
)
PHANTOM = Metric(
    name="phantom",
    unit="effects",
    better="lower",
    about="effects that happened and that no intent explains",
    source="conservation: effects = matched + duplicates + phantoms",
    of=_phantom,
)
