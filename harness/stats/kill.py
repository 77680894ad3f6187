"""The kill criterion: is the harm of the control arm material at real-world fault rates?

Trials force faults, so what they measure is harm given a fault. Material is a statement about operation: the sum over
fault classes of (faults expected per trial) x (harm per forced fault) has to exceed a registered threshold. The
threshold on the forced-fault scale is therefore the unconditional one divided by the cited rate, and the fault
schedule cannot meet it by construction. Pairs draw their class with registered weights that need not be the real-world
mix, so each score is weighted by rate / weight, which makes its mean the unconditional harm again.

Decided after every pair from `pairs_min` on, in registered order. GO: averaged evidence that a primary is material.
STOP: evidence that no primary is. GO_NARROW: consulted only where the answer would otherwise be STOP or INCONCLUSIVE,
names classes that are material on their own where they strike at the top of their cited range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.stats.betting import BOLD, Array, e_value, first_look, log_e_mix, log_mean, peak
from harness.stats.holm import closed_peaks, e_holm

Outcome = Literal["GO", "GO_NARROW", "STOP", "INCONCLUSIVE", "INVALID"]


@dataclass(frozen=True)
class FaultRate:
    """One fault class. weight: probability that a pair draws it. rate: faults expected per trial in operation, divided
    by the faults forced per trial; rate_high: the same at the top of the cited range."""

    name: str
    weight: float
    rate: float
    rate_high: float


@dataclass(frozen=True)
class Primary:
    """Scores in [0, 1] of one primary metric in the control arm, one per pair in registered order.

    low, high: invalid trials entered as no harm and as full harm; equal where every trial is valid. tau: registered
    unconditional threshold on the same scale.
    """

    name: str
    low: Array
    high: Array
    tau: float


@dataclass(frozen=True)
class KillPlan:
    """Registered parameters of the decision."""

    classes: tuple[FaultRate, ...]
    pairs_min: int
    pairs_max: int
    alpha_go: float = 0.04
    alpha_narrow: float = 0.01
    alpha_stop: float = 0.05


@dataclass(frozen=True)
class KillDecision:
    """What was decided, when, on what evidence. e_go, e_stop: largest evidence seen up to `decided_at`."""

    outcome: Outcome
    decided_at: int
    e_go: float
    e_stop: float
    material: tuple[str, ...]
    narrow: tuple[str, ...]
    reasons: tuple[str, ...]


def decide(
    primaries: Sequence[Primary], drawn: Sequence[str], plan: KillPlan, failed_gates: Sequence[str] = ()
) -> KillDecision:
    """The decision on these pairs.

    primaries: their arrays have shape (n,). drawn: fault class of each pair, n names of `plan.classes`. failed_gates:
    reasons why the data may not be judged at all; any of them makes the answer INVALID. Pairs beyond `pairs_max` are
    not looked at. Raises ValueError for a class that is not registered.
    """
    n = min(len(drawn), plan.pairs_max)
    factor = _importance(drawn[:n], plan)
    go = log_mean(*(_material_path(p, factor) for p in primaries)) if n else np.empty(0)
    stop = np.min([_immaterial_path(p, factor, plan) for p in primaries], axis=0) if n else np.empty(0)
    go_at = first_look(go, plan.alpha_go, plan.pairs_min)
    stop_at = first_look(stop, plan.alpha_stop, plan.pairs_min)
    at = min(go_at, stop_at, n)
    narrow = () if at < plan.pairs_min else _narrow_classes(primaries, drawn[:at], plan)
    outcome: Outcome = "INCONCLUSIVE"
    if failed_gates:
        outcome = "INVALID"
    elif go_at <= min(stop_at, n):
        outcome = "GO"
    elif narrow:
        outcome = "GO_NARROW"
    elif stop_at <= n:
        outcome = "STOP"
    e_go, e_stop = e_value(peak(go[:at])), e_value(peak(stop[:at]))
    material = _material(primaries, factor, at, plan) if outcome == "GO" else ()
    certain = (
        f"{p.name}: at the cited rates even full harm at every fault stays below the threshold"
        for p in primaries
        if ceiling(plan) <= p.tau
    )
    reasons = (*failed_gates, *_reasons(outcome, at, plan, e_go, e_stop, material, narrow), *certain)
    return KillDecision(outcome, at, e_go, e_stop, material, narrow, reasons)


def conditional_threshold(tau: float, plan: KillPlan) -> float:
    """Harm per trial with forced faults, if equal for all classes, at which unconditional harm is `tau`; at most 1."""
    return min(1.0, tau / sum(c.rate for c in plan.classes))


def realistic_scores(scores: Array, drawn: Sequence[str], plan: KillPlan) -> tuple[Array, float]:
    """Scores whose mean is the unconditional harm at the cited rates, and the largest value that one can have."""
    return scores * _importance(drawn, plan), ceiling(plan)


def ceiling(plan: KillPlan) -> float:
    """The largest value that a weighted score can have: full harm by the class that is most under-represented."""
    return max(c.rate / c.weight for c in plan.classes)


def _importance(drawn: Sequence[str], plan: KillPlan) -> Array:
    known = {c.name: c.rate / c.weight for c in plan.classes}
    unknown = sorted(set(drawn) - set(known))
    if unknown:
        raise ValueError(f"fault classes without a registered rate: {', '.join(unknown)}")
    return np.array([known[name] for name in drawn], dtype=float)


def _material_path(primary: Primary, factor: Array) -> Array:
    return log_e_mix(primary.low[: len(factor)] * factor - primary.tau, primary.tau)


def _immaterial_path(primary: Primary, factor: Array, plan: KillPlan) -> Array:
    most = ceiling(plan)
    if most <= primary.tau:  # full harm in every trial would still be immaterial: no data can speak against it
        return np.full(len(factor), np.inf)
    return log_e_mix(primary.tau - primary.high[: len(factor)] * factor, most - primary.tau, BOLD)


def _narrow_classes(primaries: Sequence[Primary], drawn: Sequence[str], plan: KillPlan) -> tuple[str, ...]:
    """Classes that are material on their own, strongest first."""
    names = np.array(drawn)
    evidence = {c.name: _class_peak(primaries, np.flatnonzero(names == c.name), c) for c in plan.classes}
    return e_holm(evidence, plan.alpha_narrow)


def _class_peak(primaries: Sequence[Primary], pairs: NDArray[np.intp], rate: FaultRate) -> float:
    paths = []
    for primary in primaries:
        tau = min(1.0, primary.tau / rate.rate_high)
        paths.append(log_e_mix(primary.low[pairs] - tau, tau))
    return peak(log_mean(*paths)) if len(pairs) else 0.0


def _material(primaries: Sequence[Primary], factor: Array, at: int, plan: KillPlan) -> tuple[str, ...]:
    """Which primaries are material, by the closed test."""
    shown = closed_peaks([_material_path(p, factor[:at]) for p in primaries])
    return tuple(p.name for p, log_e in zip(primaries, shown, strict=True) if log_e >= -np.log(plan.alpha_go))


def _reasons(
    outcome: Outcome,
    at: int,
    plan: KillPlan,
    e_go: float,
    e_stop: float,
    material: Sequence[str],
    narrow: Sequence[str],
) -> tuple[str, ...]:
    evidence = (
        f"evidence that a primary is material: {e_go:.3g} (GO needs {1 / plan.alpha_go:.3g}); "
        f"evidence that none is: {e_stop:.3g} (STOP needs {1 / plan.alpha_stop:.3g})"
    )
    match outcome:
        case "GO":
            said = ", ".join(material) if material else "one of the primaries (the data do not single out which)"
            return (f"material at the cited fault rates, decided after pair {at}: {said}", evidence)
        case "GO_NARROW":
            return (f"material alone, at the top of their cited rates: {', '.join(narrow)} ({at} pairs)", evidence)
        case "STOP":
            return (f"no primary is material at the cited fault rates, decided after pair {at}: stop", evidence)
        case "INVALID":
            return ("the data may not be judged; see the failed gates", evidence)
    if at < plan.pairs_min:
        return (f"only {at} pairs; {plan.pairs_min} are registered as the least", evidence)
    return (f"too little data after {at} of at most {plan.pairs_max} pairs", evidence)
