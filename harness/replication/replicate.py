"""The run of a bundle, done again by the harness at hand, and the verdict of the registered rule.

Three answers: REPLICATED, NOT_REPLICATED, and DIFFERENT_ENVIRONMENT where the rule does not apply, since something else
than the run was changed. Nothing passes in silence: what is not shown is not replicated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harness import analysis, catalogue, segment
from harness.core.errors import ConfigError
from harness.core.pretty import pretty
from harness.core.records import SealedTrial, TrialRecord
from harness.evaluate import Plan
from harness.replication import environment, layout
from harness.replication.checks import check_digests
from harness.replication.differ import file_difference, leaves, said
from harness.replication.equivalence import Equivalence, equivalences
from harness.replication.opened import Opened, opened
from harness.replication.rule import Rule, parse
from harness.replication.runs import View, view
from harness.report.provenance import without_provenance
from harness.runner import rehearse
from harness.schedule import canonical, from_resolved, resolved, trials
from harness.status import Status, read_status
from harness.trace_store import TraceStore

Verdict = Literal["REPLICATED", "NOT_REPLICATED", "DIFFERENT_ENVIRONMENT"]
EXIT: dict[Verdict, int] = {"REPLICATED": 0, "NOT_REPLICATED": 1, "DIFFERENT_ENVIRONMENT": 4}
RESULT = "replicated.json"
TOLD_MAX = 20
OF_THE_MACHINE = {"real_s": 0.0, "lag_ms": 0.0, "tries": 1}
"""Fields of a record that no second run can have the same."""

Run = Callable[[Plan, bytes | None], Path]
"""Runs, judges and reports a plan; gives the folder. The second argument is the outcome of the calibration in the
bundle, for a run that makes none of its own: it is about the harness, and not about this run."""


class Replicated(Struct, frozen=True, kw_only=True):
    """How it ended. differences: what was not the same, or not shown, one sentence each; environment: what else had
    changed; equivalence: the tests, live only; compared: what was laid side by side."""

    schema: Literal["agentmesh-replicated/1"] = "agentmesh-replicated/1"
    verdict: Verdict
    because: str
    rule: Rule
    environment: tuple[str, ...]
    differences: tuple[str, ...]
    equivalence: tuple[Equivalence, ...] = ()
    compared: dict[str, int] = {}


def replicate(bundle: Path, run: Run) -> tuple[Replicated, Path]:
    """Do the run of a bundle again by `run`; the verdict, and the folder of the second run, which holds it too.

    Raises ConfigError for a bundle whose digests do not hold, or whose schedule the harness at hand cannot run.
    """
    with opened(bundle) as held:
        root = _whole(held)
        with TraceStore.open(held.folder) as store:
            manifest = store.manifest
        if not manifest.get("ended"):
            raise ConfigError("the run in the bundle has not ended", where=str(bundle))
        rule = parse((root / layout.RULE).read_bytes(), layout.RULE)
        around = environment.differences(root, manifest)
        calibration = held.folder / "calibration.json"
        folder = run(plan_of(manifest, bundle, around), calibration.read_bytes() if calibration.is_file() else None)
        result = judge(held.folder, folder, rule, around)
    with segment.disk(folder):
        (folder / RESULT).write_bytes(pretty(result))
    return result, folder


def _whole(held: Opened) -> Path:
    if held.root is None:
        hint = f"first: agentmesh bundle {held.folder}"
        raise ConfigError("this is the folder of a run, not a bundle", where=held.name, hint=hint)
    problems = check_digests(held)
    if problems:
        told = "; ".join(map(str, problems[:3]))
        hint = "`agentmesh verify` says all; get an untouched copy"
        raise ConfigError(f"the bundle is damaged: {told}", where=held.name, hint=hint)
    return held.root


def plan_of(manifest: Mapping[str, Any], source: Path, around: Sequence[str] = ()) -> Plan:
    """What was run, as a plan of the harness at hand. around: what has changed around it since.

    The second run takes over whether the first one confirms; where anything has changed it suggests, and says why.
    Raises ConfigError for a name that the harness at hand does not have.
    """
    schedule = from_resolved(canonical(manifest["schedule"]["resolved"]))
    for arm in schedule.arms:
        catalogue.check_boot(arm.name)
    specs = trials(schedule)
    rehearse(specs)
    held = {key: value for key, value in manifest["preregistration"].items() if key != "sealed_before_first_trial"}
    if around:
        known = read_status(manifest)
        because = (*known.because, *(f"when the run was replicated: {reason}" for reason in around))
        held["status"] = msgspec.to_builtins(Status(False, because))
    return Plan(
        source=source,
        schedule=schedule,
        sha256=resolved(schedule)[1],
        specs=specs,
        registration=held,
        overrides=dict(manifest.get("overrides", {})),
        until=manifest.get("stopping", {}).get("until", "all_pairs"),
    )


def judge(first: Path, second: Path, rule: Rule, around: list[str]) -> Replicated:
    """The verdict over two folders of runs by the rule of the first. around: what else had changed."""
    tests: tuple[Equivalence, ...] = ()
    if rule.test == "byte_equality":
        found, compared = _unequal(first, second)
    else:
        tests, found = _apart(view(first), view(second), rule)
        compared = {"tests": len(tests)}
    verdict: Verdict = "DIFFERENT_ENVIRONMENT" if around else "NOT_REPLICATED" if found else "REPLICATED"
    outcome = "nothing differs" if not found else f"{len(found)} differences, first: {found[0]}"
    if rule.test == "equivalence":
        outcome = "all tests are passed" if not found else found[0]
    because = (
        f"{len(around)} things differ around the run, first: {around[0]}; with that, {outcome}" if around else outcome
    )
    return Replicated(
        verdict=verdict,
        because=because,
        rule=rule,
        environment=tuple(around),
        differences=tuple(found[:TOLD_MAX]),
        equivalence=tests,
        compared=compared,
    )


# --- simulated: byte equality -------------------------------------------------------------------------------------


def _unequal(first: Path, second: Path) -> tuple[list[str], dict[str, int]]:
    with TraceStore.open(first) as one, TraceStore.open(second) as other:
        ids = sorted(analysis.counted(one) | analysis.counted(other))
        found = [line for trial in ids for line in _trial(one, other, trial)]
    derived = sorted({*layout.derived(first), *layout.derived(second)})
    found += [line for name in derived for line in _derived(first, second, name)]
    return found, {"trials": len(ids), "derived_files": len(derived)}


def _trial(one: TraceStore, other: TraceStore, trial: str) -> Iterator[str]:
    """How a trial differs: in its record, and in the first event of each log that is not the same."""
    missing = [name for name, store in (("first", one), ("second", other)) if trial not in store.sealed_ids()]
    if missing:
        yield f"trial {trial} is missing in the {missing[0]} run"
        return
    a, b = one.read(trial), other.read(trial)
    if content(a) == content(b):
        return
    found = list(leaves(msgspec.to_builtins(logical(a.record)), msgspec.to_builtins(logical(b.record))))
    if found:
        yield f"trial {trial}: record: {said(found)}"
    for stream in ("trace", "truth"):
        events, again = msgspec.to_builtins(getattr(a, stream)), msgspec.to_builtins(getattr(b, stream))
        for number, (event, second) in enumerate(zip(events, again, strict=False)):
            if event != second:
                yield f"trial {trial}: {stream}, event {number}: {said(list(leaves(event, second)))}"
                break
        else:
            if len(events) != len(again):
                yield f"trial {trial}: {stream} has {len(events)} events, run again {len(again)}"


def content(trial: SealedTrial) -> str:
    """Digest of what a trial says, wherever it lies and however long it took on the machine."""
    return segment.digest([msgspec.msgpack.encode(part) for part in (logical(trial.record), trial.trace, trial.truth)])


def logical(record: TrialRecord) -> TrialRecord:
    """The record without what belongs to the machine."""
    return replace(record, **OF_THE_MACHINE)


def _derived(first: Path, second: Path, name: str) -> Iterator[str]:
    for folder, which in ((first, "first"), (second, "second")):
        if not (folder / name).is_file():
            yield f"{name} is missing in the {which} run"
            return
    kept = without_provenance if name == "report.html" else bytes
    difference = file_difference(name, kept((first / name).read_bytes()), kept((second / name).read_bytes()))
    if difference:
        yield f"{name}: {difference}"


# --- live: equivalence --------------------------------------------------------------------------------------------


def _apart(first: View, second: View, rule: Rule) -> tuple[tuple[Equivalence, ...], list[str]]:
    """The tests, and what is not shown."""
    tests = tuple(equivalences(first.arms, second.arms, first.prereg, rule))
    found = [test.because for test in tests if not test.shown]
    if not tests:
        found.append("there is no registered arm to compare")
    one, other = first.decision, second.decision
    if one != other:
        found.append(f"the kill criterion is {one} in the first run and {other} in the second")
    return tests, found
