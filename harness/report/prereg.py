"""The registration of a decision: its strict reader, its digest, and the parameters that statistics take from it.

A registration that could be read in two ways would be no registration, so unknown keys, repeated keys and numbers that
do not agree with each other are refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from harness.core import strict_yaml
from harness.stats.kill import FaultRate, KillPlan

Share = Annotated[float, Meta(gt=0, lt=1)]
Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Opportunity = Literal["hours", "model_calls", "check_runs", "installs"]


class Range(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rate with the bounds that its sources support."""

    low: Positive
    used: Positive
    high: Positive


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a rate comes from, and how far the source itself was read."""

    cite: str
    url: str
    says: str
    seen: Literal["source", "abstract", "excerpt", "second-hand"]


class FaultEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault class: how often pairs draw it, and how often it strikes a delegation in operation."""

    code: str
    weight: Share
    opportunity: Opportunity
    rate_per_opportunity: Range
    rate_per_delegation: Range
    sources: tuple[Source, ...]
    derivation: str
    uncertainty: str


class Exposure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one delegation in operation amounts to."""

    hours: Positive
    model_calls: Positive
    check_runs: Positive
    installs: Positive


class ArmNames(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    control: str
    treatment: str


class Design(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fixed denominators and size. Tokens are provider-billed tokens."""

    delegations_per_trial: Count
    intended_effects_per_trial: Count
    faults_scheduled_per_trial: Count
    token_budget_per_trial: Count
    token_reference_per_trial: Count
    pairs_min: Count
    pairs_max: Count


class Thresholds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Unconditional harm that is called material. work_destroyed: share of `token_reference_per_trial`."""

    duplicate_effect_rate: Share
    work_destroyed: Share
    because: str


class Claims(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    superiority_rho: Annotated[float, Meta(gt=0, le=1)]
    loss_margin: Share
    success_margin: Share


class Errors(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    go: Share
    narrow: Share
    stop: Share
    superiority: Share
    non_inferiority: Share
    interval: Share


class Gates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    invalid_share_max: Annotated[float, Meta(ge=0, lt=1)]
    exposed_share_min: Annotated[float, Meta(ge=0, le=1)]
    phantom_share_max: Annotated[float, Meta(ge=0, lt=1)]


class Registration(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A registration as it is written, field by field; the comments of `schedules/prereg/*.yaml` say why."""

    schema: Literal["agentmesh-prereg/1"]
    id: str
    about: str
    arms: ArmNames
    design: Design
    delegation: Exposure
    faults: dict[str, FaultEntry]
    thresholds: Thresholds
    claims: Claims
    errors: Errors
    gates: Gates


class Prereg(Registration, frozen=True, kw_only=True):
    """A registration that was read and checked. sha256: of its canonical JSON, so that comments, layout and the order
    of keys do not count."""

    sha256: str

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
    return _checked(strict_yaml.read(path))


def parse_prereg(data: Mapping[str, Any], where: str = "registration") -> Prereg:
    """The same for a document that is already decoded (the copy in a manifest, say)."""
    return _checked(strict_yaml.Document(where, data, {}))


def _checked(document: strict_yaml.Document) -> Prereg:
    content = strict_yaml.convert(document, Registration)
    for path, problem in _contradictions(content):
        raise document.refuse(path, problem)
    text = json.dumps(document.value, sort_keys=True, separators=(",", ":"), default=str)
    fields = {name: getattr(content, name) for name in content.__struct_fields__}
    return Prereg(**fields, sha256=hashlib.sha256(text.encode()).hexdigest())


def _contradictions(content: Registration) -> list[tuple[strict_yaml.Path, str]]:
    """What the types cannot say: numbers that have to agree with each other."""
    found: list[tuple[strict_yaml.Path, str]] = []
    total = sum(entry.weight for entry in content.faults.values())
    if abs(total - 1) > 1e-9:
        found.append((("faults",), f"weights of the fault classes add up to {total:g}, not to 1"))
    for name, entry in content.faults.items():
        found += [
            (("faults", name, *path), f"{name}: {problem}") for path, problem in _rates(entry, content.delegation)
        ]
    design = content.design
    if design.pairs_min > design.pairs_max:
        found.append((("design", "pairs_min"), f"pairs_min {design.pairs_min} is above pairs_max {design.pairs_max}"))
    if design.token_reference_per_trial > design.token_budget_per_trial:
        problem = "token_reference_per_trial is above token_budget_per_trial"
        found.append((("design", "token_reference_per_trial"), problem))
    return found


def _rates(entry: FaultEntry, exposure: Exposure) -> Iterator[tuple[strict_yaml.Path, str]]:
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
