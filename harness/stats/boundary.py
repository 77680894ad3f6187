"""Per-attempt and per-boundary rates, with the identities that make a quoted table checkable.

A boundary crossing may be attempted more than once and counts as clean when any attempt was. So the boundary rate rises
with the retry budget alone, and says nothing of duplicates: a first attempt that took effect but lost its
acknowledgement, and was then repeated, is clean. Print it beside duplicate incidence, with both counts.

Where retrying ends at the first clean attempt,   failed attempts - unclean boundaries = retries   holds exactly,
whatever the run looked like; figures that violate it cannot come from one data set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from harness.stats.asymptotic import clopper_pearson, korn_graubard
from harness.stats.intervals import Interval


@dataclass(frozen=True)
class Crossings:
    """Counts of boundary crossings and of the attempts at them; checked when made (ValueError).

    boundaries: crossings. attempts: >= boundaries. failed: attempts that were not clean. unclean: crossings without any
    clean attempt.
    """

    boundaries: int
    attempts: int
    failed: int
    unclean: int

    def __post_init__(self) -> None:
        if problems := contradictions(self.boundaries, self.attempts, self.failed, self.unclean):
            raise ValueError("; ".join(problems))

    @property
    def attempt_rate(self) -> Fraction:
        """Share of attempts that were clean."""
        return 1 - Fraction(self.failed, self.attempts)

    @property
    def boundary_rate(self) -> Fraction:
        """Share of crossings that were clean in the end."""
        return 1 - Fraction(self.unclean, self.boundaries)


def single_retry(boundaries: int, first_failed: int, retried: int, retry_clean: int) -> Crossings:
    """Counts where a failed crossing was retried once at most. retried: of `first_failed`; retry_clean: of those."""
    if not 0 <= retry_clean <= retried <= first_failed <= boundaries:
        raise ValueError(
            f"need clean retries <= retries <= first failures <= boundaries, not "
            f"{retry_clean}, {retried}, {first_failed}, {boundaries}"
        )
    return Crossings(boundaries, boundaries + retried, first_failed + retried - retry_clean, first_failed - retry_clean)


def contradictions(boundaries: int, attempts: int, failed: int, unclean: int) -> tuple[str, ...]:
    """Why these four counts cannot belong together; empty if they can. Retrying is taken to end at the first clean
    attempt."""
    if not 0 < boundaries <= attempts:
        return (f"{attempts} attempts at {boundaries} boundaries: each is attempted at least once",)
    found = []
    if not 0 <= unclean <= boundaries:
        found.append(f"{unclean} of {boundaries} boundaries are not clean")
    if not 0 <= failed <= attempts:
        found.append(f"{failed} of {attempts} attempts failed")
    if failed - unclean != attempts - boundaries:
        found.append(
            f"failed attempts less unclean boundaries are {failed - unclean}, retries are {attempts - boundaries}: "
            "these are equal where retrying ends at the first clean attempt"
        )
    return tuple(found)


def sizes(attempt_rate: str, boundary_rate: str, retries: int, boundaries_max: int) -> Iterator[Crossings]:
    """All counts with so many retries whose rates round to the quoted ones, by size.

    attempt_rate, boundary_rate: percentages as quoted ("96.3"); their decimals say how they were rounded.
    """
    for boundaries in range(1, boundaries_max + 1):
        attempts = boundaries + retries
        failing = _within(attempt_rate, attempts)
        for unclean in _within(boundary_rate, boundaries):
            if unclean + retries in failing:
                yield Crossings(boundaries, attempts, unclean + retries, unclean)


def _within(quoted: str, total: int) -> list[int]:
    """Numbers of failures among `total` whose success rate, in per cent, rounds (half to even) to what is quoted."""
    decimals = len(quoted.partition(".")[2])
    missing, half = total * (100 - Fraction(quoted)) / 100, Fraction(total, 200 * 10**decimals)
    near = range(max(0, int(missing - half)), min(total, int(missing + half) + 1) + 1)
    return [failed for failed in near if round(100 - Fraction(100 * failed, total), decimals) == Fraction(quoted)]


@dataclass(frozen=True)
class RunCrossings:
    """One run: whether it succeeded as a whole, and for each crossing whether each of its attempts was clean."""

    success: bool
    crossings: Sequence[Sequence[bool]]


@dataclass(frozen=True)
class BoundaryTable:
    """Both rates with intervals over runs (Korn-Graubard), and what they would predict if crossings were independent.

    predicted, predicted_by_attempts: mean success of a run if all its crossings had to be clean, at either rate.
    observed: share of runs that succeeded. residual: share of failed runs in which every crossing was clean, with its
    exact interval; a string where no run failed. masked: runs that succeeded with an unclean crossing.
    """

    counts: Crossings
    per_attempt: Interval
    per_boundary: Interval
    predicted: float
    predicted_by_attempts: float
    observed: float
    residual: Interval | str
    masked: int


def table(runs: Sequence[RunCrossings], alpha: float = 0.05) -> BoundaryTable:
    """Rates of at least two runs with at least one crossing each. Raises ValueError for fewer, and for a crossing that
    went on after a clean attempt or was never attempted."""
    for run in runs:
        if not run.crossings or any(not tried or any(tried[:-1]) for tried in run.crossings):
            raise ValueError("each run needs a crossing, each crossing an attempt, and none after a clean one")
    attempts = np.array([sum(len(tried) for tried in run.crossings) for run in runs])
    failed = np.array([sum(not clean for tried in run.crossings for clean in tried) for run in runs])
    boundaries = np.array([len(run.crossings) for run in runs])
    unclean = np.array([sum(not any(tried) for tried in run.crossings) for run in runs])
    success = np.array([run.success for run in runs])
    counts = Crossings(int(boundaries.sum()), int(attempts.sum()), int(failed.sum()), int(unclean.sum()))
    lost = int((~success).sum())
    alone = int((~success & (unclean == 0)).sum())
    return BoundaryTable(
        counts=counts,
        per_attempt=_complement(korn_graubard(failed, attempts, alpha)),
        per_boundary=_complement(korn_graubard(unclean, boundaries, alpha)),
        predicted=float(np.mean(float(counts.boundary_rate) ** boundaries)),
        predicted_by_attempts=float(np.mean(float(counts.attempt_rate) ** boundaries)),
        observed=float(success.mean()),
        residual=Interval(alone / lost, *clopper_pearson(alone, lost, alpha)) if lost else "no run failed",
        masked=int((success & (unclean > 0)).sum()),
    )


def _complement(found: Interval) -> Interval:
    return Interval(1 - found.estimate, 1 - found.high, 1 - found.low)
