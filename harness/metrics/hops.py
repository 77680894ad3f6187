"""Hops of a delegation tree, counted per attempt and per hop, and whom their verifiers were right about.

Why two denominators: a share of attempts says how often a try goes wrong, a share of hops how often a hop ends up right
(any of its attempts did), and the two differ as soon as anything is tried again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct

from harness.core.records import HopAttempt, Metric, NotApplicable, ScoredTrial

DEFINITIONS: dict[str, Callable[[HopAttempt], bool]] = {
    "schema_valid": lambda one: one.schema_valid,
    "brief_satisfied": lambda one: one.brief_satisfied,
    "usable_downstream": lambda one: one.brief_satisfied and one.usable_downstream is True,
}
"""When an attempt is clean, each definition stricter than the one before."""

NO_HOPS = NotApplicable("the workload hands nothing up")


class Verified(Struct, frozen=True, kw_only=True):
    """What verifiers said of returns: caught and missed are returns that do not do what their brief says, false alarms
    and passed those that do. fixed: caught, and the next return does; regressed: a false alarm, and the next one does
    not any more."""

    caught: int = 0
    missed: int = 0
    false_alarms: int = 0
    passed: int = 0
    fixed: int = 0
    regressed: int = 0


class HopCounts(Struct, frozen=True, kw_only=True):
    """The hops of one trial. planned: of the tree; dispatched: those that were begun. attempts, by_attempt, by_hop:
    how many there are, and how many are clean by each of `DEFINITIONS`. unknown: attempts of whose use nothing is
    known; repaired: those that the parent had to make good. states: attempts that went through each of `HOP_STATES`."""

    planned: int
    dispatched: int
    attempts: int
    by_attempt: dict[str, int]
    by_hop: dict[str, int]
    unknown: int
    repaired: int
    states: dict[str, int]
    verified: Verified


def hop_counts(scored: ScoredTrial) -> HopCounts | None:
    """The counts of one trial; None where its workload hands nothing up."""
    if not scored.hops_planned:
        return None
    by_hop: dict[str, list[HopAttempt]] = {}
    for one in scored.hops:
        by_hop.setdefault(one.hop, []).append(one)
    states = Counter(state for one in scored.hops for state in one.states)
    return HopCounts(
        planned=scored.hops_planned,
        dispatched=len(by_hop),
        attempts=len(scored.hops),
        by_attempt={name: sum(map(clean, scored.hops)) for name, clean in DEFINITIONS.items()},
        by_hop={name: sum(any(map(clean, tried)) for tried in by_hop.values()) for name, clean in DEFINITIONS.items()},
        unknown=sum(one.usable_downstream is None for one in scored.hops),
        repaired=sum(one.usable_downstream is False for one in scored.hops),
        states=dict(sorted(states.items())),
        verified=_verified(list(by_hop.values())),
    )


def _verified(hops: Sequence[Sequence[HopAttempt]]) -> Verified:
    found: Counter[str] = Counter()
    for tried in hops:
        for one, after in zip(tried, [*tried[1:], None], strict=True):
            if one.flagged is None:
                continue
            if one.brief_satisfied:
                found["false_alarms" if one.flagged else "passed"] += 1
                found["regressed"] += one.flagged and after is not None and not after.brief_satisfied
            else:
                found["caught" if one.flagged else "missed"] += 1
                found["fixed"] += one.flagged and after is not None and after.brief_satisfied
    return Verified(**found)


def _share(of: Callable[[HopCounts], tuple[int, int]]) -> Callable[[ScoredTrial], float | NotApplicable]:
    def value(scored: ScoredTrial) -> float | NotApplicable:
        counts = hop_counts(scored)
        if counts is None:
            return NO_HOPS
        part, whole = of(counts)
        return part / whole if whole else NotApplicable("no hop was dispatched")

    return value


SOURCE = "hop findings of delegation trees"
HOPS: dict[str, Metric] = {
    "hop_attempts_clean": Metric(
        name="hop_attempts_clean",
        unit="share of attempts",
        better="higher",
        about="attempts of hops whose return has the form, the scope and the constraints of its brief",
        source=SOURCE,
        of=_share(lambda counts: (counts.by_attempt["brief_satisfied"], counts.attempts)),
    ),
    "hops_clean": Metric(
        name="hops_clean",
        unit="share of hops",
        better="higher",
        about="dispatched hops of which any attempt has the form, the scope and the constraints of its brief",
        source=SOURCE,
        of=_share(lambda counts: (counts.by_hop["brief_satisfied"], counts.dispatched)),
    ),
}
