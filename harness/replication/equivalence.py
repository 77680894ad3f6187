"""Are two runs of one arm the same within a margin? Two one-sided tests by betting.

An interval that covers zero says nothing: too few pairs always give one. Here the burden of proof lies on agreement.
Source: Schuirmann, "A comparison of the two one-sided tests procedure", J. Pharmacokinet. Biopharm. 15 (1987); the
bounds are those of `harness.stats`, which hold at every number of pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from harness.replication.rule import Rule
from harness.report.evidence import DUPLICATES, Scale, Series, scales, series
from harness.report.prereg import Prereg
from harness.report.rows import Row
from harness.stats.betting import BOLD, EVEN, Array, e_value, log_e_last
from harness.stats.intervals import difference_lower


class Compared(Struct, frozen=True, kw_only=True):
    """Two runs of one arm on one primary, second minus first, in the unit that is reported. low, high: interval at the
    level that was asked for; None, with `because`, where there is no pair."""

    arm: str
    primary: str
    pairs: int
    first: float | None
    second: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    because: str = ""


class Equivalence(Struct, frozen=True, kw_only=True):
    """Whether two runs of one arm are shown to agree. margin: on the scale of scores, see `Rule`."""

    compared: Compared
    margin: float
    shown: bool
    because: str


def matched(first: Sequence[Row], second: Sequence[Row]) -> tuple[list[Row], list[Row], bool]:
    """The trials of one arm side by side, and whether they are the same trials: by id where the runs share any (same
    schedule and seeds), else in registered order.

    Side by side in registered order, trials of two independent runs are pairs like any other: their differences are
    independent and have the wanted mean, so the same bounds hold.
    """
    there = {row.trial: row for row in second}
    common = [row for row in first if row.trial in there]
    if common:
        return common, [there[row.trial] for row in common], True
    count = min(len(first), len(second))
    return list(first[:count]), list(second[:count]), False


def compare(first: Sequence[Row], second: Sequence[Row], scale: Scale, arm: str, alpha: float) -> Compared:
    """Estimates of both runs, each over all of its own trials, and the difference over the trials side by side.

    alpha: of the two-sided interval. Trials that the harness spoiled widen it by the worst that they could have shown.
    """
    one, other, _ = matched(first, second)
    a, b = series(one, scale), series(other, scale)
    head: dict[str, Any] = {
        "arm": arm,
        "primary": scale.name,
        "pairs": len(one),
        "first": _mean(series(first, scale), scale),
        "second": _mean(series(second, scale), scale),
    }
    both = a.valid & b.valid
    if not both.any():
        return Compared(**head, because="no trial that is valid in both runs")
    ones = np.ones(len(both))
    return Compared(
        **head,
        difference=float((b.low - a.low)[both].mean()) * scale.unit,
        low=difference_lower(b.low - a.high, ones, 1.0, alpha / 2) * scale.unit,
        high=-difference_lower(a.low - b.high, ones, 1.0, alpha / 2) * scale.unit,
    )


def equivalences(
    first: Mapping[str, Sequence[Row]], second: Mapping[str, Sequence[Row]], prereg: Prereg, rule: Rule
) -> list[Equivalence]:
    """One per arm of the rule and primary. Rows by arm in registered order."""
    return [
        _equivalence(first.get(arm, ()), second.get(arm, ()), scale, arm, rule)
        for arm in rule.arms
        for scale in scales(prereg)
    ]


def _equivalence(first: Sequence[Row], second: Sequence[Row], scale: Scale, arm: str, rule: Rule) -> Equivalence:
    margin = rule.margin_duplicates if scale.name == DUPLICATES else rule.margin_work_share
    compared = compare(first, second, scale, arm, 2 * rule.alpha)
    one, other, _ = matched(first, second)
    if not one:
        because = f"{arm}, {scale.name}: not shown: no trial side by side"
        return Equivalence(compared=compared, margin=margin, shown=False, because=because)
    a, b = series(one, scale), series(other, scale)
    evidence = [_within(excess, margin) for excess in (b.high - a.low, a.high - b.low)]
    needed = 1 / rule.alpha
    shown = min(evidence) >= needed
    beyond = max(_beyond(b.low - a.high, margin), _beyond(a.low - b.high, margin)) >= needed
    said = "shown to agree" if shown else "shown to differ by more than" if beyond else "not shown to agree"
    because = (
        f"{arm}, {scale.name}: {said}{'' if beyond else ' within'} {margin:g} of the largest score (evidence "
        f"{evidence[0]:.3g} and {evidence[1]:.3g}, needed {needed:.3g}, {len(one)} pairs)"
    )
    return Equivalence(compared=compared, margin=margin, shown=shown, because=because)


def _within(excess: Array, margin: float) -> float:
    """E-value that the mean excess is below the margin, after the last pair: what came late counts like the rest."""
    return e_value(log_e_last(margin - excess, 1.0 - margin, BOLD))


def _beyond(excess: Array, margin: float) -> float:
    """E-value that the mean excess is above the margin."""
    return e_value(log_e_last(excess - margin, 1.0 + margin, EVEN))


def _mean(data: Series, scale: Scale) -> float | None:
    return float(data.low[data.valid].mean()) * scale.unit if data.valid.any() else None
