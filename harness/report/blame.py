"""The blame matrix of a run: whom each arm's enforcement struck, pooled over its trials.

Precision and recall are ratios of sums over trials, since a trial has few stops or none; without a stop there is no
precision, and without anybody guilty no recall: neither is 1 then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from harness.core.records import NotApplicable
from harness.metrics.blame import CELLS, GUARDS, name_of
from harness.report.rows import Row


def blame(rows: Mapping[str, Sequence[Row]]) -> dict[str, dict[str, Any]]:
    """The matrix of each arm: {arm: {guard: {guilty_stopped, guilty_spared, healthy_killed, healthy_spared, trials,
    not_applicable_trials, precision, recall}}}.

    precision: {estimate, stops}; recall: {estimate, guilty}; each, and a guard that no trial has counts of, may be
    {not_applicable: because}. Invalid trials count for nobody.
    """
    return {arm: {guard: _pooled(guard, here) for guard in GUARDS} for arm, here in rows.items()}


def counts(rows: Sequence[Row], guard: str) -> list[dict[str, int]]:
    """The four cells of each valid trial that has them, in order: what intervals by trial are made from."""
    found = []
    for row in rows:
        values = {cell: row.metrics.get(name_of(guard, cell)) for cell in CELLS} if row.valid else {}
        cells = {cell: int(v) for cell, v in values.items() if isinstance(v, float | int)}
        if len(cells) == len(CELLS):
            found.append(cells)
    return found


def _pooled(guard: str, rows: Sequence[Row]) -> dict[str, Any]:
    found = counts(rows, guard)
    missing = {"trials": len(found), "not_applicable_trials": len(rows) - len(found)}
    if not found:
        return {"not_applicable": _because(guard, rows), **missing}
    total = {cell: sum(one[cell] for one in found) for cell in CELLS}
    right, stops = total["guilty_stopped"], total["guilty_stopped"] + total["healthy_killed"]
    guilty = right + total["guilty_spared"]
    return {
        **total,
        **missing,
        "precision": {"estimate": right / stops, "stops": stops}
        if stops
        else {"not_applicable": "nothing was stopped"},
        "recall": {"estimate": right / guilty, "guilty": guilty} if guilty else {"not_applicable": "nobody was guilty"},
    }


def _because(guard: str, rows: Sequence[Row]) -> str:
    values = [row.metrics.get(name_of(guard, next(iter(CELLS)))) for row in rows]
    reasons = Counter(value.because for value in values if isinstance(value, NotApplicable))
    return reasons.most_common(1)[0][0] if reasons else "no trial counted it"
