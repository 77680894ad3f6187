"""A schedule: which trials an experiment consists of, and the pure function from the one to the others.

Everything an experiment depends on is decided here, before the first trial and without running anything, so that two
people with the same schedule hold the same list of trials. `harness.schedule_file` reads one from YAML.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from harness.core import rng
from harness.core.errors import ConfigError, did_you_mean

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
CountOrNone = Annotated[int, Meta(ge=0, le=1_000_000)]
Millis = Annotated[float, Meta(ge=0, le=1_000_000_000)]
Seed = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]
Name = Annotated[
    str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$(?!\n)", description="of a-z, 0-9, _ and -, at most 64 long")
]
Text = Annotated[str, Meta(min_length=1)]
World = Literal["live", "sim"]
NO_FAULT = "none"


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a trial is `stuck` (nominal_ms, tokens, turns, restarts) or invalid (lag_ms: how late the scheduler may run
    a timer). Nominal milliseconds, provider-billed tokens, model turns, restarts of the orchestrator."""

    nominal_ms: Annotated[float, Meta(gt=0, le=1_000_000_000)] = 1_200_000.0
    tokens: Count = 200_000
    turns: Count = 400
    restarts: CountOrNone = 8
    lag_ms: Annotated[float, Meta(gt=0, le=1_000_000_000)] = 10_000.0


class ArmPairs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An arm, and how many pairs it takes part in, counted from the first (left out: all of them)."""

    name: Text
    pairs: Count | None = None


class Weighted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault class of a mix: its share, and the variants drawn from (left out: all that the class has)."""

    weight: Annotated[float, Meta(ge=0, le=1_000_000_000)]
    variants: tuple[Text, ...] = ()


class Placed(Struct, frozen=True, kw_only=True):
    """A fault of an exact schedule: the variants to draw from, and the fields of its strike that are fixed."""

    fault: str
    variants: tuple[str, ...]
    pin: dict[str, str | int] = {}


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a schedule says in the same way in YAML and resolved.

    variation: 0..5 for L0..L5. no_fault_twins: for so many pairs every arm also runs without faults. settle_ms: nominal
    milliseconds at the end in which faults are off and progress is demanded. preregistration: the file of the decision.
    jobs: trials at a time; no part of the experiment.
    """

    schema: Literal["agentmesh-schedule/1"]
    name: Name
    version: Count
    seed: Seed
    pairs: Count
    about: str = ""
    world: World = "live"
    mode: Literal["tdd", "direct"] = "tdd"
    variation: Literal[0, 1, 2, 3, 4, 5] = 3
    no_fault_twins: CountOrNone = 0
    faults_per_trial: Annotated[int, Meta(ge=0, le=16)] = 2
    limits: Limits = Limits()
    settle_ms: Millis = 600_000.0
    idempotency_keys: bool = False
    preregistration: str = ""
    jobs: Annotated[int, Meta(ge=1, le=256)] | None = None


class Schedule(Settings, frozen=True, kw_only=True):
    """A schedule that leaves nothing open: names checked, variants listed, mixes sorted by name (a draw depends on
    that order). Not more than one of `mix` and `exact` has entries. time_scale: real seconds per nominal second."""

    workloads: dict[str, float]
    arms: tuple[ArmPairs, ...]
    mix: dict[str, Weighted] = {}
    exact: tuple[tuple[Placed, ...], ...] = ()
    time_scale: float = 1.0


class PlannedFault(Struct, frozen=True, kw_only=True):
    """One fault of a trial. pin: fields of its strike that the schedule fixes (visit, delegation, phase, moment)."""

    fault: str
    variant: str
    pin: dict[str, str | int] = {}


class TrialSpec(Struct, frozen=True, kw_only=True):
    """All that one trial depends on.

    schedule: sha256 of the conditions that all trials share, which leave out how many pairs and which arms there are,
    so that a longer run holds the trials of a shorter one. index: number of the pair, from 0. twin: the same trial
    without faults. pair: hash of everything but the arm. id: hash of everything.
    """

    schedule: str
    index: int
    workload: str
    arm: str
    world: World
    mode: str
    variation: int
    seed: int
    fault_class: str
    faults: tuple[PlannedFault, ...]
    limits: Limits
    time_scale: float
    settle_ms: float
    idempotency_keys: bool
    twin: bool = False
    pair: str = ""
    id: str = ""

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(fault.variant for fault in self.faults)


def trials(schedule: Schedule) -> tuple[TrialSpec, ...]:
    """The trials in the order in which they are to run: pair by pair, the arms of a pair next to each other.

    Pure. The order of the arms within a pair is drawn, so that no arm always comes first on a machine that warms up or
    slows down; a pair's twins follow it.
    """
    shared = conditions(schedule)
    return tuple(spec for index in range(schedule.pairs) for spec in _pair(schedule, shared, index))


def _pair(schedule: Schedule, shared: str, index: int) -> Iterable[TrialSpec]:
    faults = _faults(schedule, index)
    base = TrialSpec(
        schedule=shared,
        index=index,
        workload=rng.weighted(schedule.seed, schedule.workloads, "workload", index),
        arm="",
        world=schedule.world,
        mode=schedule.mode,
        variation=schedule.variation,
        seed=rng.bits(schedule.seed, "pair", index) >> 11,  # 53 bits: exact in every reader of JSON
        fault_class="+".join(dict.fromkeys(fault.fault for fault in faults)) or NO_FAULT,
        faults=faults,
        limits=schedule.limits,
        time_scale=schedule.time_scale,
        settle_ms=schedule.settle_ms,
        idempotency_keys=schedule.idempotency_keys,
    )
    arms = [arm.name for arm in schedule.arms if index < (arm.pairs or schedule.pairs)]
    yield from _per_arm(schedule.seed, base, arms)
    if index < schedule.no_fault_twins:
        yield from _per_arm(schedule.seed, replace(base, faults=(), fault_class=NO_FAULT, twin=True), arms)


def _per_arm(seed: int, base: TrialSpec, arms: list[str]) -> Iterable[TrialSpec]:
    pair = _digest(base)[:16]
    for arm in sorted(arms, key=lambda arm: rng.bits(seed, "order", base.index, base.twin, arm)):
        spec = replace(base, arm=arm, pair=pair)
        yield replace(spec, id=_digest(spec)[:16])


def _faults(schedule: Schedule, index: int) -> tuple[PlannedFault, ...]:
    if schedule.exact:
        placed = schedule.exact[index % len(schedule.exact)]
    elif schedule.mix:
        weights = {name: entry.weight for name, entry in schedule.mix.items()}
        name = rng.weighted(schedule.seed, weights, "fault", index)
        placed = (Placed(fault=name, variants=schedule.mix[name].variants),) * schedule.faults_per_trial
    else:
        placed = ()
    return tuple(
        PlannedFault(
            fault=one.fault, variant=rng.choice(schedule.seed, one.variants, "variant", index, nth), pin=one.pin
        )
        for nth, one in enumerate(placed)
    )


# --- identity -----------------------------------------------------------------------------------------------------


def canonical(value: Any) -> str:
    """The one JSON text of a value: keys sorted, no white space."""
    return msgspec.json.encode(value, order="sorted").decode()


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def resolved(schedule: Schedule) -> tuple[str, str]:
    """Canonical JSON of all that the experiment depends on, and its sha256 in hex. `jobs` is left out: how many trials
    run at a time belongs to a machine."""
    text = canonical(replace(schedule, jobs=None))
    return text, hashlib.sha256(text.encode()).hexdigest()


def from_resolved(text: str | bytes) -> Schedule:
    """The schedule that a manifest holds."""
    try:
        return msgspec.json.decode(text, type=Schedule)
    except msgspec.DecodeError as error:
        raise ConfigError(f"the stored schedule cannot be read: {error}") from error


def conditions(schedule: Schedule) -> str:
    """sha256 of what every trial shares: the schedule without its size, its arms and its words."""
    bare = replace(schedule, pairs=1, arms=(), no_fault_twins=0, jobs=None)
    return _digest(replace(bare, about="", preregistration=""))


def override(
    schedule: Schedule,
    *,
    pairs: int | None = None,
    seed: int | None = None,
    arms: tuple[str, ...] | None = None,
    world: World | None = None,
    live_time_scale: float = 1.0,
) -> Schedule:
    """Another schedule, for a run that departs from the registered one; it has another sha256.

    Arms that the schedule gives fewer pairs keep their number where it still fits. live_time_scale: what a simulated
    schedule takes when it is run live. Raises ConfigError for a number out of range or an arm given twice.
    """
    if pairs is not None and not 1 <= pairs <= 1_000_000:
        raise ConfigError(f"--pairs is {pairs}", allowed="a whole number from 1 to 1000000")
    if seed is not None and not 0 <= seed < 1 << 53:
        raise ConfigError(f"--seed is {seed}", allowed=f"a whole number from 0 to {(1 << 53) - 1}")
    if arms is not None and (not arms or len(set(arms)) < len(arms)):
        raise ConfigError(f"--arms is {','.join(arms)!r}", allowed="names of arms, each once, with commas between")
    if world is not None and world not in ("live", "sim"):
        raise ConfigError(f"--world is {world!r}", allowed="live, sim", hint=did_you_mean(world, ("live", "sim")))
    total = pairs or schedule.pairs
    given = {arm.name: arm.pairs for arm in schedule.arms}
    counts = {name: given.get(name) for name in arms or given}
    scaled = {"sim": 1.0, "live": schedule.time_scale if schedule.world == "live" else live_time_scale}
    return replace(
        schedule,
        pairs=total,
        seed=schedule.seed if seed is None else seed,
        arms=tuple(ArmPairs(name=name, pairs=count and min(count, total)) for name, count in counts.items()),
        no_fault_twins=min(schedule.no_fault_twins, total),
        world=world or schedule.world,
        time_scale=scaled[world or schedule.world],
    )
