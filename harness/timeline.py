"""The course of a sealed trial, condensed from both logs for a drawing of a pair side by side.

Why apart from the report: this reads traces and truth, which the report may not; it hands over small values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from harness import replay
from harness.core.errors import ConfigError
from harness.core.records import Event, SealedTrial, TrialRecord, hosts
from harness.core.types import Verdict
from harness.report.timeline import FAULTS, Chosen, Course, Mark, PairCourse, Seam, Span, process_lane
from harness.trace_store import TraceStore

NAMED = ("operation", "stream", "table", "package", "version", "hook", "path", "ref", "model", "completion")
"""Fields of an effect that say what it was, in reading order."""


def course(trial: SealedTrial, findings: Sequence[Mapping[str, Any]] = ()) -> Course:
    """The course of a trial. findings: what the oracle said of it, as in `findings.jsonl`; empty: it was not
    asked."""
    record = trial.record
    end_ms = max([record.duration_ms, *(e.at_ms for e in (*trial.trace, *trial.truth))])
    deaths = {e.data["epoch"]: e.at_ms for e in trial.truth if e.kind == "exit"}
    calls: dict[str, list[tuple[float, Seam]]] = {}
    for event in trial.trace:
        if event.kind == "call" and event.data["site"]["delegation"]:
            site = event.data["site"]
            calls.setdefault(site["delegation"], []).append((event.at_ms, cast("Seam", site["seam"])))
    marks = sorted((*_hidden(trial.truth, hosts(trial.trace)), *_seen(trial.trace)), key=lambda mark: mark.at_ms)
    return Course(
        trial=record.id,
        arm=record.arm,
        status=record.status,
        because=record.because,
        duration_ms=end_ms,
        spans=(*_processes(trial, deaths, end_ms), *_attempts(trial.trace, deaths, end_ms)),
        marks=tuple(marks),
        calls={lane: tuple(at) for lane, at in calls.items()},
        findings=tuple(_found(one) for one in findings if one.get("status") != "exactly_once"),
        judged=bool(findings),
    )


def _processes(trial: SealedTrial, deaths: Mapping[int, float], end_ms: float) -> Iterator[Span]:
    for event in trial.trace:
        if event.kind == "epoch":
            epoch = event.data["epoch"]
            died = deaths.get(epoch)
            until = end_ms if died is None else max(died, event.at_ms)
            end = "alive" if died is None else "cut"
            lane = process_lane(event.data.get("host", ""))
            yield Span(event.at_ms, until, lane, end, f"orchestrator process {epoch}")


def _attempts(trace: Sequence[Event], deaths: Mapping[int, float], end_ms: float) -> Iterator[Span]:
    """Attempts from their start to their end, or to the death of their process."""
    open_ones: dict[tuple[str, int, int], Event] = {}

    def closed(begun: Event, at_ms: float, end: str, why: str = "") -> Span:
        told = f"{begun.data['delegation']}, attempt {begun.data['attempt']}"
        resumed = ", resumed" if begun.data.get("resumed") else ""
        return Span(begun.at_ms, at_ms, begun.data["delegation"], end, f"{told}{resumed}: {end}{why}")

    for event in trace:
        if event.kind in ("attempt", "attempt_end"):
            key = event.data["delegation"], event.data["attempt"], event.epoch
            if event.kind == "attempt":
                open_ones[key] = event
            elif key in open_ones:
                code = event.data.get("code") or event.data.get("because")
                why = f" ({code})" if code else ""
                yield closed(open_ones.pop(key), event.at_ms, event.data["status"], why)
    for begun in open_ones.values():
        yield closed(begun, max(deaths.get(begun.epoch, end_ms), begun.at_ms), "cut")


def _hidden(truth: Sequence[Event], placed: Mapping[int, str]) -> Iterator[Mark]:
    """What really happened."""
    names: dict[Any, str] = {}
    for event in truth:
        data = event.data
        if event.kind == "fault":
            number, state = data["fault"], data["state"]
            names.setdefault(number, f"#{number} {data.get('class', '')}/{data.get('variant', '')}".rstrip("/ "))
            if state in ("fired", "observed", "expired"):
                by = data.get("evidence") or {}
                injury = f", by the injury: {_injury(by)}" if by.get("kind") == "suffered" else ""
                yield Mark(event.at_ms, FAULTS, state, f"fault {names[number]} {state}{injury}", number)
        elif event.kind == "suffered":
            yield Mark(event.at_ms, FAULTS, "suffered", f"injury: {_injury(data)}")
        elif event.kind == "effect":
            said = " ".join(str(data[name]) for name in NAMED if isinstance(data.get(name), str | int))
            event_type = data["event"].get("type") if isinstance(data.get("event"), Mapping) else None
            yield Mark(event.at_ms, data["boundary"], "effect", " ".join(filter(None, (said, event_type))) or "effect")
        elif event.kind == "exit":
            how = data.get("signal") or f"code {data.get('code')}"
            lane = process_lane(placed.get(data["epoch"], ""))
            yield Mark(event.at_ms, lane, "exit", f"orchestrator process {data['epoch']} ended: {how}")


def _injury(data: Mapping[str, Any]) -> str:
    return f"{data.get('boundary') or data.get('check') or '?'}, {data.get('what', 'of an unknown kind')}"


def _seen(trace: Sequence[Event]) -> Iterator[Mark]:
    """What the arm answered that was not plainly executed."""
    sites: dict[str, Mapping[str, Any]] = {}
    for event in trace:
        if event.kind == "call":
            sites[event.data["call_id"]] = event.data["site"]
        elif event.kind == "outcome" and (site := sites.get(event.data["call_id"])):
            verdict, where = event.data.get("verdict"), f"{site['phase']} {site['seam']} {site['name']}"
            if verdict and verdict != Verdict.EXECUTED.value:
                yield Mark(event.at_ms, site["delegation"], "verdict", f"{verdict}: {where}")
            elif event.data.get("result") != "ok":
                code = event.data.get("code") or event.data.get("result")
                yield Mark(event.at_ms, site["delegation"], "error", f"{code}: {where}")


def _found(one: Mapping[str, Any]) -> str:
    counts = f"required {one.get('required')}, observed {one.get('observed')}"
    return f"{str(one.get('status')).replace('_', ' ')}: {one.get('boundary')} {one.get('key')} ({counts})"


# --- pairs --------------------------------------------------------------------------------------------------------


def pairs(folder: Path, chosen: Sequence[Chosen], arms: Sequence[str]) -> list[PairCourse]:
    """The chosen pairs of a run, each with the trials of `arms` in that order. Reads the run folder, and
    `findings.jsonl` where it is scored. Raises ConfigError when a trial is damaged or a pair has none of the arms."""
    with TraceStore.open(folder) as store:
        wanted = {one.index: _trials(store, one.index, arms) for one in chosen}
        told = _findings(folder, {record.id for records in wanted.values() for record in records})
        return [_pair(store, one, wanted[one.index], told) for one in chosen]


def _trials(store: TraceStore, index: int, arms: Sequence[str]) -> list[TrialRecord]:
    here = [record for record in store.records() if record.index == index and record.faults_scheduled]
    here = here or [record for record in store.records() if record.index == index]
    by_arm = {record.arm: record for record in here}
    found = [by_arm[arm] for arm in arms if arm in by_arm]
    if not found:
        allowed = f"arms {', '.join(sorted(by_arm))}" if by_arm else _sealed_pairs(store)
        raise ConfigError(f"pair {index} has no trial of {', '.join(arms)}", where=str(store.folder), allowed=allowed)
    return found


def _sealed_pairs(store: TraceStore) -> str:
    held = sorted({record.index for record in store.records()})
    if not held:
        return "nothing: no trial is sealed"
    gaps = "" if len(held) == held[-1] - held[0] + 1 else ", not all of them"
    return f"pairs {held[0]} to {held[-1]}{gaps}"


def _findings(folder: Path, trials: set[str]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {trial: [] for trial in trials}
    for one in replay.all_findings(folder):
        if one.get("trial") in found:
            found[one["trial"]].append(one)
    return found


def _pair(
    store: TraceStore, chosen: Chosen, records: Sequence[TrialRecord], told: Mapping[str, list[Mapping[str, Any]]]
) -> PairCourse:
    first = records[0]
    return PairCourse(
        index=first.index,
        pair=first.pair,
        fault_class=first.fault_class,
        variant=first.variant,
        because=chosen.because,
        courses=tuple(course(store.read(record.id), told[record.id]) for record in records),
    )


def default_arms(folder: Path) -> list[str]:
    """The registered control and treatment as far as the run has them, else its first two arms."""
    with TraceStore.open(folder) as store:
        held = store.manifest
        ran = [arm for arm in held.get("arms", []) if isinstance(arm, str)]
        registered = held.get("preregistration", {}).get("document", {}).get("arms", {})
    named = [registered.get(role) for role in ("control", "treatment")]
    return [arm for arm in named if arm in ran] or ran[:2]
