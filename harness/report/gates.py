"""Conditions without which the data may not be judged; a failed one makes the decision INVALID.

Checked before the primaries are looked at. Each failure is a sentence that a person can act on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from harness.metrics.effects import PRIMARY_BOUNDARIES
from harness.report.prereg import Prereg
from harness.report.prereg.weights import unlike
from harness.report.rows import Row


def failed_gates(
    control: Sequence[Row],
    pairs: Sequence[Sequence[Row]],
    manifest: Mapping[str, Any],
    prereg: Prereg,
    calibration: Mapping[str, Any] | None = None,
) -> list[str]:
    """Failures, empty when all is well. control: rows of the control arm in registered order. pairs: rows of all arms,
    by pair. calibration: content of `calibration.json`, None where none was made."""
    rows = [row for pair in pairs for row in pair]
    return [
        *_registration(manifest, prereg),
        *_size(manifest, prereg),
        *_weights(manifest, prereg),
        *_control(control, prereg),
        *_denominators(rows, prereg),
        *_same_faults(pairs),
        *_shares(rows, control, prereg),
        *_opportunities(control, prereg),
        *_calibration(calibration, prereg),
        *_specifications(rows, prereg),
    ]


def _registration(manifest: Mapping[str, Any], prereg: Prereg) -> list[str]:
    sealed = manifest.get("preregistration", {})
    if sealed.get("sha256") != prereg.sha256:
        return ["the registration differs from the one that the run was started with"]
    if not sealed.get("sealed_before_first_trial", False):
        return ["the registration was not in the manifest before the first trial"]
    return []


def _size(manifest: Mapping[str, Any], prereg: Prereg) -> list[str]:
    """How many pairs there may be, and by which rule fewer, is fixed before the first trial, and the schedule and the
    command line of the run say it too."""
    resolved, failures = manifest.get("schedule", {}).get("resolved"), []
    if resolved is not None and manifest.get("pairs") != resolved.get("pairs", manifest.get("pairs")):
        failures.append(f"the run says that it has {manifest.get('pairs')} pairs, its schedule {resolved['pairs']}")
    rule = manifest.get("stopping", {}).get("until")
    if rule is not None and prereg.stopping is not None:
        asked = manifest.get("overrides", {}).get("until", prereg.stopping.until)
        if rule != asked:
            failures.append(f"the run ended by the rule {rule}, and was started with {asked}")
    return failures


def _weights(manifest: Mapping[str, Any], prereg: Prereg) -> list[str]:
    """Harm in operation is computed from the registered weights, so these must be the ones that pairs were drawn with;
    and they must have been drawn, since evidence over a fixed sequence of classes has no guarantee."""
    schedule = manifest.get("schedule", {}).get("resolved")
    if schedule is None:
        return []
    drawn = {name: entry["weight"] for name, entry in schedule.get("mix", {}).items() if entry["weight"] > 0}
    if not drawn:
        return ["the schedule places faults in turn instead of drawing their class"]
    wrong = [*unlike(drawn, {name: entry.weight for name, entry in prereg.faults.items()})]
    if prereg.design.workloads:
        wrong += unlike(schedule.get("workloads", {"(none)": 1.0}), prereg.design.workloads)
    return [f"the schedule draws other weights than the registered ones: {', '.join(wrong)}"] if wrong else []


def _control(control: Sequence[Row], prereg: Prereg) -> list[str]:
    """The decision is about one arm; another one's harm is no substitute."""
    if not control:
        return ["the first registered pair of the control arm is missing"]
    if control[0].arm != prereg.arms.control:
        return [f"the registered control arm {prereg.arms.control!r} was not run"]
    return []


def _denominators(rows: Sequence[Row], prereg: Prereg) -> list[str]:
    """Fixed denominators are what makes a ratio of sums the mean of a bounded score."""
    design, failures = prereg.design, []
    other = sorted({row.intended for row in rows if row.valid} - {design.intended_effects_per_trial})
    if other:
        failures.append(f"trials with {other} intended effects, registered are {design.intended_effects_per_trial}")
    other = sorted({row.faults_scheduled for row in rows} - {design.faults_scheduled_per_trial})
    if other:
        failures.append(f"trials with {other} scheduled faults, registered are {design.faults_scheduled_per_trial}")
    unknown = sorted({row.fault_class for row in rows} - set(prereg.faults))
    if unknown:
        failures.append(f"fault classes that are not registered: {', '.join(unknown)}")
    return failures


def _same_faults(pairs: Sequence[Sequence[Row]]) -> list[str]:
    unequal = [str(pair[0].index) for pair in pairs if len({(r.pair, r.fault_class, r.variant) for r in pair}) > 1]
    return [f"arms of one pair had different faults (pairs {', '.join(unequal[:5])})"] if unequal else []


def _shares(rows: Sequence[Row], control: Sequence[Row], prereg: Prereg) -> list[str]:
    gates, failures = prereg.gates, []
    if rows and (share := sum(not row.valid for row in rows) / len(rows)) > gates.invalid_share_max:
        failures.append(f"{share:.1%} of the trials are invalid, at most {gates.invalid_share_max:.1%} may be")
    for arm in (prereg.arms.control, prereg.arms.treatment):  # one arm among many can spoil a larger share of its own
        own = [row for row in rows if row.arm == arm]
        if own and (share := sum(not row.valid for row in own) / len(own)) > gates.invalid_share_max and not failures:
            failures.append(f"{share:.1%} of the trials of {arm} are invalid, at most {gates.invalid_share_max:.1%}")
    valid = [row for row in control if row.valid]
    if valid and (share := sum(row.exposed for row in valid) / len(valid)) < gates.exposed_share_min:
        failures.append(
            f"a fault fired in {share:.0%} of the control trials, at least {gates.exposed_share_min:.0%} are needed: "
            "an arm that meets no fault proves nothing"
        )
    counts = [row.boundaries[name] for row in rows for name in PRIMARY_BOUNDARIES if name in row.boundaries]
    observed, phantom = sum(c.observed for c in counts), sum(c.phantom for c in counts)
    if observed and phantom / observed > gates.phantom_share_max:
        failures.append(
            f"{phantom} of {observed} effects are explained by no intent, at most {gates.phantom_share_max:.2%} may be"
        )
    return failures


def _opportunities(control: Sequence[Row], prereg: Prereg) -> list[str]:
    """A control arm that hardly met a fault, or a class of them, shows nothing about it. Below the registered least of
    pairs nothing is decided anyway, for want of data and of nothing else."""
    if len(control) < prereg.design.pairs_min:
        return []
    floors, met = prereg.gates.opportunities_min, Counter(row.fault_class for row in control if row.exposed)
    failures = []
    if met.total() < floors.control_pairs_exposed:
        failures.append(
            f"a fault fired in {met.total()} control trials, {floors.control_pairs_exposed} are registered as the least"
        )
    least = floors.control_pairs_exposed_per_class
    scarce = [f"{name} ({met[name]})" for name in prereg.faults if met[name] < least]
    if scarce:
        failures.append(f"fault classes that fired in fewer than {least} control trials: {', '.join(scarce)}")
    return failures


def _calibration(calibration: Mapping[str, Any] | None, prereg: Prereg) -> list[str]:
    """An instrument that fails its own tests measures nothing. One that was not tested is another matter: its numbers
    are not confirmatory, which the status of the run says."""
    if calibration is None or prereg.calibration is None:
        return []
    passed = {check["name"]: check["passed"] for check in calibration["checks"]}
    failures = []
    for name in prereg.calibration.must_pass:
        if name not in passed:
            failures.append(f"calibration: the check {name} is registered and was not made")
        elif not passed[name]:
            failures.append(f"calibration: the check {name} failed")
    made_on = calibration.get("schedules", {})
    wrong = [name for name, sha256 in prereg.calibration.schedules.items() if made_on.get(name) != sha256]
    if wrong:
        failures.append(f"calibration: made on other schedules than the registered ones: {', '.join(wrong)}")
    made, least = calibration.get("noise_floor", {}).get("pairs", 0), prereg.calibration.noise_floor_pairs
    if made < least:
        failures.append(f"calibration: the noise floor is of {made} pairs, {least} are registered")
    return failures


def _specifications(rows: Sequence[Row], prereg: Prereg) -> list[str]:
    """Specifications that speak of the harness itself: a trial that breaks one did not happen as it is told."""
    failures = []
    for name in prereg.gates.spec_violations:
        broken = [row.trial for row in rows if row.violations.get(name)]
        if broken:
            failures.append(f"specification {name} is broken in {len(broken)} trials ({', '.join(broken[:3])})")
    return failures
