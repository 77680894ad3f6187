"""The format of field incidents: failures from public reports as abstract scenarios, with reference decisions.

Why a loader of its own: a file tells the agent's calls (which an arm may see), what each of them does to the world
(which it may not), and how a good layer decides (which only the scoring reads). They part here. The format explains
itself in the header of `schedules/incidents/field/reports.yaml`; a person's own file in it is read the same way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct
from msgspec.structs import replace

from harness.core.errors import ConfigError
from harness.core.types import PHASES, Delegation, EffectContract, Json, Poll

TICK_MS = 1_000.0
"""Nominal milliseconds of a scenario's tick."""

PHASES_PLAYED = PHASES[3:]
"""Phases that attempts are played in: the first until a checkpoint is gone on from, then the next."""

STATUSES = ("ok", "error", "timeout", "lost", "partial", "cut")


class Listed(Struct, frozen=True, kw_only=True):
    """One call that the agent issues if nothing stops it. effects: identities that it brings about in the world;
    truncated: those that come about instead when it is executed cut or half-applied; late: the caller gave up while it
    was under way, and they come when it is done; paused: its process stands still meanwhile, and its lease runs out."""

    id: str
    tool: str
    args: dict[str, Json]
    result: Json = ""
    status: str = "ok"
    effects: tuple[str, ...] = ()
    truncated: tuple[str, ...] | None = None
    ticks: float | None = None
    at_tick: float | None = None
    batch: str = ""
    late: bool = False
    paused: bool = False


class Run(Struct, frozen=True, kw_only=True):
    """One attempt as listed. starts_at_tick: it runs beside the one before it, in another process. stage: how many
    checkpoints it goes on from: what came before them is not gone through again."""

    number: int
    calls: tuple[Listed, ...]
    ends: str
    worker: str = ""
    tenant: str = ""
    starts_at_tick: float | None = None
    stage: int = 0


class Truth(Struct, frozen=True, kw_only=True):
    """What only the scoring may know. correct: the reference decision of a call, "executed" where none is listed;
    also: equally good ones. reported_excess, reported_missing: effects too many and too few in the report itself."""

    intended: dict[str, int] = {}
    correct: dict[str, str] = {}
    also: dict[str, tuple[str, ...]] = {}
    run: str = ""
    stall_from: str = ""
    detect_by: str = ""
    blame: str = ""
    reported_excess: int = 0
    reported_missing: int = 0


class Scenario(Struct, frozen=True, kw_only=True):
    """A report, parted into what is played and what is judged."""

    id: str
    delegation: Delegation
    runs: tuple[Run, ...]
    truth: Truth

    def calls(self) -> Iterator[Listed]:
        for run in self.runs:
            yield from run.calls


def parsed(path: Path) -> Any:
    """What an incident file of either form holds. Raises ConfigError for a file that cannot be read or is no YAML."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the file: {error}", where=str(path)) from error


def load(path: Path) -> tuple[Scenario, ...]:
    """The scenarios of a file. Raises ConfigError with file, report and key for what cannot be read."""
    try:
        reports = parsed(path)["reports"]
    except (KeyError, TypeError) as error:
        raise ConfigError("a file of field incidents has a list `reports`", where=str(path)) from error
    if not isinstance(reports, list) or not reports:
        raise ConfigError("`reports` is no list of reports", where=str(path))
    scenarios = []
    for number, report in enumerate(reports):
        name = report.get("id", f"report {number}") if isinstance(report, dict) else f"report {number}"
        try:
            scenarios.append(_scenario(report))
        except ConfigError as error:
            raise ConfigError(error.problem, where=f"{path}: {name}", allowed=error.allowed, hint=error.hint) from error
        except KeyError as error:
            raise ConfigError(f"the key {error} is missing", where=f"{path}: {name}") from error
        except (AttributeError, TypeError, ValueError, msgspec.ValidationError) as error:
            raise ConfigError(f"cannot be read: {error}", where=f"{path}: {name}") from error
    return tuple(scenarios)


def _scenario(report: Mapping[str, Any]) -> Scenario:
    story = report["scenario"]
    runs = runs_of(story)
    known = [call.id for run in runs for call in run.calls]
    doubled = [id for id, n in Counter(known).items() if n > 1]
    if doubled:
        raise ConfigError(f"call ids stand twice: {', '.join(doubled)}")
    return Scenario(
        id=str(report["id"]),
        delegation=delegation_of(story["delegation"]),
        runs=runs,
        truth=_truth(story, report.get("derived") or {}, known),
    )


GOES_ON = re.compile(r"checkpoint|saved state", re.IGNORECASE)
"""A resume that says so goes on behind what was saved; any other goes through its calls again."""


def runs_of(story: Mapping[str, Any]) -> tuple[Run, ...]:
    """The attempts of a story, in order."""
    at = {str(fault.get("at")): fault.get("phase") for fault in story.get("faults") or ()}
    runs: list[Run] = []
    for attempt in story["attempts"]:
        goes_on = bool(GOES_ON.search(str(attempt.get("resumes_from", ""))))
        run = run_of(attempt, (runs[-1].stage if runs else 0) + goes_on)
        calls = tuple(
            replace(
                call,
                late=call.status == "timeout" and at.get(call.id) == "in-flight",
                paused=at.get(call.id) == "lease-expired",
            )
            for call in run.calls
        )
        runs.append(replace(run, calls=calls))
    return tuple(runs)


def delegation_of(told: Mapping[str, Any]) -> Delegation:
    """The declaration that a scenario gives, in the words of ours. Budgets in ticks are left out: a wall clock ends
    nobody's work here."""
    wait, policy, budget = told.get("wait"), told.get("policy") or {}, told.get("budget") or {}
    polls: tuple[Poll, ...] = ()
    if wait:
        deadline = {"deadline_ms": wait["deadline_ticks"] * TICK_MS} if "deadline_ticks" in wait else {}
        polls = (Poll(tool=wait["tool"], until=str(wait.get("until", "")), **deadline),)
    limit = told.get("tool_limit_ticks")
    terms: dict[str, Json] = {}
    if "lease_ticks" in told:
        terms["lease_ms"] = told["lease_ticks"] * TICK_MS
    turns = budget.get("turns", budget.get("calls"))
    if turns is not None:
        terms["turns_total"] = int(turns)
    contract = EffectContract(
        writable=("**",),
        checks=tuple(told.get("checks", ())),
        polls=polls,
        slots=tuple(told.get("effect_slots", ())),
        scope=dict(told.get("scope", {})),
        denied=tuple(policy.get("deny", ())),
        handoffs={who: tuple(to) for who, to in policy.items() if who != "deny"},
        tool_limit_ms=limit * TICK_MS if limit is not None else None,
        terms=terms,
    )
    return Delegation(
        id=str(told["id"]),
        tenant="",
        goal=str(told.get("goal", "")),
        phases=PHASES_PLAYED,
        contract=contract,
        turns_max=200,
    )


def run_of(attempt: Mapping[str, Any], stage: int = 0) -> Run:
    """An attempt as it stands in a file."""
    return Run(
        number=int(attempt["n"]),
        calls=tuple(call for listed in attempt["calls"] for call in _listed(listed)),
        ends=str(attempt.get("ends", "")),
        worker=str(attempt.get("worker", "")),
        tenant=str(attempt.get("tenant", "")),
        starts_at_tick=attempt.get("starts_at_tick"),
        stage=stage,
    )


def _listed(told: Mapping[str, Any]) -> Iterator[Listed]:
    """The call, once per repetition, with `$i` filled in."""
    status = str(told.get("status", "ok"))
    if status not in STATUSES:
        raise ConfigError(f"call {told['id']}: unknown status {status!r}", allowed=", ".join(STATUSES))
    times = told.get("repeat")
    for i in range(1, (times or 1) + 1):
        truncated = told.get("effect_truncated")
        yield Listed(
            id=f"{told['id']}#{i}" if times else str(told["id"]),
            tool=str(told["tool"]),
            args=filled(told.get("args") or {}, "$i", str(i)),
            result=filled(told.get("result", ""), "$i", str(i)),
            status=status,
            effects=_strings(filled(told.get("effect", ()), "$i", str(i))),
            truncated=None if truncated is None else _strings(filled(truncated, "$i", str(i))),
            ticks=told.get("ticks"),
            at_tick=told.get("at_tick"),
            batch=str(told.get("batch", "")),
        )


def filled(value: Any, place: str, text: str) -> Any:
    """A JSON value with every occurrence of `place` in its texts replaced; keys stay."""
    if isinstance(value, str):
        return value.replace(place, text)
    if isinstance(value, dict):
        return {key: filled(item, place, text) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, place, text) for item in value]
    return value


def _strings(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(str(item) for item in value)


_RANGE = re.compile(r"\$\{(\d+)\.\.(\d+)\}")


def _truth(story: Mapping[str, Any], derived: Mapping[str, Any], known: list[str]) -> Truth:
    truth, correct = story["truth"], story["correct"]
    intended: Counter[str] = Counter()
    for key, times in (truth.get("intended_effects") or {}).items():
        span = _RANGE.search(key)
        numbers = range(int(span[1]), int(span[2]) + 1) if span else (0,)
        intended.update({_RANGE.sub(str(n), key): int(times) for n in numbers})
    decisions = {id: str(said) for group, said in (correct.get("calls") or {}).items() for id in _ids(group, known)}
    also = {id: tuple(said) for group, said in (correct.get("accept_also") or {}).items() for id in _ids(group, known)}
    return Truth(
        intended=dict(intended),
        correct=decisions,
        also=also,
        run=str(correct["run"]),
        stall_from=str(truth.get("stall_from", "")),
        detect_by=str(truth.get("detect_by", "")),
        blame=str(truth.get("blame", "")),
        reported_excess=int(derived.get("excess_effects", 0)),
        reported_missing=int(derived.get("missing_effects", 0)),
    )


def _ids(group: str, known: list[str]) -> list[str]:
    """The calls that a key stands for: one id, all repetitions of it, or `id#a..b`."""
    stem, _, span = group.partition("#")
    if not span:
        found = [id for id in known if id.partition("#")[0] == stem]
    else:
        first, _, last = span.partition("..")
        found = [f"{stem}#{i}" for i in range(int(first), int(last or first) + 1)]
    missing = [id for id in found if id not in known] or ([] if found else [group])
    if missing:
        raise ConfigError(f"a decision names the call {missing[0]!r}, which no attempt lists")
    return found
