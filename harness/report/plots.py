"""Plots that a paper can print: one column wide, colour-blind-safe, every arm told apart by colour and by marker.

Figures are pure functions of the summary and the rows, and their files are byte-equal for equal input: no dates, no
program version, fixed identifiers in SVG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from harness.metrics import METRICS
from harness.report.ablation import Z95
from harness.report.evidence import DUPLICATES, NO_FAULT, WORK
from harness.report.rows import Row

WIDTH_IN = 3.5  # one column

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 6.5,
    "figure.dpi": 100,
    "svg.hashsalt": "agentmesh",
    "svg.fonttype": "path",
}

ARM_LOOK = {
    "naive": ("#D55E00", "o"),
    "naive_contained": ("#E69F00", "s"),
    "journaled": ("#56B4E9", "D"),
    "journaled_probe": ("#009E73", "^"),
    "mesh": ("#0072B2", "P"),
    "mesh_without_probe": ("#CC79A7", "v"),
    "mesh_without_provider_replay": ("#000000", "X"),
}
"""Colours of Okabe and Ito (2008), "Color Universal Design"; yellow is left out, it vanishes on white."""

_SPARE = (
    ("#882255", "p"),
    ("#44AA99", "h"),
    ("#117733", "*"),
    ("#332288", "<"),
    ("#AA4499", ">"),
    ("#999933", "d"),
    ("#661100", "H"),
    ("#6699CC", "8"),
    ("#666666", "P"),
    ("#999999", "s"),
)
"""For arms that have no look of their own (Tol's muted scheme)."""

FIGURES: dict[str, Callable[[Mapping[str, Any], Sequence[Row]], Figure]] = {
    "duplicate_effect_rate": lambda summary, rows: by_fault(summary, DUPLICATES, "duplicate-effect rate (%)", 100.0),
    "work_destroyed_per_fault": lambda summary, rows: by_fault(
        summary, WORK, "tokens destroyed per scheduled fault (thousands)", 1e-3
    ),
    "effects_over_invocations": lambda summary, rows: effects_over_invocations(summary, rows),
    "cost_over_time": lambda summary, rows: cost_over_time(summary, rows),
    "ablation": lambda summary, rows: ablation(summary),
}
"""File name (without ending) and figure."""

CAPTIONS = {
    "duplicate_effect_rate": (
        "Share of intended effects committed more often than required, by fault class and arm, with 95 % intervals. "
        "Dotted: the rate per forced fault from which the harm is material in operation, if all classes did equal harm."
    ),
    "work_destroyed_per_fault": (
        "Tokens destroyed per scheduled fault, by fault class and arm, with 95 % intervals. Dotted: as above."
    ),
    "effects_over_invocations": (
        "Effects that have happened after each check invocation, as a share of the intended ones, mean over trials "
        "with faults. Dashed: what was intended; an arm that ends above it has committed some too often."
    ),
    "cost_over_time": "Tokens billed so far over nominal time, median over trials with faults.",
    "ablation": (
        "Each variant minus the complete arm, in standard errors of the paired difference; filled where leaving the "
        "part out makes things worse, hollow where it makes them better. The dotted lines are at two standard errors."
    ),
}


def write_plots(folder: Path, summary: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, str]:
    """Write every figure as PNG and SVG. Returns the SVG texts by figure name."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {}
    for name, draw in FIGURES.items():
        if name == "ablation" and not summary.get("ablation"):
            continue
        with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
            figure = draw(summary, rows)
            FigureCanvasAgg(figure)
            figure.savefig(folder / f"{name}.png", dpi=250, metadata={"Software": None})
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})
        texts[name] = (folder / f"{name}.svg").read_text(encoding="utf-8")
    return texts


def by_fault(summary: Mapping[str, Any], primary: str, label: str, factor: float) -> Figure:
    """Estimates with intervals, grouped by fault class, all classes together first."""
    arms = summary["arms"]
    groups = [("all classes", summary["primary"][primary])]
    groups += [(name, {arm: entry[arm][primary] for arm in arms}) for name, entry in summary["by_fault"].items()]
    step = len(arms) + 1.5
    figure, axes = _figure(0.5 + 0.074 * step * len(groups), arms)
    highest = 0.0
    for nth, (_, entries) in enumerate(groups):
        for place, arm in enumerate(arms):
            entry = entries[arm]
            if "estimate" in entry:
                y = nth * step + place
                low, mid, high = (entry[key] * factor for key in ("ci_low", "estimate", "ci_high"))
                highest = max(highest, high)
                colour, marker = look(arm, arms)
                axes.plot([low, high], [y, y], color=colour, linewidth=1.0, solid_capstyle="butt")
                axes.plot([mid], [y], color=colour, marker=marker, markersize=3.2, linestyle="none", clip_on=False)
        if nth:
            axes.axhline(nth * step - 1.25, color="#DDDDDD", linewidth=0.5)
    middle = (len(arms) - 1) / 2
    axes.set_yticks(
        [nth * step + middle for nth in range(len(groups))], [name.replace("_", "\n") for name, _ in groups]
    )
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(groups) * step - 1.0, -1.2)
    threshold = summary["decision"]["unconditional"][primary]["conditional_threshold"] * factor
    axes.set_xlim(0, max(highest * 1.04, threshold * 1.2, 1e-9))
    axes.axvline(threshold, color="#555555", linewidth=0.8, linestyle=(0, (1, 2)), zorder=1.2)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color="#EEEEEE", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel(label)
    return figure


def effects_over_invocations(summary: Mapping[str, Any], rows: Sequence[Row]) -> Figure:
    """Mean of (effects so far / intended effects) after the k-th check invocation; a finished trial keeps its last."""
    arms = summary["arms"]
    figure, axes = _figure(2.3, arms)
    curves = {arm: [r for r in _shown(rows, arm) if r.invocations and r.intended] for arm in arms}
    longest = _quantile([len(r.invocations) for rows in curves.values() for r in rows], 0.9)
    for arm in arms:
        if not curves[arm]:
            continue
        mean = np.mean([_held([n / r.intended for _, n in r.invocations], int(longest)) for r in curves[arm]], axis=0)
        _line(axes, np.arange(1, len(mean) + 1), mean, arm, arms)
    axes.axhline(1.0, color="#555555", linewidth=0.8, linestyle=(0, (4, 2)), zorder=1.2)
    axes.set_xlim(0.5, max(longest, 1) + 0.5)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _finish(axes, "check invocations in the trial", "effects so far / intended effects")
    return figure


def cost_over_time(summary: Mapping[str, Any], rows: Sequence[Row]) -> Figure:
    """Median over trials of the tokens billed by a moment; a finished trial keeps its last value."""
    arms = summary["arms"]
    figure, axes = _figure(2.3, arms)
    curves = {arm: [r for r in _shown(rows, arm) if r.cost_curve] for arm in arms}
    end_ms = _quantile([r.cost_curve[-1][0] for rows in curves.values() for r in rows], 0.95)
    grid = np.linspace(0.0, max(end_ms, 1.0), 160)
    for arm in arms:
        if curves[arm]:
            median = np.median([_billed_by(r, grid) for r in curves[arm]], axis=0)
            _line(axes, grid / 60_000, median / 1000, arm, arms)
    axes.set_xlim(0, grid[-1] / 60_000)
    axes.set_ylim(bottom=0)
    _finish(axes, "nominal time (minutes)", "tokens billed (thousands)")
    return figure


def ablation(summary: Mapping[str, Any]) -> Figure:
    """Paired differences of every variant, by metric, in standard errors, so that units can share one axis."""
    found = summary["ablation"]["arms"]
    arms = list(found)
    metrics = [name for name in next(iter(found.values())) if any("difference" in found[arm][name] for arm in arms)]
    step = len(arms) + 1.5
    figure, axes = _figure(0.5 + 0.074 * step * len(metrics), arms)
    for nth, name in enumerate(metrics):
        for place, arm in enumerate(arms):
            entry = found[arm][name]
            width = entry["ci_high"] - entry["ci_low"] if "difference" in entry else 0.0
            if width:
                worse = (entry["difference"] > 0) is (METRICS[name].better == "lower")
                colour, marker = look(arm, arms)
                at = entry["difference"] * 2 * Z95 / width
                filled = colour if worse else "none"
                axes.plot([at], [nth * step + place], color=colour, marker=marker, markersize=3.2, mfc=filled)
    middle = (len(arms) - 1) / 2
    axes.set_yticks([nth * step + middle for nth in range(len(metrics))], [m.replace("_", "\n") for m in metrics])
    axes.set_ylim(len(metrics) * step - 1.0, -1.2)
    for at in (-2, 0, 2):
        axes.axvline(at, color="#555555", linewidth=0.6, linestyle=(0, (1, 2)) if at else "-", zorder=1.2)
    axes.set_xlabel("variant minus complete arm (standard errors)")
    return figure


def look(arm: str, arms: Sequence[str]) -> tuple[str, str]:
    """Colour and marker of an arm."""
    strangers = [name for name in arms if name not in ARM_LOOK]
    return ARM_LOOK.get(arm) or _SPARE[strangers.index(arm) % len(_SPARE)]


def _figure(height_in: float, arms: Sequence[str]) -> tuple[Figure, Axes]:
    """A figure with the legend of all arms above its axes."""
    lines = -(-len(arms) // 2)
    figure = Figure(figsize=(WIDTH_IN, height_in + 0.14 * lines), layout="constrained")
    axes = figure.add_subplot()
    handles = []
    for arm in arms:
        colour, marker = look(arm, arms)
        handles.append(Line2D([], [], color=colour, marker=marker, markersize=3.2, linewidth=1.0, label=arm))
    figure.legend(handles=handles, loc="outside upper left", ncols=2, columnspacing=1.2, handlelength=1.8)
    return figure, axes


def _line(axes: Axes, x: Any, y: Any, arm: str, arms: Sequence[str]) -> None:
    colour, marker = look(arm, arms)
    every = max(1, len(x) // 8)
    offset = list(arms).index(arm) * every // len(arms)  # markers of lines that coincide do not hide each other
    thin = "_without_" in arm  # ablations stand back
    axes.plot(
        x,
        y,
        color=colour,
        linewidth=0.8 if thin else 1.2,
        linestyle=(0, (3, 1.5)) if thin else "-",
        marker=marker,
        markersize=2.8,
        markevery=(offset, every),
        zorder=2.5 + 0.01 * (len(arms) - list(arms).index(arm)) - thin,
    )


def _finish(axes: Axes, x: str, y: str) -> None:
    axes.grid(color="#EEEEEE", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _shown(rows: Iterable[Row], arm: str) -> list[Row]:
    return [row for row in rows if row.arm == arm and row.fault_class != NO_FAULT and row.valid]


def _held(values: Sequence[float], length: int) -> list[float]:
    return [*values[:length], *[values[-1]] * (length - len(values))]


def _billed_by(row: Row, grid: Any) -> Any:
    at, spent = zip(*row.cost_curve, strict=True)
    return np.concatenate([[0], spent])[np.searchsorted(at, grid, side="right")]


def _quantile(values: Sequence[float], q: float) -> float:
    return float(np.quantile(values, q, method="higher")) if values else 0.0
