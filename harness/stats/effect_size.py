"""How large a difference between two arms is: ratio of harms with its bound, and pairs that got better or worse."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.stats.betting import peak
from harness.stats.claims import Contrast, superiority_path

_STEPS = 42


@dataclass(frozen=True)
class Ratio:
    """Harm of the treatment over harm of the control. upper: with confidence 1 - alpha the ratio is below it, at every
    look. A string in place of a number says why there is none."""

    estimate: float | str
    upper: float | str


@dataclass(frozen=True)
class PairCounts:
    """Pairs in which the treatment did less harm than the control, more, or as much."""

    improved: int
    worsened: int
    tied: int


def harm_ratio(contrast: Contrast, alpha: float = 0.05) -> Ratio:
    """Ratio of mean harms with the smallest rho for which superiority is shown on this contrast alone.

    The bound is the inversion of the e-process of `claims.superiority`: it is at most the registered rho exactly if the
    contrast's own evidence reaches 1/alpha.
    """
    harmed = float(np.sum(contrast.control))
    if not harmed:
        return Ratio("the control did no harm", "the control did no harm, so nothing can be below it")
    estimate = float(np.sum(contrast.treatment)) / harmed
    need, outside = -np.log(alpha), 0.0
    if peak(superiority_path(contrast, 1.0)) < need:
        return Ratio(
            estimate, f"no bound below 1: harm is not shown to be lower at all ({len(contrast.control)} pairs)"
        )
    inside = 1.0
    for _ in range(_STEPS):
        middle = (inside + outside) / 2
        shown = peak(superiority_path(contrast, middle)) >= need
        inside, outside = (middle, outside) if shown else (inside, middle)
    return Ratio(estimate, inside)


def pair_counts(contrast: Contrast) -> PairCounts:
    """Counts over the pairs of a contrast."""
    excess = np.sign(np.round(contrast.treatment - contrast.control, 12))
    return PairCounts(int((excess < 0).sum()), int((excess > 0).sum()), int((excess == 0).sum()))
