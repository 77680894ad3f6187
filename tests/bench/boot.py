"""What it costs to prove, before the first call, that no gate rejects correct work.

To be held against the start of a bare interpreter (`limits.interpreter`): an arm pays both once, at the same moment.
"""

from __future__ import annotations

from arms.mesh.gates import corpus
from arms.mesh.m2_exoneration import boot_check
from tests.bench.limits import repeated

REFERENCE_MS = 36.0
"""What the paper reports for thirteen gates, on its own machine and corpus."""


def exoneration(n: int) -> list[float]:
    """Seconds of each of `n` boot checks of all gates, with the reading of the corpus files in it."""

    def fresh() -> None:
        corpus.load.cache_clear()
        boot_check()

    return repeated(fresh, n, warm=1)
