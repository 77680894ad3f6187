"""How many pairs a claim needs: by simulation of the registered decisions, and exactly where nothing is random.

A plan that is too small ends in INCONCLUSIVE, which is honest and useless. So before a run: with what probability is
each claim shown after so many pairs, if the truth is as assumed, and how many pairs does it take even if all goes well?
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from harness.stats.betting import BOLD, EVEN, FRACTIONS, NEVER, Array, first_look, log_mean
from harness.stats.claims import Contrast, superiority_path, within_path
from harness.stats.kill import KillPlan, Outcome, Primary, ceiling, decide
from harness.stats.scenarios import Clustering, classes, duplicates, losses

ClaimName = Literal["GO", "GO_NARROW", "STOP", "superiority", "loss_non_inferiority", "success_non_inferiority"]
CLAIMS: tuple[ClaimName, ...] = get_args(ClaimName)

REPLICATIONS = 400
WANTED = 0.9
SEED = 20_260_101

_FAR = 1 << 20


@dataclass(frozen=True)
class Design:
    """What is registered. tau_duplicates, tau_work: unconditional thresholds on the scale of scores in [0, 1]. effects:
    intended effects of a trial."""

    kill: KillPlan
    tau_duplicates: float
    tau_work: float
    rho: float
    loss_margin: float
    success_margin: float
    alpha_superiority: float
    alpha_non_inferiority: float
    effects: int


@dataclass(frozen=True)
class Truth:
    """What is assumed, per trial with forced faults, the same for every fault class.

    duplicates, work: mean scores of the control in [0, 1]. ratio: treatment harm over control harm. lost: mean share of
    effects lost, in both arms alike. discordant: share of pairs in which just one arm succeeds, each equally often.
    """

    duplicates: float
    work: float
    clustering: Clustering
    ratio: float
    lost: float = 0.0
    discordant: float = 0.0


@dataclass(frozen=True)
class Power:
    """One claim. probability: pairs -> chance that it is shown by then. pairs_90: pairs that give a chance of 90 %;
    pairs_median: 50 %; pairs_least: the smallest number with which it can be shown at all (no harm at all for claims of
    absence, the largest possible harm for claims of presence). A string says why there is no number."""

    claim: ClaimName
    probability: dict[int, float]
    pairs_90: int | str
    pairs_median: int | str
    pairs_least: int | str


def power(
    design: Design,
    truth: Truth,
    pairs: Sequence[int],
    claims: Sequence[ClaimName] = CLAIMS,
    replications: int = REPLICATIONS,
    step: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Power, ...]:
    """The chance of each claim after each number of `pairs`, none of which is beyond `design.kill.pairs_max`.

    step: is told how many replications of how many are done. The Monte-Carlo error of a chance p is
    sqrt(p (1 - p) / replications), 2.5 points at most for 400.
    """
    shown_at: dict[ClaimName, list[int]] = {claim: [] for claim in claims}
    for done in range(replications):
        rng = np.random.default_rng([SEED, done])
        for claim, at in _replication(rng, design, truth, set(claims)):
            shown_at[claim].append(at)
        step(done + 1, replications)
    least = pairs_least(design)
    return tuple(_line(claim, np.array(shown_at[claim]), pairs, design, least[claim]) for claim in claims)


def pairs_least(design: Design) -> dict[ClaimName, int | str]:
    """The smallest number of pairs with which each claim can be shown, exactly."""
    plan, taus = design.kill, (design.tau_duplicates, design.tau_work)
    most = ceiling(plan)
    go = _together([_steady(max(most - tau, 0.0), tau, EVEN) for tau in taus], plan.alpha_go, "mean")
    live = [_steady(tau, most - tau, BOLD) for tau in taus if tau < most]
    stop = _together(live, plan.alpha_stop, "least") if live else 1
    better = _together([_steady(design.rho, 1.0, EVEN)] * 2, design.alpha_superiority, "mean")
    loss = _together([_steady(design.loss_margin, 1 - design.loss_margin, BOLD)], design.alpha_non_inferiority, "mean")
    success = _together(
        [_steady(design.success_margin, 1 - design.success_margin, BOLD)], design.alpha_non_inferiority, "mean"
    )
    found: dict[ClaimName, int] = {
        "GO": max(go, plan.pairs_min),
        "GO_NARROW": _narrow_least(design),
        "STOP": max(stop, plan.pairs_min),
        "superiority": max(better, loss, success),
        "loss_non_inferiority": loss,
        "success_non_inferiority": success,
    }
    return {claim: n if n < NEVER else "not possible with these rates" for claim, n in found.items()}


def _replication(
    rng: np.random.Generator, design: Design, truth: Truth, wanted: set[ClaimName]
) -> Iterator[tuple[ClaimName, int]]:
    """One simulated run: each wanted claim with the number of pairs after which it was shown, or NEVER."""
    n = design.kill.pairs_max
    first = duplicates(rng, truth.duplicates, (n,), truth.clustering, design.effects)
    second = losses(rng, truth.work, (n,), truth.clustering)
    drawn = classes(rng, design.kill, (n,))
    if wanted & {"GO", "GO_NARROW", "STOP"}:
        names = [design.kill.classes[c].name for c in drawn]
        primaries = [
            Primary("duplicates", first, first, design.tau_duplicates),
            Primary("work", second, second, design.tau_work),
        ]
        found = decide(primaries, names, design.kill)
        outcomes: tuple[Outcome, ...] = ("GO", "GO_NARROW", "STOP")
        yield from ((o, found.decided_at if found.outcome == o else NEVER) for o in outcomes if o in wanted)
    if not wanted & {"superiority", "loss_non_inferiority", "success_non_inferiority"}:
        return
    loss_at, success_at = _guards_at(rng, design, truth)
    if "loss_non_inferiority" in wanted:
        yield "loss_non_inferiority", loss_at
    if "success_non_inferiority" in wanted:
        yield "success_non_inferiority", success_at
    if "superiority" in wanted:
        treated = duplicates(rng, truth.ratio * truth.duplicates, (n,), truth.clustering, design.effects)
        contrasts = [
            Contrast("duplicates", first, treated),
            Contrast("work", second, losses(rng, truth.ratio * truth.work, (n,), truth.clustering)),
        ]
        paths = [superiority_path(c, design.rho) for c in contrasts]
        own = min(first_look(path, design.alpha_superiority) for path in paths)
        together = first_look(log_mean(*paths), design.alpha_superiority)
        yield "superiority", max(own, together, loss_at, success_at)


def _guards_at(rng: np.random.Generator, design: Design, truth: Truth) -> tuple[int, int]:
    n, alpha = design.kill.pairs_max, design.alpha_non_inferiority
    lost = [duplicates(rng, truth.lost, (n,), truth.clustering, design.effects) for _ in range(2)]
    half = truth.discordant / 2
    success = rng.choice([1.0, -1.0, 0.0], size=n, p=[half, half, 1 - 2 * half])
    return (
        first_look(within_path(lost[1] - lost[0], design.loss_margin), alpha),
        first_look(within_path(success, design.success_margin), alpha),
    )


def _line(claim: ClaimName, at: Array, pairs: Sequence[int], design: Design, least: int | str) -> Power:
    return Power(
        claim=claim,
        probability={n: float((at <= n).mean()) for n in pairs},
        pairs_90=_quantile(at, WANTED, design.kill.pairs_max),
        pairs_median=_quantile(at, 0.5, design.kill.pairs_max),
        pairs_least=least,
    )


def _quantile(at: Array, share: float, pairs_max: int) -> int | str:
    """Pairs by which this share of the replications had shown the claim."""
    place = int(np.sort(at)[int(np.ceil(share * len(at))) - 1])
    return place if place < NEVER else f"more than {pairs_max}"


def _steady(gain: float, b: float, weights: Array) -> Callable[[int], float]:
    """Log evidence after so many pairs if each gains as much, as `log_e_mix` has it."""
    steps, shares = np.log1p(FRACTIONS / b * gain), np.log(weights)
    return lambda n: float(np.logaddexp.reduce(n * steps + shares))


def _together(growing: Sequence[Callable[[int], float]], alpha: float, how: Literal["mean", "least"]) -> int:
    """First number of pairs at which the mean, or the weakest, of the growing evidence reaches 1/alpha."""

    def reached(n: int) -> bool:
        logs = [evidence(n) for evidence in growing]
        log_e = np.logaddexp.reduce(logs) - np.log(len(logs)) if how == "mean" else min(logs)
        return bool(log_e >= -np.log(alpha))

    if not reached(_FAR):
        return NEVER
    return bisect_left(range(_FAR), True, lo=1, key=reached)


def _narrow_least(design: Design) -> int:
    """If the class with the highest rate does full harm in every pair, and every pair draws it."""
    plan, taus = design.kill, (design.tau_duplicates, design.tau_work)
    rate = max(c.rate_high for c in plan.classes)
    limits = [min(1.0, tau / rate) for tau in taus]
    at = _together([_steady(1 - tau, tau, EVEN) for tau in limits], plan.alpha_narrow / len(plan.classes), "mean")
    return max(at, plan.pairs_min) if at < NEVER else NEVER
