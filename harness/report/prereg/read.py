"""From a document to a checked registration.

Every refusal says line, value and what would be legal, because a person corrects it before an experiment and nobody can
after one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from harness.core import strict_yaml
from harness.core.errors import did_you_mean
from harness.report.prereg.form import (
    NOTHING_MORE,
    V1,
    V2,
    Calibration,
    Common,
    Exposure,
    FaultEntry,
    GatesV2,
    Missing,
    Phases,
    RegistrationV1,
    RegistrationV2,
    Replication,
    Sealed,
    Stopping,
)
from harness.stats.betting import FRACTIONS
from harness.stats.kill import FaultRate, KillPlan

FORMS: dict[str, type[RegistrationV1 | RegistrationV2]] = {V1: RegistrationV1, V2: RegistrationV2}

Found = tuple[strict_yaml.Path, str]
"""A contradiction: where it stands, and what it is."""


class Prereg(Common, frozen=True, kw_only=True):
    """A registration that was read and checked.

    Sections that `/1` does not have are None there; its gates are filled up with floors that demand nothing. sha256: of
    the canonical JSON, so that comments, layout and the order of keys do not count. content_sha256: the same without
    the seal, which is the digest `registration` that a seal holds.
    """

    schema: str
    gates: GatesV2
    stopping: Stopping | None = None
    phases: Phases | None = None
    calibration: Calibration | None = None
    replication: Replication | None = None
    missing: Missing | None = None
    sealed: Sealed | None = None
    sha256: str
    content_sha256: str

    @property
    def work_threshold(self) -> float:
        """The work threshold on the scale of scores (share of the token budget of a trial)."""
        return (
            self.thresholds.work_destroyed * self.design.token_reference_per_trial / self.design.token_budget_per_trial
        )

    def kill_plan(self, rates: Literal["low", "used", "high"] = "used") -> KillPlan:
        """Parameters of the kill criterion; `rates` other than `used` are for the sensitivity of an estimate."""
        per_trial = self.design.delegations_per_trial / self.design.faults_scheduled_per_trial
        classes = tuple(
            FaultRate(
                name=name,
                weight=entry.weight,
                rate=getattr(entry.rate_per_delegation, rates) * per_trial,
                rate_high=entry.rate_per_delegation.high * per_trial,
            )
            for name, entry in self.faults.items()
        )
        design, errors = self.design, self.errors
        return KillPlan(classes, design.pairs_min, design.pairs_max, errors.go, errors.narrow, errors.stop)


def load_prereg(path: Path) -> Prereg:
    """Read and check a registration. Raises ConfigError with file, line, the value and what is legal."""
    return checked(strict_yaml.read(path))


def parse_prereg(data: Mapping[str, Any], where: str = "registration") -> Prereg:
    """The same for a document that is already decoded (the copy in a manifest, say)."""
    return checked(strict_yaml.Document(where, data, {}))


def checked(document: strict_yaml.Document) -> Prereg:
    """The same for a document that is parsed already."""
    content = strict_yaml.convert(document, _form(document))
    for path, problem in _contradictions(content):
        raise document.refuse(path, problem)
    fields = {name: getattr(content, name) for name in content.__struct_fields__}
    fields["gates"] = msgspec.convert({**NOTHING_MORE, **msgspec.to_builtins(content.gates)}, GatesV2)
    bare = {key: value for key, value in document.value.items() if key != "sealed"}
    return Prereg(**fields, sha256=canonical_sha256(document.value), content_sha256=canonical_sha256(bare))


def canonical_sha256(value: Any) -> str:
    """sha256 of the canonical JSON of a document: sorted keys, no white space."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _form(document: strict_yaml.Document) -> type[RegistrationV1 | RegistrationV2]:
    given = document.value.get("schema")
    form = FORMS.get(given) if isinstance(given, str) else None
    if form is None:
        problem = "key 'schema' is missing" if given is None else f"schema is {strict_yaml.shown(given)}"
        raise document.refuse(("schema",), problem, ", ".join(FORMS), did_you_mean(str(given), FORMS))
    later = set(RegistrationV2.__struct_fields__) - set(form.__struct_fields__)
    for key in later & set(document.value):
        raise document.refuse((key,), f"{given} has no section {key!r}", hint=f"it belongs to schema {V2}")
    return form


# --- what the types cannot say: values that have to agree with each other -----------------------------------------


def _contradictions(content: RegistrationV1 | RegistrationV2) -> Iterator[Found]:
    total = sum(entry.weight for entry in content.faults.values())
    if abs(total - 1) > 1e-9:
        yield ("faults",), f"weights of the fault classes add up to {total:g}, not to 1"
    for name, entry in content.faults.items():
        yield from ((("faults", name, *path), f"{name}: {why}") for path, why in _rates(entry, content.delegation))
    design = content.design
    drawn = sum(design.workloads.values())
    if design.workloads and abs(drawn - 1) > 1e-9:
        yield ("design", "workloads"), f"weights of the workloads add up to {drawn:g}, not to 1"
    if design.pairs_min > design.pairs_max:
        yield ("design", "pairs_min"), f"pairs_min {design.pairs_min} is above pairs_max {design.pairs_max}"
    if design.token_reference_per_trial > design.token_budget_per_trial:
        yield ("design", "token_reference_per_trial"), "token_reference_per_trial is above token_budget_per_trial"
    if isinstance(content, RegistrationV2):
        yield from _of_second_version(content)


def _rates(entry: FaultEntry, exposure: Exposure) -> Iterator[Found]:
    if not entry.sources:
        yield ("sources",), "a rate without a source"
    times, rate = getattr(exposure, entry.opportunity), entry.rate_per_delegation
    for level in ("low", "used", "high"):
        stated, unit = getattr(rate, level), getattr(entry.rate_per_opportunity, level)
        if abs(stated - unit * times) > 0.02 * stated:
            problem = f"{stated:g} is not {unit:g} x {times:g} {entry.opportunity} = {unit * times:g}"
            yield ("rate_per_delegation", level), problem
    if not rate.low <= rate.used <= rate.high:
        yield ("rate_per_delegation",), "low <= used <= high does not hold"


def _of_second_version(content: RegistrationV2) -> Iterator[Found]:
    control, treatment = content.arms.control, content.arms.treatment
    if control == treatment:
        yield ("arms", "treatment"), f"arm {control!r} is both control and treatment"
    if content.stopping.fractions != tuple(FRACTIONS.tolist()):
        stakes = ", ".join(f"{value:.10g}" for value in FRACTIONS)
        yield ("stopping", "fractions"), f"the stakes are not those that the analysis plays: {stakes}"
    if content.stopping.until in content.stopping.or_until:
        yield ("stopping", "or_until"), f"or_until repeats what until says: {content.stopping.until}"
    yield from _repeated(("stopping", "or_until"), content.stopping.or_until)
    deciding = content.phases.kill_criterion.arms
    if deciding != (control,):
        problem = f"phase 1 looks at {_list(deciding)}; the kill criterion is decided by the control {control!r} alone"
        yield ("phases", "kill_criterion", "arms"), problem
    if set(compared := content.phases.comparison.arms) != {control, treatment} or len(compared) != 2:
        problem = f"phase 2 compares {_list(compared)}; registered are {control!r} and {treatment!r}"
        yield ("phases", "comparison", "arms"), problem
    if not content.calibration.must_pass:
        yield ("calibration", "must_pass"), "calibration.must_pass is empty; name a check that must pass before a claim"
    yield from _repeated(("calibration", "must_pass"), content.calibration.must_pass)
    yield from _repeated(("gates", "spec_violations"), content.gates.spec_violations)
    yield from _floors(content)


def _floors(content: RegistrationV2) -> Iterator[Found]:
    """Floors that the earliest decision could never reach would make every early answer INVALID."""
    floor, least = content.gates.opportunities_min, content.design.pairs_min
    needed = {
        "control_pairs_exposed": floor.control_pairs_exposed,
        "control_pairs_exposed_per_class": floor.control_pairs_exposed_per_class * len(content.faults),
    }
    for name, pairs in needed.items():
        if pairs > least:
            yield ("gates", "opportunities_min", name), f"{name} needs {pairs} pairs, and pairs_min is {least}"


def _repeated(path: strict_yaml.Path, names: tuple[str, ...]) -> Iterator[Found]:
    for i, name in enumerate(names):
        if name in names[:i]:
            yield (*path, i), f"{name!r} is listed twice in {strict_yaml.dotted(path)}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "no arm"
