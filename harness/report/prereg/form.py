"""A registration as it is written, field by field; the comments of `schedules/prereg/*.yaml` say why.

Apart from the reader, so that what is promised can be read without how it is checked. `/1` registers the decision;
`/2` registers also when to stop, which arms decide what, what must hold before a claim, and can be sealed.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

V1, V2 = "agentmesh-prereg/1", "agentmesh-prereg/2"

Share = Annotated[float, Meta(gt=0, lt=1)]
Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
CountOrNone = Annotated[int, Meta(ge=0)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)", description="of 64 hexadecimal digits")]
Moment = Annotated[
    str,
    Meta(
        pattern=r"^\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-6]\dZ$(?!\n)",
        description='in quotes, like "2026-01-31T12:00:00Z"',
    ),
]
Opportunity = Literal["hours", "model_calls", "check_runs", "installs"]
Until = Literal["all_pairs", "kill_criterion", "full_claim"]


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
    """Fixed denominators and size. Tokens are provider-billed tokens. workloads: by family, the probability that a pair
    draws it; empty where a registration says nothing of it."""

    delegations_per_trial: Count
    intended_effects_per_trial: Count
    faults_scheduled_per_trial: Count
    token_budget_per_trial: Count
    token_reference_per_trial: Count
    pairs_min: Count
    pairs_max: Count
    workloads: dict[str, Share] = {}


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
    """Conditions without which the data may not be judged."""

    invalid_share_max: Annotated[float, Meta(ge=0, lt=1)]
    exposed_share_min: Annotated[float, Meta(ge=0, le=1)]
    phantom_share_max: Annotated[float, Meta(ge=0, lt=1)]


class Stopping(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a run may end. fractions: stakes as shares of the largest that cannot ruin; weights: how capital is spread
    over them, for claims that a harm is there (`even`) or absent (`bold`: half on the largest stake). until: what a run
    goes on for; or_until: what it may be asked to go on for instead, before it starts."""

    rule: Literal["any_time"]
    engine: Literal["mixture_e_process"]
    look: Literal["every_pair"]
    order: Literal["registered"]
    fractions: tuple[Share, ...]
    weights_harm: Literal["even"]
    weights_absence: Literal["bold"]
    until: Until
    or_until: tuple[Until, ...] = ()

    @property
    def goals(self) -> tuple[Until, ...]:
        return (self.until, *self.or_until)


class Phase(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    arms: tuple[str, ...]


class Phases(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which arms decide what: 1 the kill criterion, 2 the comparison."""

    kill_criterion: Phase
    comparison: Phase


class Calibration(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """must_pass: checks without which no claim is made. noise_floor_pairs: pairs of the control against itself.
    schedules: sha256 of each schedule that the checks are made on, as resolved."""

    must_pass: tuple[str, ...]
    noise_floor_pairs: Count
    schedules: dict[str, Sha256]


class Replication(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Equivalence of a second live run. Margins: largest difference, per arm, of the duplicate effect rate and of the
    destroyed share of the token budget that counts as the same. alpha: of each one-sided test."""

    margin_duplicates: Share
    margin_work_share: Share
    alpha: Share


class Missing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of a trial without a result of its own."""

    harness_crash: Literal["rerun_same_seed_once_then_worst_case"]
    arm_crash: Literal["keep_as_outcome"]


class Opportunities(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Least number of control pairs in which a fault fired: over all classes, and of each class."""

    control_pairs_exposed: CountOrNone = 0
    control_pairs_exposed_per_class: CountOrNone = 0


class GatesV2(Gates, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """discriminates_min: by how much more an arm that compares exact bytes must err than the oracle. spec_violations:
    trace specifications that no trial of any arm may break, since they speak of the harness and not of an arm."""

    opportunities_min: Opportunities
    discriminates_min: Annotated[float, Meta(ge=0, lt=1)]
    spec_violations: tuple[str, ...]


NOTHING_MORE = {"opportunities_min": Opportunities(), "discriminates_min": 0.0, "spec_violations": ()}
"""The gates of `/2` where `/1` is silent: floors of nothing and no names."""


class Digests(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was there when the registration was sealed. registration: everything in this file but the seal. schedule:
    as resolved. pair_seeds: index, seed and hash of every pair that may be run, in order. The others: source files."""

    registration: Sha256
    schedule: Sha256
    pair_seeds: Sha256
    lock_file: Sha256
    schedule_generator: Sha256
    workloads: Sha256
    faults: Sha256
    arms: Sha256
    harness_code: Sha256
    analysis_code: Sha256


class EarlierSeal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A seal that was replaced. sha256: of the whole registration as it was then."""

    at: Moment
    sha256: Sha256


class Sealed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    at: Moment
    digests: Digests
    previous: tuple[EarlierSeal, ...] = ()


class Common(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every version has."""

    id: str
    about: str
    arms: ArmNames
    design: Design
    delegation: Exposure
    faults: dict[str, FaultEntry]
    thresholds: Thresholds
    claims: Claims
    errors: Errors


class RegistrationV1(Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: Literal["agentmesh-prereg/1"]
    gates: Gates


class RegistrationV2(Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: Literal["agentmesh-prereg/2"]
    gates: GatesV2
    stopping: Stopping
    phases: Phases
    calibration: Calibration
    replication: Replication
    missing: Missing
    sealed: Sealed | None = None
