"""Comparison of a treatment arm with the control on the same pairs: superiority and non-inferiority.

Superiority is stated as a ratio (treatment harm below rho times control harm), because pairs without harm then leave
the evidence as it is. It counts only together with both non-inferiority claims: an arm that suppresses everything has
no duplicates and loses everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.stats.betting import BOLD, Array, e_value, log_e_mix, log_mean, peak
from harness.stats.holm import closed_peaks


@dataclass(frozen=True)
class Claim:
    """One claim about the treatment arm. evidence: largest e-value at any look. needed: e-value that shows it."""

    name: str
    shown: bool
    evidence: float
    needed: float
    reason: str
    contrary_shown: bool = False  # non-inferiority only: the harm is shown to be larger than the margin


@dataclass(frozen=True)
class Contrast:
    """Scores in [0, 1] of one metric in both arms, one per common pair in registered order, shape (n,). Invalid trials
    are entered against the claim: control without harm, treatment with full harm."""

    name: str
    control: Array
    treatment: Array


def superiority(contrasts: Sequence[Contrast], rho: float, alpha: float) -> tuple[Claim, ...]:
    """Is harm in the treatment arm below `rho` times that in the control, per contrast?

    Closed test over all contrasts: one is shown when the averaged evidence of every set of contrasts that it belongs to
    reaches 1/alpha, which controls the chance of any false claim at alpha. Of two contrasts: its own evidence, and the
    average of both.
    """
    paths = [superiority_path(c, rho) for c in contrasts]
    closed = closed_peaks(paths)
    together = peak(log_mean(*paths)) if paths and paths[0].size else 0.0
    need = -np.log(alpha)
    claims = []
    for contrast, path, least in zip(contrasts, paths, closed, strict=True):
        own, shown = peak(path), bool(least >= need)
        reason = (
            f"{contrast.name}: treatment harm {'is' if shown else 'not shown to be'} below {rho:g} x control "
            f"(evidence {e_value(own):.3g}, all primaries together {e_value(together):.3g}, needed {1 / alpha:.3g}, "
            f"{len(path)} pairs)"
        )
        claims.append(Claim(contrast.name, shown, e_value(own), 1 / alpha, reason))
    return tuple(claims)


def superiority_path(contrast: Contrast, rho: float) -> Array:
    """Log e-process, per pair, for "harm of the treatment is below `rho` times that of the control"."""
    return log_e_mix(rho * contrast.control - contrast.treatment, 1.0)


def within_path(excess: Array, margin: float) -> Array:
    """Log e-process, per pair, for "the mean excess is below `margin`". excess in [-1, 1], shape (..., n)."""
    return log_e_mix(margin - excess, 1.0 - margin, BOLD)


def non_inferiority(name: str, excess: Array, margin: float, alpha: float) -> Claim:
    """Is the harm that the treatment does beyond the control below `margin`?

    excess: harm of treatment minus harm of control per pair, in [-1, 1], shape (n,); for a success metric, control
    minus treatment. Also says whether the opposite is shown: a mean excess above the margin.
    """
    path = within_path(excess, margin)
    against = log_e_mix(excess - margin, 1.0 + margin)
    need = -np.log(alpha)
    shown, contrary = bool(peak(path) >= need), bool(peak(against) >= need)
    verdict = "worse by more than" if contrary else "not worse by" if shown else "not shown to be within"
    reason = (
        f"{name}: {verdict} the margin of {margin:g} "
        f"(evidence {e_value(peak(path)):.3g}, needed {1 / alpha:.3g}, {len(path)} pairs)"
    )
    return Claim(name, shown, e_value(peak(path)), 1 / alpha, reason, contrary)
