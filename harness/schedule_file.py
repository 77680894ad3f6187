"""Schedules as people write them: strict YAML to a resolved `Schedule`.

Apart from `harness.schedule` because the written form is lenient (names for arms, weights for faults, defaults) and the
resolved form is not. Names are checked against a value that is handed in, so that no registry is needed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta, Struct

from harness.core import strict_yaml
from harness.core.errors import ConfigError, did_you_mean
from harness.core.strict_yaml import Document
from harness.schedule import ArmPairs, Count, Placed, Schedule, Settings, Text, Weighted

SCHEMA = "agentmesh-schedule/1"
LIVE_TIME_SCALE = 0.1
FOREIGN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
"""`module:name`: an arm, fault or workload that is not one of ours."""

Weight = Annotated[float, Meta(ge=0, le=1_000_000_000)]


class ExactFault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault of an exact schedule. What is left out is drawn by seed or placed by the fault class."""

    fault: Text
    variant: Text | None = None
    visit: Count | None = None
    delegation: Text | None = None
    phase: Text | None = None
    moment: Literal["before", "after"] | None = None


class Faults(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Either `mix` (the class of each pair is drawn by weight) or `exact` (one entry per pair, in turn). A list inside
    `exact` composes several faults in one trial; a single entry strikes `faults_per_trial` times."""

    mix: dict[str, Weight | Weighted] = {}
    exact: tuple[ExactFault | tuple[ExactFault, ...], ...] = ()


class ScheduleFile(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule for the Agent Mesh evaluation.

    workloads: {name: weight}. arms: names, or {name, pairs}. time_scale: real seconds per nominal second, live only.
    """

    workloads: dict[str, Weight]
    arms: tuple[Text | ArmPairs, ...]
    faults: Faults
    time_scale: Annotated[float, Meta(gt=0, le=100)] = LIVE_TIME_SCALE


class Entries(Protocol):
    """Registries by name, as `harness.catalogue` has them."""

    @property
    def arms(self) -> Mapping[str, Any]: ...
    @property
    def faults(self) -> Mapping[str, Any]: ...
    @property
    def workloads(self) -> Mapping[str, Any]: ...


class Names(Struct, frozen=True):
    """The names a schedule may use: arms, faults with their variants, workloads. further: variants that are drawn only
    where a schedule names them."""

    arms: tuple[str, ...]
    faults: Mapping[str, tuple[str, ...]]
    workloads: tuple[str, ...]
    further: Mapping[str, tuple[str, ...]] = {}

    @classmethod
    def of(cls, entries: Entries) -> Names:
        """The names of these registries."""
        variants = {name: tuple(fault.variants) for name, fault in entries.faults.items()}
        further = {name: tuple(getattr(fault, "further", ())) for name, fault in entries.faults.items()}
        return cls(tuple(entries.arms), variants, tuple(entries.workloads), further)


class Draft(Struct, frozen=True):
    """A schedule whose form is right and whose names are not checked yet."""

    document: Document
    body: ScheduleFile

    def foreign(self) -> dict[str, tuple[str, ...]]:
        """The `module:name` references by registry: arms, faults, workloads."""
        used: dict[str, Iterable[str]] = {
            "arms": (arm.name for _, arm in _arms(self.body)),
            "faults": [*self.body.faults.mix, *(fault.fault for _, fault in _exact_faults(self.body))],
            "workloads": self.body.workloads,
        }
        return {kind: tuple(sorted({n for n in names if FOREIGN.fullmatch(n)})) for kind, names in used.items()}


def load(path: Path, names: Names) -> Schedule:
    """The schedule in a file. Raises ConfigError with file, line, value and what would be legal."""
    return resolve(read(path), names)


def read(path: Path) -> Draft:
    """The file checked for form: keys, types, units, ranges."""
    return draft(strict_yaml.read(path))


def draft(document: Document) -> Draft:
    """The same for a document that is parsed already."""
    given = document.value.get("schema")
    if given != SCHEMA:
        problem = "key 'schema' is missing" if given is None else f"schema is {strict_yaml.shown(given)}"
        raise document.refuse(("schema",), problem, SCHEMA)
    return Draft(document, strict_yaml.convert(document, ScheduleFile))


def resolve(draft: Draft, names: Names) -> Schedule:
    """The draft with every name checked and every default filled in."""
    document, body = draft.document, draft.body
    for key in body.workloads:
        _check_name(document, ("workloads", key), "workload", key, names.workloads)
    _check_weights(document, ("workloads",), body.workloads)
    if body.no_fault_twins > body.pairs:
        problem = f"no_fault_twins is {body.no_fault_twins}, and there are {body.pairs} pairs"
        raise document.refuse(("no_fault_twins",), problem, f"a whole number from 0 to {body.pairs}")
    if body.idempotency_keys:
        raise document.refuse(("idempotency_keys",), "no boundary honours idempotency keys yet", "false")
    if body.settle_ms >= body.limits.nominal_ms:
        problem = f"settle_ms is {body.settle_ms:.15g}, and a trial ends after {body.limits.nominal_ms:.15g} nominal ms"
        allowed = "a number below limits.nominal_ms, since no fault strikes in that time"
        raise document.refuse(("settle_ms",), problem, allowed)
    if bool(body.faults.mix) == bool(body.faults.exact):
        problem = "faults has both mix and exact" if body.faults.mix else "faults has neither mix nor exact"
        raise document.refuse(("faults",), problem, "one of mix, exact (no faults at all: faults_per_trial: 0)")
    return Schedule(
        **{name: getattr(body, name) for name in Settings.__struct_fields__},
        workloads=dict(sorted(body.workloads.items())),
        arms=_resolve_arms(document, body, names),
        mix=_resolve_mix(document, body, names),
        exact=_resolve_exact(document, body, names),
        time_scale=1.0 if body.world == "sim" else body.time_scale,
    )


def _arms(body: ScheduleFile) -> Iterator[tuple[strict_yaml.Path, ArmPairs]]:
    for i, arm in enumerate(body.arms):
        yield (("arms", i), ArmPairs(name=arm)) if isinstance(arm, str) else (("arms", i, "name"), arm)


def _resolve_arms(document: Document, body: ScheduleFile, names: Names) -> tuple[ArmPairs, ...]:
    arms: dict[str, ArmPairs] = {}
    for path, arm in _arms(body):
        _check_name(document, path, "arm", arm.name, names.arms)
        if arm.name in arms:
            raise document.refuse(path, f"arm {arm.name!r} is listed twice")
        if (arm.pairs or 0) > body.pairs:
            problem = f"arm {arm.name!r} has {arm.pairs} pairs, and there are {body.pairs}"
            raise document.refuse((*path[:2], "pairs"), problem, f"a whole number from 1 to {body.pairs}")
        arms[arm.name] = arm
    if not arms:
        raise document.refuse(("arms",), "arms is empty", "at least one of " + ", ".join(names.arms))
    return tuple(arms.values())


def _resolve_mix(document: Document, body: ScheduleFile, names: Names) -> dict[str, Weighted]:
    mix: dict[str, Weighted] = {}
    for name, entry in sorted(body.faults.mix.items()):
        path = ("faults", "mix", name)
        _check_name(document, path, "fault", name, names.faults)
        given = entry if isinstance(entry, Weighted) else Weighted(weight=entry)
        for i, variant in enumerate(given.variants):
            _check_variant(document, (*path, "variants", i), name, variant, names)
        variants = given.variants or _variants(document, path, name, names)
        mix[name] = Weighted(weight=given.weight, variants=variants)
    if mix:
        _check_weights(document, ("faults", "mix"), {name: entry.weight for name, entry in mix.items()})
    return mix


def _exact_faults(body: ScheduleFile) -> Iterator[tuple[strict_yaml.Path, ExactFault]]:
    for i, entry in enumerate(body.faults.exact):
        if isinstance(entry, ExactFault):
            yield ("faults", "exact", i), entry
        else:
            yield from ((("faults", "exact", i, j), one) for j, one in enumerate(entry))


def _resolve_exact(document: Document, body: ScheduleFile, names: Names) -> tuple[tuple[Placed, ...], ...]:
    placed = {}
    for path, fault in _exact_faults(body):
        _check_name(document, (*path, "fault"), "fault", fault.fault, names.faults)
        if fault.variant:
            _check_variant(document, (*path, "variant"), fault.fault, fault.variant, names)
        variants = (fault.variant,) if fault.variant else _variants(document, path, fault.fault, names)
        fixed = {key: getattr(fault, key) for key in ("visit", "delegation", "phase", "moment")}
        pin = {key: value for key, value in fixed.items() if value is not None}
        placed[path] = Placed(fault=fault.fault, variants=variants, pin=pin)
    return tuple(
        (placed[("faults", "exact", i)],) * body.faults_per_trial
        if isinstance(entry, ExactFault)
        else tuple(placed[("faults", "exact", i, j)] for j in range(len(entry)))
        for i, entry in enumerate(body.faults.exact)
    )


def _check_name(document: Document, path: strict_yaml.Path, kind: str, name: str, known: Iterable[str]) -> None:
    if name not in known and not FOREIGN.fullmatch(name):
        allowed = ", ".join(known) + ", or module:name"
        raise document.refuse(path, f"unknown {kind} {name!r}", allowed, did_you_mean(name, known))


def _variants(document: Document, path: strict_yaml.Path, fault: str, names: Names) -> tuple[str, ...]:
    if not names.faults.get(fault):
        raise document.refuse(path, f"the variants of {fault!r} are not known here", hint="list them in the schedule")
    return tuple(names.faults[fault])


def _check_variant(document: Document, path: strict_yaml.Path, fault: str, variant: str, names: Names) -> None:
    known = (*names.faults.get(fault, ()), *names.further.get(fault, ()))
    if names.faults.get(fault) and variant not in known:
        hint = did_you_mean(variant, known)
        raise document.refuse(path, f"unknown variant {variant!r} of {fault!r}", ", ".join(known), hint)


def _check_weights(document: Document, path: strict_yaml.Path, weights: Mapping[str, float]) -> None:
    if not sum(weights.values()) > 0:
        problem = f"the weights of {strict_yaml.dotted(path)} sum to {sum(weights.values()):g}"
        raise document.refuse(path, problem, "a sum above 0")


# --- beside the schedule ------------------------------------------------------------------------------------------


def json_schema() -> dict[str, Any]:
    """JSON Schema of the file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(ScheduleFile)}


def registration(schedule: Schedule, source: Path) -> Path | None:
    """The file of the registered decision that the schedule names; None when it names none.

    Looked up from the schedule's own folder upwards. Raises ConfigError when it does not exist.
    """
    if not schedule.preregistration:
        return None
    for folder in source.resolve().parents:
        if (folder / schedule.preregistration).is_file():
            return folder / schedule.preregistration
    problem = f"preregistration {schedule.preregistration!r} does not exist"
    raise ConfigError(problem, where=str(source), hint="a decision is registered before the first trial")
