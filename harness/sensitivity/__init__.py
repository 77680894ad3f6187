"""How much variation does a ledger bear? The same trials at every level, for ledgers of three kinds.

Why a study of its own: a run has one level, and a ledger that does well there may be one that only compares bytes.
"""

from harness.sensitivity.cells import Cell, defeated, pooled
from harness.sensitivity.runs import BASE, cells, planned

__all__ = ["BASE", "Cell", "cells", "defeated", "planned", "pooled"]
