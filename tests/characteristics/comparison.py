"""The claims about the treatment under assumed truths: superiority with both non-inferiority gates, and each alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.stats.claims import Contrast, non_inferiority, superiority
from harness.stats.power import Design
from harness.stats.scenarios import Clustering, duplicates, losses


@dataclass(frozen=True)
class Cell:
    """An assumed truth. duplicates, work: harm of the control, as mean scores. ratio_duplicates, ratio_work: harm of
    the treatment over that. lost, failed: how much more the treatment loses and fails, in multiples of the margins."""

    duplicates: float
    work: float
    ratio_duplicates: float
    ratio_work: float
    clustering: Clustering
    lost: float = 0.0
    failed: float = 0.0


@dataclass(frozen=True)
class Result:
    """What was shown in one simulated run, and whether one of the claims is false."""

    better: bool
    better_wrongly: bool
    loss: bool
    success: bool
    claimed: bool


def simulate(cell: Cell, design: Design, pairs: int, replications: int, seed: int) -> list[Result]:
    """Runs of so many pairs, looked at after each."""
    return [_run(cell, design, pairs, np.random.default_rng([seed, k])) for k in range(replications)]


def _run(cell: Cell, design: Design, n: int, rng: np.random.Generator) -> Result:
    control = (
        duplicates(rng, cell.duplicates, (n,), cell.clustering, design.effects),
        losses(rng, cell.work, (n,), cell.clustering),
    )
    treated = (
        duplicates(rng, cell.ratio_duplicates * cell.duplicates, (n,), cell.clustering, design.effects),
        losses(rng, cell.ratio_work * cell.work, (n,), cell.clustering),
    )
    contrasts = [Contrast(str(k), *arms) for k, arms in enumerate(zip(control, treated, strict=True))]
    shown = [claim.shown for claim in superiority(contrasts, design.rho, design.alpha_superiority)]
    wrong = [ratio >= design.rho for ratio in (cell.ratio_duplicates, cell.ratio_work)]
    lost = duplicates(rng, cell.lost * design.loss_margin, (n,), "high", design.effects)
    background = 0.02
    failed = rng.choice(
        [1.0, -1.0, 0.0],
        size=n,
        p=[
            background + cell.failed * design.success_margin,
            background,
            1 - 2 * background - cell.failed * design.success_margin,
        ],
    )
    alpha = design.alpha_non_inferiority
    loss = non_inferiority("lost", lost, design.loss_margin, alpha).shown
    success = non_inferiority("failed", failed, design.success_margin, alpha).shown
    return Result(
        better=any(shown),
        better_wrongly=any(s and w for s, w in zip(shown, wrong, strict=True)),
        loss=loss,
        success=success,
        claimed=any(shown) and loss and success,
    )
