"""`summary.json`: everything that a reader or a script may want to know of a run, under stable keys.

Pure: the same rows, manifest and registration give the same summary. Every estimate is over the registered prefix of
pairs, by intention to treat; pairs in which both arms met a fault are shown beside it. A value that cannot be given is
`{"not_applicable": because}`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from msgspec import Struct

from harness.core.records import NotApplicable
from harness.core.types import BOUNDARIES
from harness.metrics import METRICS
from harness.report import decision as decisions
from harness.report import dependence, planning
from harness.report import hops as hop_rates
from harness.report.ablation import ablation
from harness.report.arrange import Run, arrange
from harness.report.blame import blame
from harness.report.evidence import DUPLICATES, Scale, difference, rate, scales, series
from harness.report.gates import failed_gates
from harness.report.levels import levels
from harness.report.precision import beside_difference, beside_rate
from harness.report.prereg import Prereg
from harness.report.rows import Row, ordered
from harness.report.stopping import look, misplaced, told

SCHEMA = "agentmesh-summary/1"


class Beside(Struct, frozen=True, kw_only=True):
    """What is known of a run beside its trials. status: {confirmatory, because}. calibration: content of
    `calibration.json`, None where none was made."""

    status: Mapping[str, Any] = {}
    calibration: Mapping[str, Any] | None = None


def build_summary(
    rows: Iterable[Row],
    manifest: Mapping[str, Any],
    prereg: Prereg,
    beside: Beside = Beside(),  # noqa: B008 (frozen)
) -> dict[str, Any]:
    """The summary of a run.

    Reads from the manifest: `arms` (names), `pairs` (registered number), `world`, `schedule` {name, sha256} and
    `preregistration` {sha256, sealed_before_first_trial}. Raises ValueError when there are no rows, or two trials claim
    the same place.
    """
    run = arrange(ordered(rows), manifest, prereg)
    status = Counter(row.status for row in run.counted)
    sealed, stopping = manifest.get("preregistration", {}), _stopping(run, manifest)
    summary = {
        "schema": SCHEMA,
        "schedule": {key: manifest.get("schedule", {}).get(key, "") for key in ("name", "sha256")},
        "preregistration": {
            "id": prereg.id,
            "sha256": prereg.sha256,
            "sealed_before_first_trial": bool(sealed.get("sealed_before_first_trial", False)),
        },
        "world": manifest.get("world", ""),
        "variation": sorted({row.variation for row in run.counted}),
        "pairs": len(run.indices),
        "trials": {name: status.get(name, 0) for name in ("ended", "stuck", "invalid")},
        "arms": list(run.arms),
        "primary": {scale.name: _primary(run, scale) for scale in scales(prereg)},
        "by_fault": {fault: _among(run, "fault_class", fault) for fault in _faults(run)},
        "by_workload": {name: _among(run, "workload", name) for name in _workloads(run)},
        "by_boundary": {name: {arm: _at_boundary(run.rows[arm], name) for arm in run.arms} for name in BOUNDARIES},
        "secondary": {name: {arm: _secondary(name, run.rows[arm]) for arm in run.arms} for name in METRICS},
        "verdicts": {arm: _verdicts(run.rows[arm]) for arm in run.arms},
        "trouble": [_trouble(row) for row in run.counted if row.status != "ended"],
        "ablation": ablation(run.rows, run.treatment),
        "blame": blame(run.rows),
        "hops": hop_rates.section(run.rows, run.twins),
        "dependence": dependence.section(row for rows in run.rows.values() for row in rows),
        "specs": _specs(run),
        "power": planning.section(prereg),
        "levels": levels(run.rows),
        "stopping": stopping,
        "status": dict(beside.status) or {"not_applicable": "nobody compared the run with its registration"},
        "calibration": beside.calibration or {"not_applicable": "no calibration was made with this run"},
        "decision": _decision(run, manifest, beside, misplaced(stopping, len(run.indices))),
    }
    return cast("dict[str, Any]", _rounded(summary))


def _rounded(value: Any) -> Any:
    """Numbers to nine significant digits: processors differ in the last bit of a logarithm, and the same run must give
    the same bytes on all of them."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def _faults(run: Run) -> list[str]:
    seen = {row.fault_class for rows in run.rows.values() for row in rows}
    return [*(name for name in run.prereg.faults if name in seen), *sorted(seen - set(run.prereg.faults))]


def _primary(run: Run, scale: Scale) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    for arm in run.arms:
        control, rows = run.common(arm)
        both = [row for other, row in zip(control, rows, strict=True) if row.exposed and other.exposed]
        entry[arm] = {
            **_estimate(rows, scale, run.prereg),
            **beside_rate(series(rows, scale), scale, run.prereg.errors.interval, fixed_size=run.fixed_size),
            "pairs": len(rows),
            "no_fault_twin": _estimate(run.twins.get(arm, ()), scale, run.prereg),
            "both_exposed": {"pairs": len(both), **_estimate(both, scale, run.prereg)},
        }
    differences = [_difference(run, arm, scale) for arm in run.arms if arm != run.control]
    chosen = [item for item in differences if item["treatment"] == run.treatment]
    none = {"not_applicable": "the run has no treatment arm: phase 1"}
    return {**entry, "difference": chosen[0] if chosen else none, "differences": differences}


def _estimate(rows: Sequence[Row], scale: Scale, prereg: Prereg) -> dict[str, Any]:
    """One primary of these trials: estimate, interval and the counts behind it."""
    data = series(rows, scale)
    found = rate(data, prereg.errors.interval)
    valid = [row for row in rows if row.valid]
    counts: dict[str, Any]
    if scale.name == DUPLICATES:
        counts = {
            "duplicated": sum(row.duplicated for row in valid),
            "intended": sum(row.intended for row in valid),
            "duplicates_gross": sum(b.gross for row in valid for name, b in row.boundaries.items() if name != "hook"),
        }
    else:
        counts = {
            "tokens_destroyed": sum(row.work.destroyed for row in valid),
            "faults_scheduled": sum(row.faults_scheduled for row in valid),
            "trials_cut_at_budget": data.cut,
        }
    if isinstance(found, str):
        return {"not_applicable": found, **counts, "invalid": len(rows) - len(valid)}
    return {**decisions.shown(found.scaled(scale.unit)), **counts, "invalid": len(rows) - len(valid)}


def _difference(run: Run, arm: str, scale: Scale) -> dict[str, Any]:
    control, rows = run.common(arm)
    found = difference(series(control, scale), series(rows, scale), run.prereg.errors.interval)
    head = {"control": run.control, "treatment": arm, "pairs": len(rows)}
    if isinstance(found, str):
        return {**head, "not_applicable": found}
    interval, evidence = found
    both, alpha = (series(control, scale), series(rows, scale)), run.prereg.errors.interval
    more = beside_difference(*both, scale, alpha, fixed_size=run.fixed_size)
    return {**head, **decisions.shown(interval.scaled(scale.unit)), "e_value": evidence, **more}


def _workloads(run: Run) -> list[str]:
    """The workloads of the run's pairs, where there are several of them."""
    found = sorted({row.workload for rows in run.rows.values() for row in rows})
    return found if len(found) > 1 else []


def _among(run: Run, field: str, value: str) -> dict[str, Any]:
    """Both primaries and the exposure by arm, of the trials in whose rows this field has this value."""
    entry = {}
    for arm in run.arms:
        rows = [row for row in run.rows[arm] if getattr(row, field) == value]
        primaries = {scale.name: _estimate(rows, scale, run.prereg) for scale in scales(run.prereg)}
        entry[arm] = {**primaries, "exposure": _exposure(rows)}
    return entry


def _exposure(rows: Sequence[Row]) -> dict[str, int]:
    """Trials, trials in which a fault fired, and the states that their faults went through."""
    states: Counter[str] = Counter()
    for row in rows:
        states.update(row.exposure)
    return {"trials": len(rows), "exposed": sum(row.exposed for row in rows), **dict(sorted(states.items()))}


def _at_boundary(rows: Sequence[Row], name: str) -> dict[str, int]:
    here = [row.boundaries[name] for row in rows if row.valid and name in row.boundaries]
    return {
        "intended": sum(b.intended for b in here),
        "observed": sum(b.observed for b in here),
        "duplicates": sum(b.duplicated for b in here),
        "duplicates_gross": sum(b.gross for b in here),
        "lost": sum(b.lost for b in here),
        "stale": sum(b.stale for b in here),
    }


def _secondary(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Mean over the trials that have a value, with the number of them and of those that have none."""
    values = [row.metric(name) for row in rows]
    numbers = [value for value in values if not isinstance(value, NotApplicable)]
    reasons = Counter(value.because for value in values if isinstance(value, NotApplicable))
    entry = {"unit": METRICS[name].unit, "trials": len(numbers), "not_applicable_trials": len(values) - len(numbers)}
    if not numbers:
        because = reasons.most_common(1)[0][0] if reasons else "no trial"
        return {"not_applicable": because, **entry}
    return {"estimate": float(np.mean(numbers)), "median": float(np.median(numbers)), **entry}


def _verdicts(rows: Sequence[Row]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row.verdicts)
    return dict(sorted(total.items()))


def _specs(run: Run) -> dict[str, Any]:
    """Trials that were checked, and by trace specification and arm how many trials broke it."""
    rows = [row for row in run.counted if row.valid]
    violated: dict[str, Counter[str]] = {}
    for row in rows:
        for name in row.violations:
            violated.setdefault(name, Counter())[row.arm] += 1
    return {"checked": len(rows), "violated": {name: dict(violated[name]) for name in sorted(violated)}}


def _trouble(row: Row) -> dict[str, Any]:
    return {"trial": row.trial, "pair": row.index, "arm": row.arm, "status": row.status, "because": row.because}


def _stopping(run: Run, manifest: Mapping[str, Any]) -> dict[str, Any]:
    noted = manifest.get("stopping", {})
    until = noted.get("until", "all_pairs")
    treatment = run.rows[run.treatment] if run.treatment else ()
    seen = look(run.rows[run.control], treatment, run.prereg, until)
    pairs = int(manifest.get("pairs", len(run.indices)))
    return told(pairs, noted.get("stopped_at"), seen, run.prereg, until)


def _decision(run: Run, manifest: Mapping[str, Any], beside: Beside, misplaced: Sequence[str]) -> dict[str, Any]:
    control = run.rows[run.control]
    places: dict[int, list[Row]] = {index: [] for index in run.indices}
    for rows in run.rows.values():
        for row in rows:
            places[row.index].append(row)
    pairs = list(places.values())
    failed = [*failed_gates(control, pairs, manifest, run.prereg, beside.calibration), *misplaced]
    kill = decisions.kill_criterion(control, run.prereg, failed)
    harm = decisions.unconditional(control, run.prereg)
    reasons = decisions.sentences(kill, harm, run.control)
    reasons += [f"phase 1: {reason}" for reason in decisions.too_few_for_stop(control, run.prereg)]
    absent = {"not_applicable": "the run has no treatment arm: phase 1 only"}
    second: dict[str, Any] = {"superiority": absent, "non_inferiority": absent, "reasons": []}
    if run.treatment:
        second = decisions.phase_two(*run.common(run.treatment), run.prereg)
        label = f"phase 2 ({run.treatment} against {run.control})"
        reasons += [f"{label}: {reason}" for reason in second["reasons"]]
    return {
        "kill_criterion": kill.outcome,
        "superiority": second["superiority"],
        "non_inferiority": second["non_inferiority"],
        "pairs_used": len(run.indices),
        "decided_at_pair": kill.decided_at,
        "e_go": kill.e_go,
        "e_stop": kill.e_stop,
        "material": list(kill.material),
        "narrow": list(kill.narrow),
        "unconditional": harm,
        "failed_gates": failed,
        "reasons": reasons,
    }
