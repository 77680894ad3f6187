"""The figure of the study: four rates over six levels, a column for each workload, a line for each ledger."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from harness.report.plots import STYLE
from harness.sensitivity.cells import Cell

RATES = (
    ("duplicate_rate", "duplicates (%)"),
    ("miss_rate", "repeats not known again (%)"),
    ("collision_rate", "taken for one (%)"),
    ("suppressed_rate", "wrongly suppressed (%)"),
)
LOOKS = (("#D55E00", "o"), ("#E69F00", "s"), ("#0072B2", "P"), ("#009E73", "^"), ("#CC79A7", "v"), ("#000000", "X"))
"""Colours of Okabe and Ito (2008), as in `harness.report.plots`; a marker besides, for print without colour."""

COLUMN_IN, ROW_IN = 1.5, 1.15


def figure(found: Sequence[Cell]) -> Figure:
    """Pure in the cells. Where there was no occasion a line has a gap."""
    workloads = list(dict.fromkeys(cell.workload for cell in found))
    arms = list(dict.fromkeys(cell.arm for cell in found))
    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
        size = (0.6 + COLUMN_IN * len(workloads), 0.5 + ROW_IN * len(RATES))
        made = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(made)
        axes = made.subplots(len(RATES), len(workloads), sharex=True, sharey="row", squeeze=False)
        for column, workload in enumerate(workloads):
            axes[0][column].set_title(workload)
            axes[-1][column].set_xlabel("variation level")
            for row, (rate, label) in enumerate(RATES):
                at = axes[row][column]
                for arm, (colour, marker) in zip(arms, LOOKS, strict=False):
                    here = sorted((c for c in found if (c.workload, c.arm) == (workload, arm)), key=lambda c: c.level)
                    drawn = [float("nan") if (v := getattr(c, rate)) is None else 100 * v for c in here]
                    at.plot([c.level for c in here], drawn, color=colour, marker=marker, ms=3, lw=0.9, label=short(arm))
                at.set_ylim(bottom=-0.5)
                if not column:
                    at.set_ylabel(label)
        made.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=len(arms))
    return made


def short(arm: str) -> str:
    """`EXACT_BYTES` of `arms.sabotage.arms:EXACT_BYTES`, as words."""
    return arm.rpartition(":")[2].lower().replace("_", " ")
