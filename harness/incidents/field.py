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

import yaml
from msgspec import Struct
from msgspec.structs import replace

from harness.core import strict_yaml
from harness.core.errors import ConfigError
from harness.core.strict_yaml import Document
from harness.core.types import PHASES, Delegation, EffectContract, Json, Poll
from harness.incidents import form

TICK_MS = 1_000.0
"""Nominal milliseconds of a scenario's tick."""

PHASES_PLAYED = PHASES[3:]
"""Phases that attempts are played in: the first until a checkpoint is gone on from, then the next."""

SIZE_MAX_BYTES = 5_000_000


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
    """What an incident file of either form holds. Raises ConfigError for a file that cannot be read, or that holds
    anything but plain values: duplicate keys, aliases, dates, sets."""
    return _document(path).value


def _document(path: Path) -> Document:
    text = strict_yaml.text_of(path, SIZE_MAX_BYTES, regular=True)
    quick = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # tenfold faster, and every file is read twice
    document = strict_yaml.parse(text, str(path), loader_class=quick, number_keys=True)
    form.check_json(document, document.value)
    return document


def load(path: Path) -> tuple[Scenario, ...]:
    """The scenarios of a file. Raises ConfigError with file, line, report and place for what cannot be read."""
    document = _document(path)
    reports = document.value.get("reports")
    if not isinstance(reports, list) or not reports:
        raise ConfigError("`reports` is no list of reports", where=str(path))
    scenarios = []
    for number, report in enumerate(reports):
        at = ("reports", number)
        if not isinstance(report, dict):
            raise document.refuse(
                at, f"report {number} is {strict_yaml.shown(report)}", "a mapping with id and scenario"
            )
        name = report["id"] if isinstance(report.get("id"), str) and report["id"].isprintable() else f"report {number}"
        try:
            form.check_report(document, report, at)
            scenarios.append(_scenario(report))
        except ConfigError as error:
            where = f"{error.where or document.where(at)}: {name}"
            raise ConfigError(error.problem, where=where, allowed=error.allowed, hint=error.hint) from error
    return tuple(scenarios)


def _scenario(report: Mapping[str, Any]) -> Scenario:
    story = report["scenario"]
    runs = _runs(story)
    known = [call.id for run in runs for call in run.calls]
    doubled = [id for id, n in Counter(known).items() if n > 1]
    if doubled:
        raise ConfigError(f"call ids stand twice: {', '.join(doubled[:10])}")
    return Scenario(
        id=report["id"],
        delegation=_delegation(story["delegation"]),
        runs=runs,
        truth=_truth(story, report.get("derived") or {}, set(known)),
    )


GOES_ON = re.compile(r"checkpoint|saved state", re.IGNORECASE)
"""A resume that says so goes on behind what was saved; any other goes through its calls again."""


def runs_of(story: Mapping[str, Any]) -> tuple[Run, ...]:
    """The attempts of a story, in order. Raises ConfigError for one that cannot be read."""
    form.check_played(_loose(story), story)
    return _runs(story)


def _loose(told: Mapping[str, Any]) -> Document:
    """A part of a story whose file nobody knows any more."""
    return Document("story", told, {})


def _runs(story: Mapping[str, Any]) -> tuple[Run, ...]:
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
    """The declaration that a scenario gives, in the words of ours. Raises ConfigError for one that cannot be read."""
    strict_yaml.fit(_loose(told), told, form.Delegated, ())
    return _delegation(told)


def _delegation(told: Mapping[str, Any]) -> Delegation:
    """Budgets in ticks are left out: a wall clock ends nobody's work here."""
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
    times = told.get("repeat")
    for i in range(1, (times or 1) + 1):
        truncated = told.get("effect_truncated")
        yield Listed(
            id=f"{told['id']}#{i}" if times else str(told["id"]),
            tool=str(told["tool"]),
            args=filled(told.get("args") or {}, "$i", str(i)),
            result=filled(told.get("result", ""), "$i", str(i)),
            status=told.get("status", "ok"),
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
_SPAN = re.compile(r"(\d+)(?:\.\.(\d+))?")


def _numbers(first: str, last: str, said: str) -> range:
    """The numbers of a range, both ends among them."""
    if max(len(first), len(last)) <= 9 and 0 <= int(last) - int(first) < form.REPEAT_MAX:
        return range(int(first), int(last) + 1)
    problem = f"the range in {strict_yaml.shown(said)} cannot be counted through"
    raise ConfigError(problem, allowed=f"a..b with a up to b, and at most {form.REPEAT_MAX} numbers")


def _truth(story: Mapping[str, Any], derived: Mapping[str, Any], known: set[str]) -> Truth:
    truth, correct = story["truth"], story["correct"]
    intended: Counter[str] = Counter()
    for key, times in (truth.get("intended_effects") or {}).items():
        span = _RANGE.search(key)
        numbers = _numbers(span[1], span[2], key) if span else (0,)
        intended.update({_RANGE.sub(str(n), key): int(times) for n in numbers})
    decisions = {id: str(said) for group, said in (correct.get("calls") or {}).items() for id in _ids(group, known)}
    also = {id: tuple(said) for group, said in (correct.get("accept_also") or {}).items() for id in _ids(group, known)}
    for place in ("stall_from", "detect_by"):
        if truth.get(place, "") not in {"", *known}:
            problem = f"truth.{place} names the call {truth[place]!r}, which no attempt lists"
            raise ConfigError(problem, allowed="the id of a call, id#i for the i-th of its repetitions")
    if truth.get("detect_by") and not truth.get("stall_from"):
        raise ConfigError(
            "truth.detect_by is given and truth.stall_from is not", allowed="both, stall_from, or neither"
        )
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


def _ids(group: str, known: set[str]) -> list[str]:
    """The calls that a key stands for: one id, all repetitions of it, or `id#a..b`."""
    stem, _, span = group.partition("#")
    if not span:
        found = [stem] if stem in known else [id for id in known if id.startswith(f"{stem}#")]
    else:
        numbers = _SPAN.fullmatch(span)
        if not numbers:
            raise ConfigError(f"a decision names {group!r}", allowed="an id, id#i or id#a..b")
        found = [f"{stem}#{i}" for i in _numbers(numbers[1], numbers[2] or numbers[1], group)]
    missing = [id for id in found if id not in known] or ([] if found else [group])
    if missing:
        raise ConfigError(f"a decision names the call {missing[0]!r}, which no attempt lists")
    return found
