"""Work: tokens the provider billed, and how many of them bought nothing.

A turn is live when its output reaches the accepted final state through files that later turns read. What is not live
and was discarded counts as destroyed, whether a fault (charged) or the policy alone (spontaneous) brought it about.
Dead ends that nobody discarded are the agent's own and stand beside.
"""

from __future__ import annotations

from harness.core.records import Metric, NotApplicable, ScoredTrial

_PAPER = "the paper's co-primary metric: work destroyed per fault"


def _per_fault(scored: ScoredTrial) -> float | NotApplicable:
    scheduled = scored.trial.record.faults_scheduled
    if not scheduled:
        return NotApplicable("no fault was scheduled")
    return scored.work.destroyed / scheduled


def _amplification(scored: ScoredTrial) -> float | NotApplicable:
    work = scored.work
    if not work.direct:
        return NotApplicable("no fault destroyed the turn that it struck")
    return (work.charged - work.direct) / work.direct


WORK_DIRECT_TOKENS = Metric(
    name="work_direct_tokens",
    unit="tokens",
    better="lower",
    about="the part of work_destroyed_tokens whose own turn a fault had struck",
    source=_PAPER + ", split into what the fault did and what the reaction to it did",
    of=lambda scored: float(scored.work.direct),
)
WORK_REACTION_TOKENS = Metric(
    name="work_reaction_tokens",
    unit="tokens",
    better="lower",
    about="the part of work_destroyed_tokens that descends from a fault which had struck another turn",
    source=_PAPER + ", split into what the fault did and what the reaction to it did",
    of=lambda scored: float(scored.work.charged - scored.work.direct),
)
WORK_AMPLIFICATION = Metric(
    name="work_amplification",
    unit="reaction tokens per direct token",
    better="lower",
    about="work_reaction_tokens / work_direct_tokens",
    source=_PAPER + ": how far the reaction to a fault exceeds it",
    of=_amplification,
)
WORK_DESTROYED_TOKENS = Metric(
    name="work_destroyed_tokens",
    unit="tokens",
    better="lower",
    about="tokens of discarded turns that nothing accepted was built on, by a fault or by the policy",
    source=_PAPER,
    of=lambda scored: float(scored.work.destroyed),
)
WORK_DESTROYED_PER_FAULT = Metric(
    name="work_destroyed_per_fault",
    unit="tokens per scheduled fault",
    better="lower",
    about="work_destroyed_tokens / faults scheduled (not fired: an arm must not shrink its own denominator)",
    source=_PAPER,
    of=_per_fault,
)
WORK_DESTROYED_LENIENT = Metric(
    name="work_destroyed_lenient",
    unit="tokens",
    better="lower",
    about="the same where any later reader saves a turn, even one that was discarded itself",
    source=_PAPER + ", in the most favourable reading",
    of=lambda scored: float(scored.work.destroyed_lenient),
)
WORK_SPONTANEOUS_TOKENS = Metric(
    name="work_spontaneous_tokens",
    unit="tokens",
    better="lower",
    about="the part of work_destroyed_tokens that the policy discarded without a fault (false trips)",
    source=_PAPER,
    of=lambda scored: float(scored.work.spontaneous),
)
TURNS_DESTROYED = Metric(
    name="turns_destroyed",
    unit="turns",
    better="lower",
    about="turns behind work_destroyed_tokens",
    source=_PAPER,
    of=lambda scored: float(scored.work.turns_destroyed),
)
WRITES_DESTROYED = Metric(
    name="writes_destroyed",
    unit="writes",
    better="lower",
    about="accepted writes of those turns",
    source=_PAPER,
    of=lambda scored: float(scored.work.writes_destroyed),
)
DEAD_END_TOKENS = Metric(
    name="dead_end_tokens",
    unit="tokens",
    better="lower",
    about="tokens of turns that led nowhere and that nobody discarded: the agent's own dead ends",
    source="kept apart, since no policy is to blame",
    of=lambda scored: float(scored.work.dead_end),
)
TOKENS_BILLED = Metric(
    name="tokens_billed",
    unit="tokens",
    better="lower",
    about="prompt and completion tokens of all model calls, counted by the provider",
    source="cost of a trial; a replacement turn shows here and not as work destroyed",
    of=lambda scored: float(scored.work.billed),
)
