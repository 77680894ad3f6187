"""Many claims at once: which of them hold although one looked at all of them.

Both procedures take the running maximum of an e-process, whose inverse is a p-value at any look, and keep the chance of
a single false claim at alpha whatever the dependence between the claims.

Sources: Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6 (1979); Vovk and Wang,
"E-values: calibration, combination and applications", Ann. Statist. 49 (2021).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from harness.stats.betting import Array, log_mean, peak


def e_holm(log_evidence: Mapping[str, float], alpha: float) -> tuple[str, ...]:
    """Names of the claims that are shown, strongest first.

    log_evidence: claim -> largest log e-value at any look. The strongest of m claims needs m/alpha, the next
    (m-1)/alpha, and so on; the first that falls short ends it.
    """
    ranked = sorted(log_evidence, key=lambda name: -log_evidence[name])
    found = []
    for rank, name in enumerate(ranked):
        if log_evidence[name] < np.log((len(ranked) - rank) / alpha):
            break
        found.append(name)
    return tuple(found)


def closed_peaks(paths: Sequence[Array]) -> tuple[float, ...]:
    """For each of these log e-processes the least peak among the averages of all sets of them that it belongs to.

    By the closed test a claim is shown when that number reaches log(1/alpha). Averages of e-processes are e-processes,
    so every set is tested at alpha. 2^k sets are gone through: meant for a handful of paths, each of shape (n,).
    """
    least = [np.inf] * len(paths)
    for size in range(1, len(paths) + 1):
        for members in combinations(range(len(paths)), size):
            together = peak(log_mean(*(paths[i] for i in members)))
            for i in members:
                least[i] = min(least[i], together)
    return tuple(float(value) for value in least)
