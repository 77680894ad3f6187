"""From rows to the arrays that statistics take: registered order, fixed denominators, worst case for invalid trials.

Order: pairs count in registered order, and a pair that is missing ends the sequence, whatever other workers ran beyond
it; otherwise slow pairs would be skipped. Trials without a scheduled fault (class `none`) are twins that are shown
beside the primaries and take no part in the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.report.prereg import Prereg
from harness.report.rows import Row
from harness.stats.betting import Array
from harness.stats.intervals import (
    Interval,
    difference_e_value,
    difference_lower,
    rate_lower,
    rate_upper,
)

NO_FAULT = "none"

DUPLICATES = "duplicate_effect_rate"
WORK = "work_destroyed_per_fault"


@dataclass(frozen=True)
class Scale:
    """How a harm of one trial becomes a score in [0, 1], and how the score is reported.

    of: harm of a valid trial. full: the largest harm that counts; more is cut off. unit: reported = score * unit.
    """

    name: str
    of: Callable[[Row], float]
    full: float
    unit: float


@dataclass(frozen=True)
class Series:
    """Scores in [0, 1] of one arm, one per pair. low, high: invalid trials as no harm and as full harm. valid: mask.
    cut: number of trials whose harm was above the largest that counts."""

    low: Array
    high: Array
    valid: np.ndarray
    cut: int = 0


def scales(prereg: Prereg) -> tuple[Scale, Scale]:
    """The two primaries: share of intended effects duplicated, and tokens destroyed per scheduled fault."""
    design = prereg.design
    return (
        Scale(DUPLICATES, lambda row: row.duplicated, float(design.intended_effects_per_trial), 1.0),
        Scale(
            WORK,
            lambda row: row.work.destroyed,
            float(design.token_budget_per_trial),
            design.token_budget_per_trial / design.faults_scheduled_per_trial,
        ),
    )


def by_arm(rows: Iterable[Row], *, twins: bool = False) -> dict[str, dict[int, Row]]:
    """Rows by arm and pair index: those with scheduled faults, or the twins without. Raises ValueError for two trials
    of one arm in the same place."""
    found: dict[str, dict[int, Row]] = {}
    for row in rows:
        if (row.fault_class == NO_FAULT) is twins:
            place = found.setdefault(row.arm, {})
            if row.index in place:
                raise ValueError(f"two trials of arm {row.arm!r} for pair {row.index}")
            place[row.index] = row
    return found


def prefix(
    arms: Mapping[str, Mapping[int, Row]], twins: Mapping[str, Mapping[int, Row]], names: Sequence[str], pairs: int
) -> list[int]:
    """Indices of the registered pairs that all arms `names` have finished, up to the first that one has not.

    pairs: number of registered pairs; indices run from 0. An index that holds only twins is passed over.
    """
    twin_only = {index for rows in twins.values() for index in rows}
    done = []
    for index in range(pairs):
        if all(index in arms.get(name, {}) for name in names):
            done.append(index)
        elif index not in twin_only or any(index in rows for rows in arms.values()):
            break
    return done


def series(rows: Sequence[Row], scale: Scale) -> Series:
    """Scores of these trials, in their order."""
    valid = np.array([row.valid for row in rows], dtype=bool)
    harm = np.array([scale.of(row) if row.valid else 0.0 for row in rows], dtype=float) / scale.full
    score = np.minimum(harm, 1.0)
    return Series(np.where(valid, score, 0.0), np.where(valid, score, 1.0), valid, int((harm > 1.0).sum()))


def rate(data: Series, alpha: float) -> Interval | str:
    """Estimate over valid trials; bounds that hold whatever the invalid ones would have shown. A string says why there
    is no value."""
    if not data.valid.any():
        return "no valid trial" if len(data.valid) else "no trial"
    ones = np.ones(len(data.valid))
    low = rate_lower(data.low, ones, 1.0, alpha / 2)
    high = rate_upper(data.high, ones, 1.0, alpha / 2)
    return Interval(float(data.low[data.valid].mean()), low, high)


def pair_differences(control: Series, treatment: Series) -> tuple[Array, Array]:
    """Control minus treatment in each common pair, shape (n,): with invalid trials entered against the treatment, and
    for it."""
    return control.low - treatment.high, control.high - treatment.low


def difference(control: Series, treatment: Series, alpha: float) -> tuple[Interval, float] | str:
    """Control minus treatment over common pairs, and the evidence (e-value) that it is above zero. A string says why
    there is no value."""
    both = control.valid & treatment.valid
    if not both.any():
        return "no common pair of valid trials"
    ones = np.ones(len(both))
    worst, best = pair_differences(control, treatment)
    low = difference_lower(worst, ones, 1.0, alpha / 2)
    high = -difference_lower(-best, ones, 1.0, alpha / 2)
    estimate = float((control.low - treatment.low)[both].mean())
    return Interval(estimate, low, high), difference_e_value(worst, ones, 1.0)
