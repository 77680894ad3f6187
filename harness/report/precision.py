"""Entries of `summary.json` beside the guaranteed intervals: STaR, hulls, ratios, pairs that got better or worse.

Invalid trials are entered as in `evidence`: no harm for lower bounds, full harm for upper ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.report.evidence import Scale, Series, pair_differences
from harness.stats import asymptotic, star
from harness.stats.betting import Array
from harness.stats.claims import Contrast
from harness.stats.effect_size import harm_ratio, pair_counts
from harness.stats.intervals import Interval

Entry = dict[str, Any]

DATA_ENDED_IT = (
    "the rule of the run lets its data end it, and this interval holds for a number of pairs that nothing but the plan "
    "decides; the mixture holds here as well"
)


def beside_rate(data: Series, scale: Scale, alpha: float, *, fixed_size: bool) -> Entry:
    """{star, hull} of one arm. fixed_size: the number of pairs did not depend on what they showed."""
    return {
        "star": rate_star(data, scale.unit, alpha, fixed_size=fixed_size),
        "hull": rate_hull(data, scale, alpha),
    }


def beside_difference(control: Series, treatment: Series, scale: Scale, alpha: float, *, fixed_size: bool) -> Entry:
    """{star, hull, ratio, improved, worsened, tied} of control against treatment over common pairs."""
    return {
        "star": difference_star(control, treatment, scale.unit, alpha, fixed_size=fixed_size),
        "hull": difference_hull(control, treatment, scale, alpha),
        "ratio": ratio(control, treatment, alpha),
        **moved(control, treatment),
    }


def rate_star(data: Series, unit: float, alpha: float, *, fixed_size: bool) -> Entry:
    """STaR interval of one arm. unit: reported = score * unit. fixed_size: the rule was to run all pairs, whatever they
    showed. Reaching the maximum under another rule is not that: other data would have ended the run before."""
    if refusal := _refusal(data.valid, fixed_size):
        return {"not_applicable": refusal}
    ones = np.ones(len(data.valid))
    low = star.rate_lower(data.low, ones, 1.0, alpha / 2)
    return _shown(data.low[data.valid].mean(), low, star.rate_upper(data.high, ones, 1.0, alpha / 2), unit)


def difference_star(control: Series, treatment: Series, unit: float, alpha: float, *, fixed_size: bool) -> Entry:
    """STaR interval of control minus treatment over common pairs."""
    both = control.valid & treatment.valid
    if refusal := _refusal(both, fixed_size):
        return {"not_applicable": refusal}
    ones = np.ones(len(both))
    worst, best = pair_differences(control, treatment)
    low = star.difference_lower(worst, ones, 1.0, alpha / 2)
    high = -star.difference_lower(-best, ones, 1.0, alpha / 2)
    return _shown((control.low - treatment.low)[both].mean(), low, high, unit)


def rate_hull(data: Series, scale: Scale, alpha: float) -> Entry:
    """Hull of Korn-Graubard and bootstrap-t of one arm, from 200 pairs on."""
    if refusal := _refusal(data.valid, True):
        return {"not_applicable": refusal}
    return _hull(
        asymptotic.hull_rate(_counts(data.low, scale), _full(data.low, scale), alpha),
        asymptotic.hull_rate(_counts(data.high, scale), _full(data.high, scale), alpha),
        data.low[data.valid].mean(),
        scale.unit,
    )


def difference_hull(control: Series, treatment: Series, scale: Scale, alpha: float) -> Entry:
    """Hull of delta-t and bootstrap-t of control minus treatment, from 200 common pairs on."""
    both = control.valid & treatment.valid
    if refusal := _refusal(both, True):
        return {"not_applicable": refusal}
    worst, best = pair_differences(control, treatment)
    return _hull(
        asymptotic.hull_difference(_counts(worst, scale), _full(worst, scale), alpha),
        asymptotic.hull_difference(_counts(best, scale), _full(best, scale), alpha),
        (control.low - treatment.low)[both].mean(),
        scale.unit,
    )


def ratio(control: Series, treatment: Series, alpha: float) -> Entry:
    """{estimate, upper}: harm of the treatment over that of the control, and the bound below which it lies at every
    look. Invalid trials count against the treatment in the bound; the estimate is over common valid pairs."""
    both = control.valid & treatment.valid
    if refusal := _refusal(both, True):
        return {"not_applicable": refusal}
    valid = Contrast("ratio", control.low[both], treatment.low[both])
    bound = harm_ratio(Contrast("ratio", control.low, treatment.high), alpha).upper
    return {"estimate": _said(harm_ratio(valid, alpha).estimate), "upper": _said(bound)}


def moved(control: Series, treatment: Series) -> Entry:
    """{improved, worsened, tied}: common valid pairs in which the treatment did less harm, more, or as much."""
    both = control.valid & treatment.valid
    if refusal := _refusal(both, True):
        return {name: {"not_applicable": refusal} for name in ("improved", "worsened", "tied")}
    found = pair_counts(Contrast("pairs", control.low[both], treatment.low[both]))
    return {"improved": found.improved, "worsened": found.worsened, "tied": found.tied}


def _refusal(valid: np.ndarray, fixed_size: bool) -> str:
    if not valid.any():
        return "no valid trial" if len(valid) else "no trial"
    return "" if fixed_size else DATA_ENDED_IT


def _counts(scores: Array, scale: Scale) -> Array:
    """Whole effects or tokens: their sums are exact, so resampling gives the same bytes on any machine."""
    return np.round(scores * scale.full)


def _full(scores: Array, scale: Scale) -> Array:
    return np.full(len(scores), scale.full)


def _hull(worst: Interval | str, best: Interval | str, estimate: float, unit: float) -> Entry:
    if isinstance(worst, str):
        return {"not_applicable": worst}
    if isinstance(best, str):
        return {"not_applicable": best}
    return _shown(estimate, worst.low, best.high, unit)


def _shown(estimate: float, low: float, high: float, unit: float) -> Entry:
    return {"estimate": float(estimate) * unit, "ci_low": low * unit, "ci_high": high * unit}


def _said(value: float | str) -> float | Entry:
    return {"not_applicable": value} if isinstance(value, str) else value
