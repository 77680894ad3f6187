"""From one sealed trial to rows of the tables: pure, so that a run of any length is loaded trial by trial.

Nothing is judged here. What the oracle said comes in from the derived files of the run, and is joined later.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from harness.core.records import Event, Finding, NotApplicable, SealedTrial
from harness.metrics import METRICS
from harness.metrics.effects import PRIMARY_BOUNDARIES
from harness.report.rows import Row

Record = dict[str, Any]
Records = dict[str, list[Record]]
"""Rows by table; a row lacks the columns that are NULL."""


def of_trial(trial: SealedTrial) -> Records:
    """The rows of a trial in every table that needs no oracle. `trials` lacks what `of_row` gives."""
    key = {"trial": trial.record.id}
    found: dict[str, Iterator[Record]] = {
        "trials": _trials(trial),
        "delegations": _delegations(trial.trace),
        "attempts": _attempts(trial.trace),
        "processes": _processes(trial),
        "turns": _turns(trial.trace),
        "calls": _calls(trial),
        "effects": _effects(trial),
        "verdicts": _verdicts(trial.trace),
        "faults": _faults(trial.truth),
        "bills": _bills(trial.truth),
        "notes": _notes(trial.trace),
    }
    return {table: [key | row for row in rows] for table, rows in found.items()}


def of_row(row: Row) -> Records:
    """What a judged trial adds: the columns of `trials` that the oracle fills (as table `judged`), links and metrics.

    Counts are over the primary boundaries, as in the summary. An invalid trial has none.
    """
    key = {"trial": row.trial}
    judged = {**key, "exposed": row.exposed, "success": row.success, **_counts(row), **_work(row)}
    return {
        "judged": [judged if row.valid else key],
        "clean": [{**key, "delegation": name, "clean": clean} for name, clean in row.clean.items()],
        "metrics": [{**key, "metric": name, **_value(name, value)} for name, value in row.metrics.items()],
        "violations": [{**key, "spec": name, "times": times} for name, times in row.violations.items() if times],
    }


def of_finding(trial_id: str, finding: Finding) -> Records:
    """A finding, and for each durable effect behind it what the oracle knows of that (as table `held`).

    Occurrences beyond those required are duplicates. Of these, as many are stale as the finding counts.
    """
    fields = {name: getattr(finding, name) for name in Finding.__struct_fields__ if name != "held"}
    fields["natural_key"] = fields.pop("key")
    held: list[Record] = []
    stale = 0
    for occurrence, one in enumerate(finding.held, start=1):
        counts = one.superseded and stale < finding.stale
        stale += counts
        held.append(
            {
                "trial": trial_id,
                "position": one.position,
                "cause": one.call_id or None,
                "natural_key": finding.key,
                "delegation": finding.delegation,
                "required": finding.required,
                "occurrence": occurrence,
                "duplicate": 0 < finding.required < occurrence,
                "phantom": not finding.required,
                "superseded": one.superseded,
                "stale": counts,
            }
        )
    return {"findings": [{"trial": trial_id, **fields}], "held": held}


# --- the trial and its parts --------------------------------------------------------------------------------------


def _trials(trial: SealedTrial) -> Iterator[Record]:
    record = msgspec.structs.asdict(trial.record)
    del record["id"]
    exposure = record.pop("exposure")
    yield record | {f"faults_{state}": exposure.get(state, 0) for state in ("armed", "fired", "observed", "expired")}


def _delegations(trace: Sequence[Event]) -> Iterator[Record]:
    ends = {e.data["delegation"]: e for e in trace if e.kind == "delegation_end"}
    for name, e in ends.items():
        said = _some(e.data, "status", "code", "verdict")
        yield {"delegation": name, "ended_ms": e.at_ms, "woken": bool(e.data.get("woken")), **said}


def _attempts(trace: Sequence[Event]) -> Iterator[Record]:
    """An end belongs to the last beginning of its delegation and number, if it came from the same process."""
    rows: list[Record] = []
    last: dict[tuple[str, int], Record] = {}
    for e in trace:
        key = e.data.get("delegation", ""), e.data.get("attempt", 0)
        if e.kind == "attempt":
            said = _some(e.data, "delegation", "attempt", "resumed", "depth")
            last[key] = {**said, "epoch": e.epoch, "began_ms": e.at_ms}
            rows.append(last[key])
        elif e.kind == "attempt_end" and last.get(key, {}).get("epoch") == e.epoch:
            last[key] |= {"ended_ms": e.at_ms, **_some(e.data, "status", "code", "because", "verdict")}
    yield from rows


def _processes(trial: SealedTrial) -> Iterator[Record]:
    exits = {e.data.get("epoch"): e for e in trial.truth if e.kind == "exit"}
    for e in trial.trace:
        if e.kind == "epoch":
            row: Record = {"epoch": e.epoch, "host": e.data.get("host", ""), "began_ms": e.at_ms}
            end = exits.get(e.epoch)
            if end is not None:
                row |= {"exit_ms": end.at_ms, "signal": end.data.get("signal"), "exit_code": end.data.get("code")}
            yield row


def _turns(trace: Sequence[Event]) -> Iterator[Record]:
    for e in trace:
        if e.kind == "turn":
            data = e.data
            yield {
                **_some(data, "delegation", "attempt", "phase", "turn", "completion", "replayed", "done"),
                "epoch": e.epoch,
                "at_ms": e.at_ms,
                "reads": len(data["reads"]),
                "writes": len(data["writes"]),
                "checks": len(data["checks"]),
                "checks_failed": sum(not passed for _, passed in data["checks"]),
                "files_read": data["reads"],
                "files_written": data["writes"],
            }


_PLACE = ("delegation", "phase", "seam")
_CALL = ("call_id", "attempt", "turn", "tool", "args", "model", "boundary", "operation", "target", "payload")


def _calls(trial: SealedTrial) -> Iterator[Record]:
    told = {e.data["call_id"]: e for e in trial.trace if e.kind == "outcome"}
    crossed: dict[str, list[float]] = defaultdict(list)
    struck: dict[str | None, int] = {}
    for e in trial.truth:
        if e.kind == "crossed":
            crossed[e.data["call_id"]].append(e.at_ms)
        elif e.kind == "fault" and e.data["state"] == "fired":
            struck.setdefault(e.data.get("call_id"), e.data["fault"])
    for e in trial.trace:
        if e.kind != "call":
            continue
        data, call_id = e.data, e.data["call_id"]
        row = {**_some(data, *_CALL, "cause", "origin"), **_site(data), "kind": data["call"]}
        row |= {"epoch": e.epoch, "at_ms": e.at_ms, "fault": struck.get(call_id)}
        args = data.get("args")
        if data.get("tool") == "run_check" and isinstance(args, Mapping):
            row["check_name"] = args.get("check")
        if row["kind"] == "effect":
            row |= {"crossings": len(crossed[call_id]), "crossed_ms": next(iter(crossed[call_id]), None)}
        if call_id in told:
            answer = told[call_id]
            said = _some(answer.data, "result", "verdict", "code", "definite", "because", "receipt", "passed", "arm_us")
            row |= {"ended_ms": answer.at_ms, **said}
        yield row


def _effects(trial: SealedTrial) -> Iterator[Record]:
    """`told`: the last call that was answered with this receipt and came out of the arm before. Receipts that several
    calls were answered with are no evidence of who caused what."""
    boundaries = {e.data["call_id"]: e.data.get("boundary") for e in trial.truth if e.kind == "crossed"}
    answers = [(e.data.get("receipt"), e.data["call_id"]) for e in trial.trace if e.kind == "outcome"]
    told = {(boundaries[call], receipt): call for receipt, call in answers if receipt and call in boundaries}
    spoken = Counter((boundaries[call], receipt) for receipt, call in answers if receipt and call in boundaries)
    for position, e in enumerate(trial.truth):
        if e.kind == "effect":
            key = e.data["boundary"], e.data.get("receipt")
            row = {"position": position, "at_ms": e.at_ms, "epoch": e.epoch, "boundary": key[0], "receipt": key[1]}
            yield {**row, "told": told.get(key) if spoken[key] == 1 else None, "data": e.data}


def _verdicts(trace: Sequence[Event]) -> Iterator[Record]:
    """The same verdicts that are counted: of calls and of ends of delegations."""
    sites = {e.data["call_id"]: _site(e.data) for e in trace if e.kind == "call"}
    for e in trace:
        verdict = e.data.get("verdict")
        if verdict and e.kind in ("outcome", "delegation_end"):
            row = {"at_ms": e.at_ms, "epoch": e.epoch, "verdict": verdict}
            if e.kind == "outcome":
                call_id = e.data["call_id"]
                yield {**row, "source": "call", "call_id": call_id, **sites.get(call_id, {})}
            else:
                yield {**row, "source": "delegation", "delegation": e.data["delegation"]}


def _faults(truth: Sequence[Event]) -> Iterator[Record]:
    rows: dict[int, Record] = {}
    for e in truth:
        if e.kind != "fault":
            continue
        data, state = e.data, e.data["state"]
        row = rows.setdefault(data["fault"], {"fault": data["fault"]})
        if state == "fired" and "fired_ms" in row:
            continue  # a fault that fires more than once is dated by the first time
        row["state"] = state
        if state == "armed":
            row |= {"armed_ms": e.at_ms, "fault_class": data.get("class"), **_some(data, "variant", "strike")}
        elif state == "fired":
            row |= {"fired_ms": e.at_ms, "fault_class": data.get("class")}
            row |= _some(data, "variant", "fate", "how", "ms", "call_id")
            row |= {**_some(data, *_PLACE), "site": data.get("name")}
        else:
            row |= {"settled_ms": e.at_ms, **_some(data, "evidence")}
            if "evidence" in data:
                row["evidence_ms"] = evidence_ms(truth, data["evidence"], row.get("fired_ms", 0.0))
    yield from rows.values()


def evidence_ms(truth: Sequence[Event], evidence: Mapping[str, Any], fired_ms: float) -> float | None:
    """When the side that suffered said what is quoted as evidence; None where it is not in the truth."""
    kind, said = evidence.get("kind"), {k: v for k, v in evidence.items() if k != "kind"}
    return next((e.at_ms for e in truth if e.kind == kind and e.at_ms >= fired_ms and e.data == said), None)


def _bills(truth: Sequence[Event]) -> Iterator[Record]:
    arrived = {e.data.get("completion"): e.kind == "delivered" for e in truth if e.kind in ("delivered", "undelivered")}
    for e in truth:
        if e.kind == "billed":
            data, about = e.data, e.data.get("metadata") or {}
            yield {
                **_some(data, "completion", "model", "prompt_tokens", "completion_tokens", "nth"),
                **_some(about, "delegation", "phase"),
                "at_ms": e.at_ms,
                "tokens": data["prompt_tokens"] + data["completion_tokens"],
                "drifting": bool(data.get("drifting")),
                "delivered": arrived.get(data["completion"]),
            }


def _notes(trace: Sequence[Event]) -> Iterator[Record]:
    for e in trace:
        if e.kind == "note":
            name = e.data.get("note", e.data.get("kind"))
            yield {
                "at_ms": e.at_ms,
                "epoch": e.epoch,
                "note": name,
                **_some(e.data, "delegation", "call_id"),
                "data": e.data,
            }


# --- small parts --------------------------------------------------------------------------------------------------


def _some(data: Mapping[str, Any], *names: str) -> Record:
    return {name: data[name] for name in names if data.get(name) is not None}


def _site(data: Mapping[str, Any]) -> Record:
    site = data.get("site") or {}
    return {**_some(site, *_PLACE), "site": site.get("name")}


def _counts(row: Row) -> Record:
    primary = [row.boundaries[name] for name in PRIMARY_BOUNDARIES if name in row.boundaries]
    return {
        "intended": row.intended,
        "duplicated": row.duplicated,
        "lost": row.lost,
        "duplicates_gross": sum(counts.gross for counts in primary),
        "stale": sum(counts.stale for counts in primary),
        "phantom": sum(counts.phantom for counts in primary),
    }


def _work(row: Row) -> Record:
    work = row.work
    tokens = {"billed": work.billed, "live": work.live, "dead_end": work.dead_end, "charged": work.charged}
    tokens |= {"spontaneous": work.spontaneous, "destroyed": work.destroyed, "direct": work.direct}
    tokens |= {"destroyed_lenient": work.destroyed_lenient}
    return {f"tokens_{name}": count for name, count in tokens.items()} | {
        "turns_destroyed": work.turns_destroyed,
        "writes_destroyed": work.writes_destroyed,
    }


def _value(name: str, value: float | NotApplicable) -> Record:
    unit = METRICS[name].unit if name in METRICS else None
    if isinstance(value, NotApplicable):
        return {"unit": unit, "not_applicable": value.because}
    return {"unit": unit, "value": value}
