"""What each primitive buys and costs: the complete arm against the same arm with one part left out, or with one alone.

A variant is known by its name, `<arm>_without_<part>` or `<arm>_only_<part>`. Differences are paired, over the common
pairs; the intervals of the metrics that are not registered are for orientation and no claim rests on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.core.records import NotApplicable
from harness.metrics import METRICS
from harness.report.rows import Row

VARIANTS_MIN = 3
"""A run with fewer variants of its treatment is no ablation, and gets no table of one."""

SHOWN = (
    "duplicates_gross",
    "lost_incidence",
    "phantom",
    "work_destroyed_tokens",
    "tokens_in_loops",
    "flaky_answers_believed",
    "blast_radius",
    "bystanders_woken",
    "checks_run",
    "tokens_billed",
    "tokens_on_stronger_model",
    "task_success",
)
"""Metrics of the table, in reading order: what a part is for, then what it costs."""

Z95 = 1.96


def variants(arms: Sequence[str], complete: str) -> list[str]:
    """The arms that are the complete one with something left out, or with one part alone."""
    return [arm for arm in arms if arm.startswith((f"{complete}_without_", f"{complete}_only_"))]


def ablation(rows: Mapping[str, Sequence[Row]], complete: str) -> dict[str, Any]:
    """`{of, arms: {arm: {metric: {difference, ci_low, ci_high, pairs} | {not_applicable}}}}`; empty without variants.

    difference: variant minus complete arm, mean over the pairs that both have a value for. rows: by arm, by pair.
    """
    names = variants(list(rows), complete)
    if complete not in rows or len(names) < VARIANTS_MIN:
        return {}
    whole = {row.index: row for row in rows[complete] if row.valid}
    compared = {}
    for arm in names:
        pairs = [(whole[row.index], row) for row in rows[arm] if row.valid and row.index in whole]
        compared[arm] = {name: _paired(pairs, name) for name in SHOWN if name in METRICS}
    return {"of": complete, "arms": compared}


def _paired(pairs: Sequence[tuple[Row, Row]], name: str) -> dict[str, Any]:
    both = [(a.metric(name), b.metric(name)) for a, b in pairs]
    apart = [b - a for a, b in both if not isinstance(a, NotApplicable) and not isinstance(b, NotApplicable)]
    if len(apart) < 2:
        return {"not_applicable": f"{len(apart)} pairs have a value in both arms"}
    mean, error = float(np.mean(apart)), float(np.std(apart, ddof=1) / np.sqrt(len(apart)))
    return {"difference": mean, "ci_low": mean - Z95 * error, "ci_high": mean + Z95 * error, "pairs": len(apart)}


def sentences(found: Mapping[str, Any]) -> list[str]:
    """For each part and the metric that it is there for: whether leaving it out made that metric worse here."""
    said = []
    for part, metric, why in EXPECTED:
        arm = f"{found['of']}_without_{part}"
        entry = found["arms"].get(arm, {}).get(metric)
        if entry is None:
            continue
        if "not_applicable" in entry:
            said.append(f"{arm}: whether {why} cannot be told here, {entry['not_applicable']}")
        elif worse(entry, metric):
            said.append(f"{arm}: {why}, {metric} changes by {entry['difference']:.3g} a trial")
        else:
            low, high = entry["ci_low"], entry["ci_high"]
            said.append(f"{arm}: it was not seen here that {why}, {metric} changes by {low:.3g} to {high:.3g} a trial")
    return said


def worse(entry: Mapping[str, Any], metric: str) -> bool:
    """Whether the whole interval of a difference lies on the bad side."""
    return bool(entry["ci_high"] < 0 if METRICS[metric].better == "higher" else entry["ci_low"] > 0)


EXPECTED = (
    ("m1", "tokens_in_loops", "loops cost more without the progress breaker"),
    ("m2", "phantom", "undeclared effects get out without gates"),
    ("m3", "duplicates_gross", "effects are duplicated without the ledger"),
    ("m4", "task_success", "work that converges is given up without the budget lattice"),
    ("m5", "blast_radius", "more components are woken without the router"),
    ("m6", "flaky_answers_believed", "turned answers are acted on without quarantine"),
)
"""What each primitive is there for, and the metric that would show it."""
