"""What the statistical tests share: the registered design, and how many misses chance alone explains."""

from __future__ import annotations

from pathlib import Path

from scipy import stats

from harness.commands.power import plan
from harness.report.prereg import load_prereg
from harness.stats.power import Design

REGISTRATION = Path(__file__).resolve().parents[2] / "schedules" / "prereg" / "kill-criterion-002.yaml"

CHANCE = 0.999
"""A procedure that is exactly as bad as it may be fails a test with one seed in a thousand; seeds are fixed."""


def registered() -> Design:
    """Real weights, rates, thresholds and margins."""
    return plan(load_prereg(REGISTRATION))


def most(alpha: float, replications: int) -> int:
    """The largest number of errors among so many replications that a rate of alpha explains."""
    return int(stats.binom.ppf(CHANCE, replications, alpha))
