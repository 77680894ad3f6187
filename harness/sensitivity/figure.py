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
    ("miss_rate", "repeats not\nknown again (%)"),
    ("collision_rate", "taken for one (%)"),
    ("suppressed_rate", "wrongly\nsuppressed (%)"),
)
LOOKS = (("#D55E00", "o"), ("#E69F00", "s"), ("#0072B2", "P"), ("#009E73", "^"), ("#CC79A7", "v"), ("#000000", "X"))
"""Colours of Okabe and Ito (2008), as in `harness.report.plots`; a marker besides, for print without colour."""
LINES = ("-", "--", ":", "-.")
"""One for each round through the looks, where there are more ledgers than looks."""

COLUMN_IN, ROW_IN, LEAST_WIDTH_IN = 1.5, 1.15, 3.6
LEGEND_COLUMN_IN = 1.8
"""Room for the longest name of a ledger: the legend has as many columns as fit."""


def figure(found: Sequence[Cell]) -> Figure:
    """Pure in the cells. Where there was no occasion a line has a gap."""
    workloads = list(dict.fromkeys(cell.workload for cell in found))
    arms = list(dict.fromkeys(cell.arm for cell in found))
    levels = sorted({cell.level for cell in found})
    looks = {arm: (*LOOKS[nth % len(LOOKS)], LINES[nth // len(LOOKS) % len(LINES)]) for nth, arm in enumerate(arms)}
    width_in = max(LEAST_WIDTH_IN, 0.6 + COLUMN_IN * len(workloads))
    columns = min(len(arms), int(width_in / LEGEND_COLUMN_IN))
    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
        height_in = 0.3 + 0.15 * -(-len(arms) // columns) + ROW_IN * len(RATES)
        made = Figure(figsize=(width_in, height_in), layout="constrained")
        FigureCanvasAgg(made)
        axes = made.subplots(len(RATES), len(workloads), sharex=True, sharey="row", squeeze=False)
        for column, workload in enumerate(workloads):
            axes[0][column].set_title(workload)
            axes[-1][column].set_xlabel("variation level")
            for row, (rate, label) in enumerate(RATES):
                at = axes[row][column]
                for arm, (colour, marker, line) in looks.items():
                    here = sorted((c for c in found if (c.workload, c.arm) == (workload, arm)), key=lambda c: c.level)
                    drawn = [float("nan") if (v := getattr(c, rate)) is None else 100 * v for c in here]
                    look = {"color": colour, "marker": marker, "ls": line, "ms": 3, "lw": 0.9, "clip_on": False}
                    at.plot([c.level for c in here], drawn, label=short(arm), **look)
                at.set_xticks(levels)
                if not column:
                    at.set_ylabel(label)
        for first, *_ in axes:  # once all is drawn: whoever sets limits ends their adjustment, for the whole row
            first.set_ylim(bottom=0, top=max(1.0, first.get_ylim()[1]))
        made.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=columns)
    return made


def short(arm: str) -> str:
    """`EXACT_BYTES` of `arms.sabotage.arms:EXACT_BYTES`, as words."""
    return arm.rpartition(":")[2].lower().replace("_", " ")
