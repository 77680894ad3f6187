"""What a field incident may say, level by level: keys, types and bounds, checked before anything is played.

Why so strict: a misspelt key is an effect, a fault or a time that silently is not there, and the score is of another
story than the one that was told. Inside `truth` further keys are remarks, which nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Meta, Struct

from harness.core.errors import did_you_mean
from harness.core.strict_yaml import Document, Path, dotted, fit
from harness.core.strict_yaml import shown as shown_value
from harness.core.types import Json

REPEAT_MAX = 10_000
"""Repetitions of a call, and numbers of a range."""

DEPTH_MAX = 60

Name = Annotated[
    str, Meta(pattern=r"^[^\x00-\x1f\x7f\u2028\u2029]{1,200}$", description="of 1 to 200 characters on one line")
]
CallId = Annotated[
    str, Meta(pattern=r"^[^#\x00-\x1f\x7f\u2028\u2029]{1,200}$", description="of 1 to 200 characters on one line, no #")
]
Ticks = Annotated[float, Meta(ge=0, le=100_000)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Number = Annotated[int, Meta(ge=1, le=1_000_000)]
Times = Annotated[int, Meta(ge=1, le=REPEAT_MAX)]
Verdict = Annotated[
    str,
    Meta(
        pattern=r"^(executed|suppressed-as-duplicate|refused-as-stalled|exhausted-budget|rejected-by-gate"
        r"|awaiting-waiver|quarantined|abstained|routed-to-[^\s]+)$",
        description="that is one of executed, suppressed-as-duplicate, refused-as-stalled, exhausted-budget, "
        "rejected-by-gate, awaiting-waiver, quarantined, abstained, routed-to-X",
    ),
]
Phase = Literal[
    "before-dispatch",
    "in-flight",
    "effect-committed",
    "response-received",
    "journaled",
    "checkpoint-partial",
    "stream-partial",
    "lease-expired",
    "replay",
]
Status = Literal["ok", "error", "timeout", "lost", "partial", "cut"]


class Call(Struct, frozen=True, kw_only=True):
    id: CallId
    tool: Name
    args: dict[str, Any] | None = None
    result: Any = ""
    status: Status = "ok"
    truth_status: str = ""
    effect: Name | tuple[Name, ...] = ()
    effect_truncated: Name | tuple[Name, ...] | None = None
    repeat: Times | None = None
    ticks: Ticks | None = None
    at_tick: Ticks | None = None
    batch: str = ""
    overlaps: str = ""


class Attempt(Struct, frozen=True, kw_only=True):
    n: Number
    calls: tuple[Call, ...]
    ends: str = ""
    resumes_from: str = ""
    worker: str = ""
    session: str = ""
    token: str | int = ""
    tenant: str = ""
    starts_at_tick: Ticks | None = None


class Fault(Struct, frozen=True, kw_only=True):
    at: str
    phase: Phase
    what: str = ""


class Budget(Struct, frozen=True, kw_only=True):
    turns: Count | None = None
    calls: Count | None = None
    ticks: Ticks | None = None
    tokens: Count | None = None


class Wait(Struct, frozen=True, kw_only=True):
    tool: Name
    until: str = ""
    deadline_ticks: Ticks = 0.0


class Delegated(Struct, frozen=True, kw_only=True):
    """Keys of `delegation`."""

    id: Name
    goal: str = ""
    agent: str = ""
    budget: Budget | None = None
    wait: Wait | None = None
    policy: dict[str, tuple[str, ...]] | None = None
    checks: tuple[str, ...] = ()
    effect_slots: tuple[str, ...] = ()
    scope: dict[str, Any] = {}
    limits: Any = None
    items: Any = None
    postcondition: Any = None
    lease_ticks: Ticks = 0.0
    tool_limit_ticks: Ticks | None = None


class Told(Struct, frozen=True, kw_only=True):
    """Keys of `truth` that mean something; those that only tell are read by people."""

    intended_effects: dict[str, Count] | None = None
    stall_from: str = ""
    detect_by: str = ""
    blame: str = ""
    trajectory: Any = None
    duplicates: Any = None
    not_duplicates: Any = None
    progress_signal: Any = None
    must_not_claim: Any = None
    ambiguity: Any = None
    outcome_class: Any = None
    alternative: Any = None
    true_total: Any = None
    naive_total: Any = None
    commit_order_in_report: Any = None


class Correct(Struct, frozen=True, kw_only=True):
    run: Verdict
    calls: dict[str, Verdict] | None = None
    accept_also: dict[str, tuple[Verdict, ...]] | None = None


class Derived(Struct, frozen=True, kw_only=True):
    reported_effects: Any = None
    excess_effects: Count = 0
    missing_effects: Count = 0


class Played(Struct, frozen=True, kw_only=True):
    """The part of a scenario that is played."""

    attempts: tuple[Attempt, ...]
    faults: tuple[Fault, ...] | None = None


class Scenario(Struct, frozen=True, kw_only=True):
    delegation: Delegated
    attempts: tuple[Attempt, ...]
    truth: Any
    correct: Correct
    faults: tuple[Fault, ...] | None = None
    reported: Any = None


def check_report(document: Document, report: Mapping[str, Any], path: Path) -> None:
    """Raises ConfigError with line, place, value and what is allowed for the first thing in a report that cannot be."""
    fit(document, report.get("id"), Name, (*path, "id"))
    if "scenario" not in report:
        raise document.refuse(path, "key 'scenario' is missing", "a mapping")
    story: Any = report["scenario"]
    fit(document, story, Scenario, (*path, "scenario"))
    fit(document, report.get("derived"), Derived | None, (*path, "derived"))
    check_truth(document, story["truth"], (*path, "scenario", "truth"))
    check_played(document, story, (*path, "scenario"))


def check_truth(document: Document, truth: Any, path: Path) -> None:
    """The keys of `truth` that mean something. A key that is nearly one of them is a slip, any other a remark."""
    keys = get_type_hints(Told)
    known = {key: value for key, value in truth.items() if key in keys} if isinstance(truth, dict) else truth
    fit(document, known, Told, path)
    for key in truth:
        if hint := "" if key in keys else did_you_mean(str(key), keys):
            raise document.refuse((*path, key), f"unknown key {key!r} in {dotted(path)}", ", ".join(keys), hint)


def check_played(document: Document, story: Mapping[str, Any], path: Path = ()) -> None:
    """Attempts and faults of a story, wherever it comes from."""
    parts = {key: story[key] for key in ("attempts", "faults") if key in story}
    played: Played = fit(document, parts, Played, path)
    if not played.attempts:
        raise document.refuse((*path, "attempts"), "there is no attempt", "at least one")
    seen: set[int] = set()
    for i, attempt in enumerate(played.attempts):
        if attempt.n in seen:
            raise document.refuse((*path, "attempts", i, "n"), f"two attempts have the number {attempt.n}")
        seen.add(attempt.n)
    _check_faults(document, played, path)


def _check_faults(document: Document, played: Played, path: Path) -> None:
    places = {"delegation", *(call.id for attempt in played.attempts for call in attempt.calls)}
    places |= {f"attempt-{attempt.n}-{edge}" for attempt in played.attempts for edge in ("start", "end")}
    for i, fault in enumerate(played.faults or ()):
        if fault.at.partition("#")[0] not in places:
            at = (*path, "faults", i, "at")
            allowed = "the id of a call, attempt-N-start, attempt-N-end or delegation"
            raise document.refuse(at, f"{dotted(at)} is {fault.at!r}", allowed, did_you_mean(fault.at, places))


def check_json(document: Document, value: Json, path: Path = ()) -> None:
    """Raises ConfigError for a value inside that JSON does not have: a date, a set, bytes, an unlimited number."""
    for at, one in _leaves(value, path):
        if len(at) > DEPTH_MAX:
            raise document.refuse(at, f"{dotted(at[:8])}... is nested too deeply", f"{DEPTH_MAX} levels")
        if isinstance(one, int) and not isinstance(one, bool) and abs(one) >= 2**63:
            raise document.refuse(at, f"{dotted(at)} is a number of {one.bit_length()} bits", "at most 63 bits")
        if one is not None and not isinstance(one, str | int | float):
            problem = f"{dotted(at)} is {shown_value(str(one))}, a {type(one).__name__}"
            raise document.refuse(at, problem, "text, numbers, true, false, null, lists and mappings", "quote it")


def _leaves(value: Json, path: Path) -> Iterable[tuple[Path, Json]]:
    """Every value that is no list or mapping; a list or mapping itself where it lies too deep."""
    if len(path) > DEPTH_MAX:
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _leaves(item, (*path, i))
    else:
        yield path, value
