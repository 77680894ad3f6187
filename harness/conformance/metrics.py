"""What a metric has to be: a finite number of every trial that can be judged, or a reason, and the same each time."""

from __future__ import annotations

import math
from collections.abc import Iterator

from harness import catalogue
from harness.conformance import runs
from harness.conformance.form import Answer, asked
from harness.core.errors import ConfigError
from harness.core.records import Metric, NotApplicable, ScoredTrial
from harness.metrics import METRICS
from harness.score import oracle_of, score

WORKLOADS = ("codegen", "relay", "idempotent")
ARMS = ("bare", "naive", "mesh")


def find(name: str) -> Metric:
    """A metric of ours, or `module:name`. Raises ConfigError."""
    if name in METRICS:
        return METRICS[name]
    found = catalogue.imported("metric", name)
    if not isinstance(found, Metric):
        raise ConfigError(f"{name!r} is a {type(found).__name__}", allowed="a Metric")
    return found


def questions(name: str) -> Iterator[Answer]:
    """A metric, by its name or `module:name`."""
    metric = find(name)
    yield asked("it says what it is: name, unit, direction, meaning, source", lambda: _named(metric, name))
    scored: list[ScoredTrial] = []
    yield asked("the trials that it is put to can be judged", lambda: _judged(scored))
    yield asked("of each it gives a finite number, or NotApplicable with a reason", lambda: _finite(metric, scored))
    yield asked("it gives the same each time", lambda: _same(metric, scored))
    yield asked("it is a number of at least one of them", lambda: _somewhere(metric, scored))


def _named(metric: Metric, name: str) -> list[str]:
    wrong = [f"it has no {field}" for field in ("name", "unit", "about", "source") if not getattr(metric, field)]
    if metric.better not in ("lower", "higher", "neither"):
        wrong.append(f"better is {metric.better!r}; allowed: lower, higher, neither")
    if metric.name in METRICS and METRICS[metric.name] is not metric:
        wrong.append(f"there is a metric {metric.name!r} already")
    return wrong


def _judged(kept: list[ScoredTrial]) -> list[str]:
    kept.extend(_scored())
    return []


def _scored() -> Iterator[ScoredTrial]:
    """Trials without faults, and one of every class."""
    for workload in WORKLOADS:
        oracle = oracle_of(workload)
        for arm in ARMS:
            yield score(runs.sealed(runs.spec(arm, workload)), oracle)
    for fault, kind in catalogue.load().faults.items():
        for arm in ARMS[1:]:
            yield score(runs.sealed(runs.spec(arm, WORKLOADS[0], fault, kind.variants)), oracle_of(WORKLOADS[0]))


def _finite(metric: Metric, scored: list[ScoredTrial]) -> list[str]:
    wrong = []
    for one in scored:
        value, record = metric.of(one), one.trial.record
        if isinstance(value, NotApplicable) and value.because:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            wrong.append(f"{value!r} of a trial of {record.arm} with {record.fault_class}")
    return wrong


def _same(metric: Metric, scored: list[ScoredTrial]) -> list[str]:
    return [f"{one.trial.record.arm}: twice, and two numbers" for one in scored if metric.of(one) != metric.of(one)]


def _somewhere(metric: Metric, scored: list[ScoredTrial]) -> list[str]:
    if any(not isinstance(metric.of(one), NotApplicable) for one in scored):
        return []
    return [f"it is never applicable: {metric.of(scored[0])}"]
