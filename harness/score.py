"""Judging sealed trials: the only importer of oracles, long after the last arm has gone.

Why apart from the run: a sealed trial can be judged again by a better oracle, and an oracle is itself put to the test,
by harm planted in a reference trial that it must find exactly.
"""

from __future__ import annotations

import functools
import importlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harness.accounting import account, unbilled
from harness.core.errors import ConfigError, did_you_mean
from harness.core.records import Event, Finding, Intent, Oracle, ScoredTrial, SealedTrial, Work
from harness.core.types import Json
from harness.effects import Books, Committed, Key, conserve, findings, open_books
from harness.hops import attempts_of, planned
from harness.recognition import recognition
from harness.specs import check, row_of
from harness.trace_store import TraceStore
from harness.turns import done_delegations, instances
from workloads.oracles import ORACLES


def score(trial: SealedTrial, oracle: Oracle) -> ScoredTrial:
    """Judge one trial: pure. An invalid one is passed through without findings.

    Replies that carried another effect's receipt are counted in a last `note` of the returned trial's trace, of kind
    `score`. Raises HarnessBug when commits or tokens do not add up.
    """
    record = trial.record
    if record.status == "invalid":
        return ScoredTrial(trial=trial, findings=(), work=Work(), success=False, verdicts={}, exposed=False)
    intents = oracle.intents(record.seed, record.variation)
    books = open_books(trial, oracle)
    found = findings(intents, books, instances(trial.trace))
    conserve(found, books)
    fired = {e.data["fault"] for e in trial.truth if e.kind == "fault" and e.data["state"] == "fired"}
    spoken = (e.data.get("verdict") for e in trial.trace if e.kind in ("outcome", "delegation_end"))
    return ScoredTrial(
        trial=_with_note(trial, sum(books.foreign(a) for a in books.asked)),
        findings=found,
        work=account(trial),
        success=_success(trial, oracle, intents),
        verdicts=dict(sorted(Counter(v for v in spoken if v).items())),
        exposed=0 < record.faults_scheduled <= len(fired),
        clean=_clean(trial, intents, found),
        recognition=recognition(trial, intents, books, found),
        hops=attempts_of(trial, oracle),
        hops_planned=len(planned(trial, oracle)),
    )


@functools.lru_cache(maxsize=64)
def oracle_of(workload: str) -> Oracle:
    """The judge of a workload: a registered one, or for `module:NAME` the one that the workload names as
    `oracle = "module:NAME"`, a text, so that running it never loads its judge. Raises ConfigError where there is none.
    """
    if workload in ORACLES:
        return ORACLES[workload]
    hint = did_you_mean(workload, ORACLES)
    if ":" in workload:
        hint = 'give the workload an attribute oracle = "module:NAME"'
        named = str(getattr(_load(workload), "oracle", ""))
        if ":" in named:
            return _load(named)
    raise ConfigError(f"no oracle for workload {workload!r}", allowed=", ".join(sorted(ORACLES)), hint=hint)


def _load(reference: str) -> Any:
    module, _, name = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"cannot load {reference!r}: {error}", hint="is its folder on PYTHONPATH?") from error


def score_run(run_dir: Path, pairs: float = math.inf) -> Iterator[ScoredTrial]:
    """Judge the trials of the first pairs of a run, one in memory at a time, ordered by pair index and arm.

    Writes in that order `findings.jsonl`, a line per finding with its trial, pair and arm, and `violations.jsonl`, a
    line per trace specification that a trial breaks; the files are there once the last trial was judged. Raises
    ConfigError for a workload that has no oracle or a folder that holds no run.
    """
    drafts = {name: run_dir / f"{name}.new" for name in ("findings.jsonl", "violations.jsonl")}
    with TraceStore.open(run_dir) as store, ExitStack() as files:
        found, broken = (files.enter_context(draft.open("wb")) for draft in drafts.values())
        for trial in store.iter(lambda record: record.index < pairs):
            record = trial.record
            violations = check(trial)
            scored = replace(score(trial, oracle_of(record.workload)), violations={v.spec: v.times for v in violations})
            head = {"trial": record.id, "pair": record.pair, "arm": record.arm}
            found.writelines(msgspec.json.encode(head | msgspec.to_builtins(f)) + b"\n" for f in scored.findings)
            broken.writelines(msgspec.json.encode(row_of(trial, v)) + b"\n" for v in violations)
            yield scored
    for name, draft in drafts.items():
        draft.replace(run_dir / name)


def _clean(trial: SealedTrial, intents: Sequence[Intent], found: Sequence[Finding]) -> dict[str, bool]:
    """By delegation of the plan, whether it is a link that held: done, with every effect of it had exactly once."""
    done = done_delegations(trial.trace)
    harmed = {f.delegation for f in found if f.duplicated or f.lost}
    return {name: name in done and name not in harmed for name in sorted({i.delegation for i in intents})}


def _with_note(trial: SealedTrial, foreign: int) -> SealedTrial:
    if not foreign:
        return trial
    last = trial.trace[-1]
    note = Event(last.seq + 1, last.at_ms, last.epoch, "note", {"kind": "score", "foreign_receipts": foreign})
    return replace(trial, trace=(*trial.trace, note))


def _success(trial: SealedTrial, oracle: Oracle, intents: Sequence[Intent]) -> bool:
    """Every delegation of the plan ended well, on answers that were bought, the checks that prove it were really green,
    and what was accepted last is wanted. That a repair that somebody was woken for came to nothing is no failure where
    the plan got through all the same."""
    if unbilled(trial) or not proven(trial, oracle):
        return False
    seen = {e.data["delegation"] for e in trial.trace if e.kind in ("attempt", "delegation_end")}
    woken = {e.data["delegation"] for e in trial.trace if e.kind == "delegation_end" and e.data.get("woken")}
    done = done_delegations(trial.trace)
    last = {e.data["delegation"]: e.data["files"] for e in trial.trace if e.kind == "checkpoint"}
    if not (seen - woken) | {i.delegation for i in intents} <= done & last.keys():  # no phase, nothing done
        return False
    files = {path: digest for accepted in last.values() for path, digest in accepted.items()}
    held, kept = [e.data for e in trial.truth if e.kind == "effect"], getattr(oracle, "kept", None)
    if kept is not None and not kept(trial.record.seed, trial.record.variation, held):
        return False
    return oracle.accepted(trial.record.seed, trial.record.variation, files)


def proven(trial: SealedTrial, oracle: Oracle) -> bool:
    """Whether every check that the oracle names as a proof was really green at least once, as the truth says. What an
    arm answers of a check that it did not run proves nothing."""
    green = {e.data["check"] for e in trial.truth if e.kind == "checked" and e.data["passed"]}
    return set(getattr(oracle, "proofs", ())) <= green


# --- the test of the testers --------------------------------------------------------------------------------------


class Plant(Struct, frozen=True):
    """Harm planted in a reference trial. change: how many effects of a key came or went; status: why they are lost."""

    what: str
    trial: SealedTrial
    change: dict[Key, int]
    status: str


def selftest(oracle: Oracle, reference: SealedTrial) -> list[str]:
    """What is wrong with an oracle, in words; empty if nothing.

    reference: an ended trial without faults in which every intent happened as often as required. Each of its effects
    is dropped, doubled, swapped, lost in each of the ways that are told apart, and given another identity, and work is
    destroyed: what was planted has to be found, and nothing else. An oracle that reads too little of an effect is
    caught by another identity.
    """
    scored = score(reference, oracle)
    wrong = [f"reference: {f.boundary} {f.key} is {f.status}" for f in scored.findings if f.status != "exactly_once"]
    if wrong or not scored.findings:
        return wrong or ["reference: no intents"]
    if not scored.success:
        wrong.append("reference: not accepted")
    for what, files in (("without its files", _nothing), ("with other files", _other_texts)):
        if score(_edit(reference, files=files), oracle).success:
            wrong.append(f"reference {what}: accepted")
    wrong += _unseen_work(reference)
    books = open_books(reference, oracle)
    for effect in books.committed:
        for plant in _plants(reference, books, effect):
            wrong += _unlike(plant, oracle)
        wrong += _blind_spots(reference, effect, oracle)
    return wrong


def _plants(reference: SealedTrial, books: Books, effect: Committed) -> Iterator[Plant]:
    """One effect doubled, swapped for another of its boundary, and lost in every way."""
    n, gone = effect.order, dict(Counter(effect.keys))
    name = f"{effect.keys[0][0]} {', '.join(key for _, key in gone)}"
    data, less = reference.truth[n].data, {key: -times for key, times in gone.items()}
    yield Plant(f"{name} doubled", _edit(reference, truth={n: (data, data)}), gone, "")
    yield Plant(f"{name} dropped", _edit(reference, truth={n: ()}), less, "lost_in_flight")
    others = (c for c in books.committed if c.keys[0][0] == effect.keys[0][0] and not set(c.keys) & set(gone))
    other = next(others, None)
    if other is not None:
        swapped = _edit(reference, truth={n: (reference.truth[other.order].data,)})
        yield Plant(f"{name} swapped", swapped, {**less, **Counter(other.keys)}, "lost_in_flight")
    if effect.by is None:
        return
    call_id, unseen = effect.by.asked.call_id, {n: (), effect.by.order: ()}
    spoken = {i: e for i, e in enumerate(reference.trace) if e.data.get("call_id") == call_id}
    answers = {i: e.data for i, e in spoken.items() if e.kind == "outcome"}

    def lost(how: str, status: str, **answer: Json) -> Plant:
        told = {i: ({**data, **answer},) for i, data in answers.items()}
        return Plant(f"{name} {how}", _edit(reference, trace=told, truth=unseen), less, status)

    unasked = _edit(reference, trace=dict.fromkeys(spoken, ()), truth=unseen)
    yield Plant(f"{name} not asked for", unasked, less, "never_attempted")
    yield lost("suppressed", "over_suppressed_silent", result="ok")
    yield lost("refused", "false_reject", result="refused", receipt=None)
    if other is not None and other.receipt is not None:
        yield lost("merged", "wrongly_merged", result="ok", receipt=other.receipt[1])


def _unseen_work(reference: SealedTrial) -> Iterator[str]:
    """Destroyed work that is planted and not found: all of it, where nothing is accepted; an answer that was paid for
    and that nobody got, by itself and after a fault."""
    whole = account(reference)
    if whole.destroyed:
        yield f"reference: {whole.destroyed} tokens destroyed"
    ends = {i: ({**e.data, "status": "failed"},) for i, e in enumerate(reference.trace) if e.kind == "delegation_end"}
    if (nothing := account(_edit(reference, trace=ends))).destroyed != whole.billed:
        yield f"reference with nothing accepted: {nothing.destroyed} of {whole.billed} tokens destroyed"
    told = {e.data["completion"] for e in reference.trace if e.kind == "turn"}
    bought = [n for n, e in enumerate(reference.truth) if e.kind == "billed" and e.data["completion"] in told]
    for n in bought[:1]:
        bill = reference.truth[n]
        fault = replace(bill, kind="fault", data={"fault": "planted", "state": "fired"})
        again = replace(bill, data={**bill.data, "completion": "planted"})
        tokens = bill.data["prompt_tokens"] + bill.data["completion_tokens"]
        for planted, expected in (((again,), (0, tokens)), ((fault, again), (tokens, 0))):
            work = account(replace(reference, truth=(*reference.truth[: n + 1], *planted, *reference.truth[n + 1 :])))
            if (work.charged, work.spontaneous) != expected:
                found = f"{work.charged} tokens charged to a fault and {work.spontaneous} to none"
                yield f"an answer that nobody got: {found}; expected {expected[0]} and {expected[1]}"


def _unlike(plant: Plant, oracle: Oracle) -> Iterator[str]:
    """How the findings about a planted trial differ from what was planted."""
    found = {(f.boundary, f.key): f for f in score(plant.trial, oracle).findings}
    for key, f in found.items():
        change = plant.change.get(key, 0)
        expected = f.required + change, min(f.required, max(0, change)), max(0, -change)
        if (f.observed, f.duplicated, f.lost) != expected or (change < 0 and f.status != plant.status):
            was = f"observed {f.observed}, duplicated {f.duplicated}, lost {f.lost}, {f.status}"
            yield f"{plant.what}: {' '.join(key)} has {was}; expected {expected} {plant.status}".rstrip()
    yield from (f"{plant.what}: no finding about {' '.join(key)}" for key in sorted(plant.change.keys() - found.keys()))


def _blind_spots(reference: SealedTrial, effect: Committed, oracle: Oracle) -> Iterator[str]:
    """Parts of a natural key that may change in the effect without the oracle taking it for another one."""
    data = reference.truth[effect.order].data
    for boundary, key in sorted(set(effect.keys)):
        for piece in _pieces(key, str(data)):
            kept = ("boundary", "operation", "receipt")
            renamed = {name: value if name in kept else _renamed(value, piece) for name, value in data.items()}
            found = score(_edit(reference, truth={effect.order: (renamed,)}), oracle).findings
            phantoms = sum(f.observed for f in found if f.status == "phantom")
            lost = sum(f.lost for f in found if (f.boundary, f.key) == (boundary, key))
            if not lost == effect.keys.count((boundary, key)) <= phantoms:
                yield f"{boundary} {key}: another {piece!r} makes no other effect"


def _pieces(key: str, text: str) -> list[str]:
    """The parts of a natural key that stand in the effect as they are."""
    return [p for part in re.split("/|==", key) for p in ([part] if part in text else part.split(".")) if p]


def _renamed(value: Json, piece: str) -> Json:
    if isinstance(value, dict):
        return {name: _renamed(item, piece) for name, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, piece) for item in value]
    return str(value).replace(piece, f"{piece}~") if isinstance(value, str) or str(value) == piece else value


def _nothing(files: dict[str, str]) -> dict[str, str]:
    return {}


def _other_texts(files: dict[str, str]) -> dict[str, str]:
    return {path: digest[::-1] for path, digest in files.items()}


def _edit(
    trial: SealedTrial,
    trace: Mapping[int, tuple[Json, ...]] | None = None,
    truth: Mapping[int, tuple[Json, ...]] | None = None,
    files: Callable[[dict[str, str]], dict[str, str]] = dict,
) -> SealedTrial:
    """The trial with other data at some positions of its logs: none, one or several events in place of one."""

    def edited(log: tuple[Event, ...], by: Mapping[int, tuple[Json, ...]]) -> tuple[Event, ...]:
        new = (replace(e, data=data) for i, e in enumerate(log) for data in by.get(i, (e.data,)))
        return tuple(
            replace(e, data={**e.data, "files": files(e.data["files"])}) if e.kind == "checkpoint" else e for e in new
        )

    return replace(trial, trace=edited(trial.trace, trace or {}), truth=edited(trial.truth, truth or {}))
