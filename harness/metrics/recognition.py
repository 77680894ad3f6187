"""Fingerprints: effects taken for each other, and repetitions that were not known again.

Counts stand beside the rates, so that levels of variation can be pooled over trials.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.core.records import TAKEN_FOR_REPETITIONS, Metric, NotApplicable, Recognition, ScoredTrial
from harness.metrics.effects import PRIMARY_BOUNDARIES, primary

_PAPER = "fingerprint collision and miss of the paper's inventory"
NOT_COUNTED = NotApplicable("repetitions were not counted when the trial was judged")


def _counts(scored: ScoredTrial) -> list[Recognition]:
    """At the primary boundaries; effects at different boundaries cannot be taken for each other."""
    return [scored.recognition[name] for name in PRIMARY_BOUNDARIES if name in scored.recognition]


def _sum(of: Callable[[Recognition], int]) -> Callable[[ScoredTrial], float | NotApplicable]:
    def value(scored: ScoredTrial) -> float | NotApplicable:
        return float(sum(map(of, _counts(scored)))) if scored.recognition else NOT_COUNTED

    return value


def _rate(
    of: Callable[[Recognition], int], among: Callable[[Recognition], int], because: str
) -> Callable[[ScoredTrial], float | NotApplicable]:
    def value(scored: ScoredTrial) -> float | NotApplicable:
        if not scored.recognition:
            return NOT_COUNTED
        every = sum(map(among, _counts(scored)))
        return sum(map(of, _counts(scored))) / every if every else NotApplicable(because)

    return value


NONE_AGAIN = "no effect was asked for again after it had happened"


def _balanced(scored: ScoredTrial) -> float | NotApplicable:
    missed = FINGERPRINT_MISS.of(scored)
    if isinstance(missed, NotApplicable):
        return missed
    intended = sum(c.intents for c in _counts(scored))
    kept = sum(f.lost for f in primary(scored.findings) if f.status in TAKEN_FOR_REPETITIONS)
    return ((1 - missed) + (1 - kept / intended)) / 2


FINGERPRINT_COLLISION = Metric(
    name="fingerprint_collision",
    unit="share of pairs",
    better="lower",
    about="pairs of distinct intended effects of one boundary that were taken for one / all such pairs",
    source=_PAPER,
    of=_rate(lambda c: c.merged, lambda c: c.pairs, "the workload intends no two effects at one boundary"),
)
FINGERPRINT_MISS = Metric(
    name="fingerprint_miss",
    unit="share of repeated asks",
    better="lower",
    about="effects asked for again after they had happened, in whatever words, that were executed again / all of them",
    source=_PAPER,
    of=_rate(lambda c: c.missed, lambda c: c.regenerated, NONE_AGAIN),
)
LEDGER_DISCRIMINATION = Metric(
    name="ledger_discrimination",
    unit="balanced accuracy",
    better="higher",
    about="mean of the shares of repeated asks not executed again and of intended effects not held back as repetitions",
    source="discriminating power between repetitions and effects that only look like one",
    of=_balanced,
)

RECOGNITION: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        FINGERPRINT_COLLISION,
        FINGERPRINT_MISS,
        LEDGER_DISCRIMINATION,
        Metric(
            name="fingerprint_collisions",
            unit="pairs",
            better="lower",
            about="pairs behind fingerprint_collision",
            source=_PAPER,
            of=_sum(lambda c: c.merged),
        ),
        Metric(
            name="intent_pairs",
            unit="pairs",
            better="neither",
            about="pairs of distinct intended effects of one boundary, each wanted repetition an effect of its own",
            source=_PAPER,
            of=_sum(lambda c: c.pairs),
        ),
        Metric(
            name="fingerprint_misses",
            unit="effects",
            better="lower",
            about="effects behind fingerprint_miss",
            source=_PAPER,
            of=_sum(lambda c: c.missed),
        ),
        Metric(
            name="asked_again",
            unit="effects",
            better="neither",
            about="effects asked for when the boundary already held all that was wanted of them: the opportunities",
            source=_PAPER,
            of=_sum(lambda c: c.regenerated),
        ),
    )
}
