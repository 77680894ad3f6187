"""A registration in plain words: what is claimed, how it is decided, what it takes, what is bound and what is not.

Whoever doubts a result has to know first what would have counted against it, and thirty YAML keys do not say that.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.report.prereg.form import Digests
from harness.report.prereg.read import Prereg
from harness.stats.betting import BOLD, Array, log_e_mix
from harness.stats.kill import Primary, conditional_threshold, decide

BOUND = {
    "registration": "every word of this file that is not a comment",
    "schedule": "the resolved schedule: arms, faults and weights, workload, limits, world, seed",
    "pair_seeds": "the seed and the hash of every pair that may be run, in order",
    "lock_file": "the packages, by version and hash; installed versions are compared with it",
    "schedule_generator": "the code that draws pairs from a seed",
    "workloads": "the tasks and the agent that works on them",
    "faults": "the fault classes",
    "arms": "the arms with their policies",
    "harness_code": "what runs the trials",
    "analysis_code": "oracle, accounting, metrics, statistics and report",
}
NOT_BOUND = (
    "the machine, its load and its operating system, and the version of Python: a run notes them",
    "code of others that a schedule names as module:name, programs outside the lock file, and anything that changes "
    "code after it was loaded",
    "the moment of the seal: this file says it of itself; a dated public copy, such as a commit, is the only witness",
    "whether somebody looked at runs of these seeds before sealing and deleted them",
    "whether the cited rates, the workload or the agent are like anybody's own",
)


def explain(prereg: Prereg) -> Iterator[str]:
    """The lines of the explanation; those that are indented belong to the one above."""
    yield f"{prereg.id} ({prereg.schema}, sha256 {prereg.sha256})"
    yield prereg.about.strip()
    yield ""
    yield from _harm(prereg)
    yield ""
    yield from _answers(prereg)
    yield ""
    yield from _comparison(prereg)
    yield ""
    yield from _before(prereg)
    yield ""
    yield from _bound(prereg)


def _harm(prereg: Prereg) -> Iterator[str]:
    plan, limits = prereg.kill_plan(), prereg.thresholds
    total = sum(c.rate for c in plan.classes)
    forced = conditional_threshold(limits.duplicate_effect_rate, plan)
    work = conditional_threshold(prereg.work_threshold, plan) * prereg.design.token_budget_per_trial
    yield f"What is measured: harm that arm {prereg.arms.control!r} does in operation, at the cited rates of faults."
    yield f"  Material is more than {limits.duplicate_effect_rate:.2%} of the intended effects committed too often,"
    yield f"  or more than {limits.work_destroyed:.2%} of the tokens of a fault-free trial destroyed."
    yield f"  Faults are forced in trials and strike {total:.3g} times as often in operation, so that if all classes"
    yield f"  did equal harm, a trial would have to repeat {forced:.2%} of its effects or destroy {work:,.0f} tokens."
    yield "  Rates per delegation (low / used / high), drawn weight:"
    for name, entry in prereg.faults.items():
        rate = entry.rate_per_delegation
        yield f"    {entry.code} {name}: {rate.low:g} / {rate.used:g} / {rate.high:g}, {entry.weight:g}"
    if prereg.design.workloads:
        drawn = ", ".join(f"{name} {weight:g}" for name, weight in prereg.design.workloads.items())
        yield f"  Workloads, with the weight that a pair draws each with: {drawn}"


def _answers(prereg: Prereg) -> Iterator[str]:
    design, errors = prereg.design, prereg.errors
    yield f"Phase 1 decides the kill criterion by arm {prereg.arms.control!r} alone; the comparison cannot change it."
    yield f"  Looked at after every pair in registered order, from {design.pairs_min} to at most {design.pairs_max}."
    yield f"  GO: harm is material. Averaged evidence of both harms reaches {1 / errors.go:.4g} (wrong at most"
    yield f"    {errors.go:.0%} of the time, however often one looks). If every fault did all the harm that it can:"
    yield f"    {_said(go_pairs(prereg), prereg)}."
    yield f"  STOP: neither harm is material. Evidence against each reaches {1 / errors.stop:.4g} (wrong at most"
    yield f"    {errors.stop:.0%}). If nothing ever happens: {_said(stop_pairs(prereg), prereg)}."
    yield "  GO_NARROW: neither, but single classes are material at the top of their cited rates (all wrong names"
    yield f"    together at most {errors.narrow:.0%})."
    yield f"  INCONCLUSIVE: none of these after {design.pairs_max} pairs. Too little data is never a STOP."
    yield "  INVALID: the data may not be judged. Any of these makes it so:"
    yield from (f"    {gate}" for gate in _gates(prereg))
    if prereg.stopping:
        others = " or ".join(prereg.stopping.or_until) or "nothing else"
        yield f"  A run goes on for {prereg.stopping.until}; it may be asked for {others} instead."


def _gates(prereg: Prereg) -> Iterator[str]:
    gates = prereg.gates
    yield "registration, weights, denominators or the faults of a pair are not the registered ones"
    yield f"more than {gates.invalid_share_max:.1%} of the trials were spoiled by the harness itself"
    yield f"a fault fired in less than {gates.exposed_share_min:.0%} of the control's trials"
    yield f"more than {gates.phantom_share_max:.2%} of the effects are explained by no intent"
    floor = gates.opportunities_min
    if floor.control_pairs_exposed:
        yield f"a fault fired in fewer than {floor.control_pairs_exposed} of the control's pairs"
    if floor.control_pairs_exposed_per_class:
        yield f"some class fired in fewer than {floor.control_pairs_exposed_per_class} of the control's pairs"
    if gates.discriminates_min:
        yield f"an arm that compares exact bytes errs by less than {gates.discriminates_min:g} more than the oracle"
    if gates.spec_violations:
        yield f"any trial breaks one of the specifications {', '.join(gates.spec_violations)}"


def _comparison(prereg: Prereg) -> Iterator[str]:
    claims, errors, arms = prereg.claims, prereg.errors, prereg.arms
    yield f"Phase 2 compares {arms.treatment!r} with {arms.control!r} on the same pairs. It is better when"
    yield f"  one of its harms is below {claims.superiority_rho:g} x that of {arms.control!r} (wrong at most"
    yield f"    {errors.superiority:.0%} for both together), and it meets the faults too, and"
    loss, success = claims.loss_margin, claims.success_margin
    yield f"  it loses at most {loss:.1%} of the effects more: {_said(claim_pairs(prereg, loss), prereg)}, and"
    yield f"  it succeeds at most {success:.1%} less often: {_said(claim_pairs(prereg, success), prereg)}."
    yield f"    The two figures are for arms that are equal; each claim is wrong at most {errors.non_inferiority:.0%}."


def _before(prereg: Prereg) -> Iterator[str]:
    if prereg.calibration is None or prereg.missing is None or prereg.replication is None:
        yield "Nothing is registered about calibration, missing trials and replication."
        return
    calibration, missing, again = prereg.calibration, prereg.missing, prereg.replication
    yield f"Before any claim these checks must pass: {', '.join(calibration.must_pass)}."
    yield f"  The noise floor comes from {calibration.noise_floor_pairs} pairs of the control against itself."
    yield f"Missing: a crash of the harness: {missing.harness_crash.replace('_', ' ')};"
    yield f"  a crash of an arm: {missing.arm_crash.replace('_', ' ')}."
    yield "Replicated is a second live run in which each of the two arms differs from the first by less than"
    yield f"  {again.margin_duplicates:g} in duplicate effects and {again.margin_work_share:g} of the token budget in"
    yield f"  destroyed work, each shown with errors of at most {again.alpha:.0%}."


def _bound(prereg: Prereg) -> Iterator[str]:
    if prereg.sealed is None:
        yield "Not sealed: nothing but this file is bound, and every run is exploratory."
    else:
        yield f"Sealed at {prereg.sealed.at}. A run that differs in any of these is exploratory:"
        for name in Digests.__struct_fields__:
            yield f"  {name} {getattr(prereg.sealed.digests, name)[:12]}: {BOUND[name]}"
        for old in prereg.sealed.previous:
            yield f"  It replaces the seal of {old.at} (registration sha256 {old.sha256[:12]})."
    yield "Not bound:"
    yield from (f"  {what}" for what in NOT_BOUND)


# --- sizes --------------------------------------------------------------------------------------------------------


def stop_pairs(prereg: Prereg) -> int | None:
    """Pairs until STOP when no fault ever does harm; None when `pairs_max` are not enough."""
    return _decided(prereg, 0.0, "STOP")


def go_pairs(prereg: Prereg) -> int | None:
    """Pairs until GO when every fault does full harm, for a mix in its registered proportions on average."""
    return _decided(prereg, 1.0, "GO")


def claim_pairs(prereg: Prereg, margin: float) -> int | None:
    """Pairs until equal arms are shown to differ by less than `margin`; None when `pairs_max` are not enough."""
    return _reached(log_e_mix(np.full(prereg.design.pairs_max, margin), 1.0 - margin, BOLD), prereg)


def _decided(prereg: Prereg, harm: float, outcome: str) -> int | None:
    """Classes take turns as evenly as their weights allow, so that no draw decides what is printed."""
    drawn = _in_proportion({name: entry.weight for name, entry in prereg.faults.items()}, prereg.design.pairs_max)
    scores = np.full(len(drawn), harm)
    limits = (prereg.thresholds.duplicate_effect_rate, prereg.work_threshold)
    primaries = [Primary(f"harm {i}", scores, scores, tau) for i, tau in enumerate(limits)]
    decision = decide(primaries, drawn, prereg.kill_plan())
    return decision.decided_at if decision.outcome == outcome else None


def _in_proportion(weights: dict[str, float], count: int) -> list[str]:
    drawn: list[str] = []
    due = dict.fromkeys(weights, 0.0)
    for _ in range(count):
        due = {name: due[name] + weight for name, weight in weights.items()}
        name = max(due, key=lambda one: due[one])
        due[name] -= 1.0
        drawn.append(name)
    return drawn


def _reached(path: Array, prereg: Prereg) -> int | None:
    needed = np.flatnonzero(path >= -np.log(prereg.errors.non_inferiority))
    return int(needed[0]) + 1 if needed.size else None


def _said(pairs: int | None, prereg: Prereg) -> str:
    return f"{pairs} pairs" if pairs else f"out of reach with {prereg.design.pairs_max} pairs"
