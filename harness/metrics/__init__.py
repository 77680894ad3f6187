"""The registry of metrics: each a number of one scored trial, or `NotApplicable` with the reason.

Metrics look at findings, work accounting, verdicts and both logs; they neither pool trials nor estimate.
"""

from __future__ import annotations

from harness.core.records import Metric
from harness.metrics import boundaries, breaker, divergence, effects, ground, outcome, recovery, routing, verdicts, work

METRICS: dict[str, Metric] = {
    "duplicate_incidence": effects.DUPLICATE_INCIDENCE,
    "work_destroyed_per_fault": work.WORK_DESTROYED_PER_FAULT,
    "duplicates_gross": effects.DUPLICATES_GROSS,
    "lost_incidence": effects.LOST_INCIDENCE,
    "stale": effects.STALE,
    "wrongly_suppressed": effects.WRONGLY_SUPPRESSED,
    "falsely_rejected": effects.FALSELY_REJECTED,
    "phantom": effects.PHANTOM,
    "task_success": outcome.TASK_SUCCESS,
    "work_destroyed_tokens": work.WORK_DESTROYED_TOKENS,
    "work_destroyed_lenient": work.WORK_DESTROYED_LENIENT,
    "work_spontaneous_tokens": work.WORK_SPONTANEOUS_TOKENS,
    "turns_destroyed": work.TURNS_DESTROYED,
    "writes_destroyed": work.WRITES_DESTROYED,
    "dead_end_tokens": work.DEAD_END_TOKENS,
    "tokens_billed": work.TOKENS_BILLED,
    "delegation_depth": outcome.DELEGATION_DEPTH,
    "time_to_recover": recovery.TIME_TO_RECOVER,
    "in_doubt": verdicts.IN_DOUBT,
    "in_doubt_resolved": verdicts.IN_DOUBT_RESOLVED,
    "foreign_receipts": verdicts.FOREIGN_RECEIPTS,
    "declaration_divergence": divergence.DIVERGENCE,
    "tokens_in_loops": ground.TOKENS_IN_LOOPS,
    "flaky_answers_believed": ground.FLAKY_ANSWERS_BELIEVED,
    "checks_run": ground.CHECKS_RUN,
    "tokens_on_stronger_model": ground.TOKENS_ON_STRONGER_MODEL,
    "blast_radius": routing.BLAST_RADIUS,
    "bystanders_woken": routing.BYSTANDERS_WOKEN,
    "true_owner_nominated": routing.TRUE_OWNER_NOMINATED,
    "routing_abstentions": routing.ROUTING_ABSTENTIONS,
    "checks_quarantined": routing.CHECKS_QUARANTINED,
    **breaker.BREAKER,
    **boundaries.DUPLICATES_BY_BOUNDARY,
    **verdicts.VERDICT_COUNTS,
}
