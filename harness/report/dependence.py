"""How often whole chains of delegations hold, promised without assuming that their links fail independently.

Why beside the product of rates: a schedule that harms one link of a chain per run makes the product too hopeful, and a
common cause makes it too gloomy. The program says what the links alone allow to promise; where chains were run end to
end, as here, the direct bound says more, and both are shown.

A link is a delegation of the plan; a run is a trial with faults; a link holds where `Row.clean` says so. The unit is
the trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
from msgspec import Struct

from harness.core.records import NotApplicable
from harness.core.types import Json
from harness.report.rows import Row, ordered
from harness.stats.asymptotic import clopper_pearson
from harness.stats.certificate import certificate, direct
from harness.stats.moments import box, family

ALPHA = 0.05
SINGLES = 0.7
"""Share of alpha for the single links, the rest for the pairs; fixed before any data, as a family must be."""

ASSUMES = "assumes independence"


class Chain(Struct, frozen=True, kw_only=True):
    """The chain of one arm. Probabilities that all links hold: product of the observed rates (which `assumes`
    independence); certificate: lower bound from links and pairs of them, by the exact program or column generation;
    direct: one-sided lower bound from whole chains; observed: share of trials in which all links held, with its
    two-sided interval. links: rate at which each held. because: where independence promises too much, else "".
    """

    trials: int
    links: dict[str, float]
    product: float
    product_label: str
    certificate: float
    direct: float
    observed: float
    ci_low: float
    ci_high: float
    alpha: float
    because: str


def dependence(rows: Iterable[Row], alpha: float = ALPHA) -> dict[str, Chain | NotApplicable]:
    """The chain of each arm, by name, over its valid trials with scheduled faults. Pure."""
    kept: dict[str, list[Row]] = {}
    for row in ordered(rows):
        trials = kept.setdefault(row.arm, [])
        if row.valid and row.faults_scheduled and row.clean:
            trials.append(row)
    return {arm: _chain([row.clean for row in trials], alpha) for arm, trials in sorted(kept.items())}


def section(rows: Iterable[Row], alpha: float = ALPHA) -> dict[str, Json]:
    """`dependence` as it stands in `summary.json`: by arm, `{"not_applicable": because}` where there is no chain."""

    def told(chain: Chain | NotApplicable) -> Json:
        if isinstance(chain, NotApplicable):
            return {"not_applicable": chain.because}
        return msgspec.to_builtins(chain)

    return {arm: told(chain) for arm, chain in dependence(rows, alpha).items()}


def _chain(clean: list[Mapping[str, bool]], alpha: float) -> Chain | NotApplicable:
    if not clean:
        return NotApplicable("there is no valid trial with faults of which links are known")
    names = sorted(set().union(*clean))
    if len(names) < 2:
        return NotApplicable("a chain of one link depends on nothing")
    if any(set(each) != set(names) for each in clean):
        return NotApplicable("the trials have different links")
    failed = np.array([[not each[name] for name in names] for each in clean])
    n = len(failed)
    rates = 1.0 - failed.mean(axis=0)
    whole = int((~failed.any(axis=1)).sum())
    low, high = clopper_pearson(whole, n, alpha)
    product = float(rates.prod())
    return Chain(
        trials=n,
        links={name: _rounded(rate) for name, rate in zip(names, rates, strict=True)},
        product=_rounded(product),
        product_label=ASSUMES,
        certificate=_rounded(_certified(failed, alpha)),
        direct=_rounded(direct(whole, n, alpha)),
        observed=_rounded(whole / n),
        ci_low=_rounded(low),
        ci_high=_rounded(high),
        alpha=alpha,
        because=_over_credited(product, whole / n, high),
    )


def _certified(failed: np.ndarray, alpha: float) -> float:
    """The certificate from links and pairs. Weights by order, so that pairs, of which there are many more, do not use
    up what the links need."""
    subsets = family(failed.shape[1], 2)
    orders = np.array([len(subset) for subset in subsets])
    shares = np.where(orders == 1, SINGLES / (orders == 1).sum(), (1 - SINGLES) / (orders == 2).sum())
    return certificate(box(failed, subsets, alpha, weights=shares.tolist()))


def _over_credited(product: float, observed: float, high: float) -> str:
    if product <= high:
        return ""
    return (
        f"the product of the links promises {product:.3f} by assuming independence, above the upper bound {high:.3f} of"
        f" what whole chains did ({observed:.3f}): links fail in different trials more often than by chance"
    )


def _rounded(value: float) -> float:
    """To what a solver's last digits, which differ between machines, do not reach."""
    return round(float(value), 5)
