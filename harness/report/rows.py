"""One compact row per trial: everything that statistics, tables and plots need, without logs.

Rows are written as `metrics.csv` and are enough to make every derived file again.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harness.core.records import Event, Finding, Metric, NotApplicable, ScoredTrial, TrialRecord, Work
from harness.core.types import BOUNDARIES
from harness.metrics import METRICS
from harness.metrics.effects import PRIMARY_BOUNDARIES, gross
from harness.metrics.hops import HopCounts, hop_counts

Value = float | NotApplicable

CURVE_POINTS_MAX = 16
"""Points of a curve that are kept of each trial: enough for a mean over trials to be drawn."""


class BoundaryCounts(Struct, frozen=True, kw_only=True):
    """Effects of one trial at one boundary. duplicated: intended effects committed more often than required;
    gross: every repetition counted; phantom: effects that no intent explains."""

    intended: int = 0
    observed: int = 0
    duplicated: int = 0
    gross: int = 0
    lost: int = 0
    stale: int = 0
    phantom: int = 0


class Row(Struct, frozen=True, kw_only=True):
    """A judged trial, compacted. Times are nominal milliseconds, tokens are provider-billed.

    invocations: (number of the check invocation, effects at the primary boundaries until the next one), cumulative.
    cost_curve: (at_ms, tokens billed by then), cumulative. clean, violations: see `ScoredTrial`. hops:
    None where nothing is handed up.
    """

    trial: str
    pair: str
    index: int
    arm: str
    fault_class: str
    variant: str
    faults_scheduled: int
    status: Literal["ended", "stuck", "invalid"]
    because: str = ""
    workload: str = ""
    world: str = ""
    variation: int = 0
    exposed: bool = False
    exposure: dict[str, int] = {}
    success: bool = False
    boundaries: dict[str, BoundaryCounts] = {}
    work: Work = Work()
    verdicts: dict[str, int] = {}
    metrics: dict[str, Value] = {}
    duration_ms: float = 0.0
    real_s: float = 0.0
    lag_ms: float = 0.0
    invocations: tuple[tuple[int, int], ...] = ()
    cost_curve: tuple[tuple[float, int], ...] = ()
    clean: dict[str, bool] = {}
    violations: dict[str, int] = {}
    hops: HopCounts | None = None

    @property
    def intended(self) -> int:
        """Intended effects at the primary boundaries."""
        return sum(self.boundaries[name].intended for name in PRIMARY_BOUNDARIES if name in self.boundaries)

    @property
    def duplicated(self) -> int:
        """Intended effects at the primary boundaries that were committed more often than required."""
        return sum(self.boundaries[name].duplicated for name in PRIMARY_BOUNDARIES if name in self.boundaries)

    @property
    def lost(self) -> int:
        """Intended effects at the primary boundaries that did not happen often enough."""
        return sum(self.boundaries[name].lost for name in PRIMARY_BOUNDARIES if name in self.boundaries)

    @property
    def valid(self) -> bool:
        return self.status != "invalid"

    def metric(self, name: str) -> Value:
        """The value of a metric; one that an older row does not have says so."""
        return self.metrics.get(name, NotApplicable("the metric was not computed"))


def row_of(scored: ScoredTrial) -> Row:
    """The row of a judged trial. An invalid one, which our own machinery spoiled, has no values but a reason for each;
    statistics enter it as the worst case against the claim."""
    record = scored.trial.record
    if record.status == "invalid":
        because = NotApplicable(f"the trial is invalid: {record.because or 'no reason recorded'}")
        return _row(record, metrics=dict.fromkeys(METRICS, because))
    return _row(
        record,
        exposed=scored.exposed,
        success=scored.success,
        boundaries={name: _counts(f for f in scored.findings if f.boundary == name) for name in BOUNDARIES},
        work=scored.work,
        verdicts=dict(sorted(scored.verdicts.items())),
        metrics={name: metric.of(scored) for name, metric in METRICS.items()},
        invocations=_invocations(scored.trial.trace, scored.trial.truth),
        cost_curve=_cost_curve(scored.trial.truth),
        clean=scored.clean,
        violations=scored.violations,
        hops=hop_counts(scored),
    )


def read_rows(path: Path) -> list[Row]:
    """The rows of a scored run, in the order of the file; equal parts of them are one object, without which a hundred
    thousand trials would not fit into memory. Raises msgspec.DecodeError, OSError."""
    pool: dict[Any, Any] = {}
    decoder = msgspec.json.Decoder(Row)
    with path.open("rb") as file:
        return [_pooled(decoder.decode(line), pool) for line in file]


def _pooled(row: Row, pool: dict[Any, Any]) -> Row:
    def one(value: Any) -> Any:
        return pool.setdefault(value, value)

    return replace(
        row,
        metrics={name: one(value) for name, value in row.metrics.items()},
        boundaries={name: one(counts) for name, counts in row.boundaries.items()},
        invocations=tuple(map(one, row.invocations)),
        clean=pool.setdefault(tuple(row.clean.items()), row.clean),
        exposure=pool.setdefault(tuple(row.exposure.items()), row.exposure),
        verdicts=pool.setdefault(tuple(row.verdicts.items()), row.verdicts),
    )


def write_metrics_csv(path: Path, rows: Iterable[Row]) -> None:
    """Long format, one line per trial and metric: trial, pair, arm, metric, value, unit, not_applicable.

    `value` is empty exactly where `not_applicable` gives the reason.
    """
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("trial", "pair", "arm", "metric", "value", "unit", "not_applicable"))
        for row in ordered(rows):
            for name, value in row.metrics.items():
                out.writerow((row.trial, row.pair, row.arm, name, *_cells(METRICS.get(name), value)))


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Rows in registered order, then by arm: the order in which workers finished must not show anywhere."""
    return sorted(rows, key=lambda row: (row.index, row.fault_class == "none", row.arm, row.trial))


def _row(record: TrialRecord, **judged: Any) -> Row:
    return Row(
        trial=record.id,
        pair=record.pair,
        index=record.index,
        arm=record.arm,
        fault_class=record.fault_class,
        variant=record.variant,
        faults_scheduled=record.faults_scheduled,
        status=record.status,
        because=record.because,
        workload=record.workload,
        world=record.world,
        variation=record.variation,
        exposure=dict(sorted(record.exposure.items())),
        duration_ms=record.duration_ms,
        real_s=record.real_s,
        lag_ms=record.lag_ms,
        **judged,
    )


def _cells(metric: Metric | None, value: Value) -> tuple[str, str, str]:
    unit = metric.unit if metric else ""
    if isinstance(value, NotApplicable):
        return "", unit, value.because
    return f"{value:.10g}", unit, ""


def _counts(findings: Iterable[Finding]) -> BoundaryCounts:
    here = tuple(findings)
    return BoundaryCounts(
        intended=sum(f.required for f in here),
        observed=sum(f.observed for f in here),
        duplicated=sum(f.duplicated for f in here),
        gross=sum(map(gross, here)),
        lost=sum(f.lost for f in here),
        stale=sum(f.stale for f in here),
        phantom=sum(f.observed for f in here if f.status == "phantom"),
    )


def _invocations(trace: Iterable[Event], truth: Iterable[Event]) -> tuple[tuple[int, int], ...]:
    """Effects accumulated until the next check invocation begins, or the trial ends. Ends of invocations are not used:
    one whose orchestrator was killed has none."""
    effects = [e.at_ms for e in truth if e.kind == "effect" and e.data.get("boundary") in PRIMARY_BOUNDARIES]
    begun = sorted(event.at_ms for event in trace if event.kind == "call" and _is_check(event.data))
    until = [*begun[1:], float("inf")] if begun else []
    return tuple((number, sum(at < end for at in effects)) for number, end in enumerate(until, start=1))


def _is_check(data: Mapping[str, Any]) -> bool:
    site = data.get("site")
    name = site.get("name") if isinstance(site, Mapping) else None
    return "run_check" in (data.get("tool"), name)


def _cost_curve(truth: Iterable[Event]) -> tuple[tuple[float, int], ...]:
    spent, curve = 0, []
    for event in truth:
        if event.kind == "billed":
            spent += int(event.data["prompt_tokens"]) + int(event.data["completion_tokens"])
            curve.append((event.at_ms, spent))
    step = max(1, -(-len(curve) // CURVE_POINTS_MAX))
    return tuple(curve[::-step][::-1])  # the last point is the whole
