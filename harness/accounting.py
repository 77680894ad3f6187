"""Work accounting: which of the tokens that the provider billed ended up in the accepted state of a trial.

Why by liveness and not by attempt: a retry that builds on an earlier attempt's file saved that work, and a turn of the
accepted attempt that led nowhere was the agent's own dead end, not harm. Being in the context window is no reading:
otherwise every later turn would "reuse" everything and nothing would ever be destroyed (statistics D.3).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from harness.core.errors import HarnessBug
from harness.core.records import ABANDONED_SINCE, Event, SealedTrial, Work, hosts, recorder
from harness.core.types import Json, Verdict
from harness.turns import Address, File, Instance, Turn, done_delegations, instances, turns_of

SHARED = frozenset({"die", "cut"})
"""Fates that strike every delegation at once: they have the process and the way to a boundary in common."""


class Bill(Struct, frozen=True):
    """A completion that the provider billed to an agent. tokens: prompt + completion. told: the turns that name it,
    several where it was replayed, none where nobody got it."""

    at_ms: float
    delegation: str
    phase: str
    tokens: int
    told: tuple[Turn, ...]


class Origin(Struct, frozen=True, kw_only=True):
    """Where a completion was last in use: in the last turn that names it, else in the model call that bought it."""

    order: int
    at_ms: float
    address: Address


class Blow(Struct, frozen=True):
    """A fault that fired. delegation: whom it struck, None for all; turn: whose call it struck, if it was a turn's."""

    at_ms: float
    delegation: str | None
    turn: Address | None


def account(trial: SealedTrial) -> Work:
    """The work of a trial in provider-billed tokens (statistics D.3). Raises HarnessBug when a token is lost or
    counted twice, or when a turn names a completion that was never billed."""
    turns, done = turns_of(trial.trace), done_delegations(trial.trace)
    accepted = {key: i for key, i in instances(trial.trace).items() if i.delegation in done}
    live = _live(turns, list(accepted.values()))
    lost_ms = {e.data.get("completion"): e.at_ms for e in trial.truth if e.kind == "undelivered"}
    blows, tokens = _blows(trial), Counter[str]()
    gone, direct = [], 0
    ended, timed_out = killed(trial.trace), Counter[bool]()
    goes = {address[:4] for address in ended or ()}
    for completion, bill in _bills(trial.truth, turns).items():
        if any(t.order in live for t in bill.told):
            tokens["live"] += bill.tokens
            continue
        fate, origin = "spontaneous", _origin(trial.trace, bill)
        arrived = bool(bill.told) or completion not in lost_ms
        hit = not arrived or any(b.turn == origin.address and bill.at_ms <= b.at_ms for b in blows)
        if any((i := accepted.get((t.delegation, t.phase))) and i.holds(t) for t in bill.told):
            fate = "dead_end"
        else:
            gone.append(bill)
            when = _discarded_ms(trial, origin) if arrived else lost_ms[completion]
            if any(b.at_ms <= when and b.delegation in (None, bill.delegation) for b in blows):
                fate = "charged"
                direct += bill.tokens if hit else 0
        if origin.address in (ended or ()) or (fate != "dead_end" and origin.address[:4] in goes):
            timed_out[hit] += bill.tokens
        tokens[fate] += bill.tokens
    last = [b.told[-1] for b in gone if b.told]
    read = {file: t.order for t in turns for file in t.reads}
    saved = {t.completion for t in last if any(read.get(file, -1) > t.order for file in t.written)}
    work = Work(
        billed=sum(tokens.values()),
        live=tokens["live"],
        dead_end=tokens["dead_end"],
        charged=tokens["charged"],
        spontaneous=tokens["spontaneous"],
        destroyed_lenient=sum(b.tokens for b in gone if not b.told or b.told[-1].completion not in saved),
        turns_destroyed=len(gone),
        writes_destroyed=sum(len(t.writes) for t in last),
        direct=direct,
        timed_out_direct=None if ended is None else timed_out[True],
        timed_out_reaction=None if ended is None else timed_out[False],
    )
    conserve(work, trial)
    return work


def conserve(work: Work, trial: SealedTrial) -> None:
    """Every billed token has exactly one fate. Raises HarnessBug otherwise."""
    owed = sum(_tokens(e.data) for e in trial.truth if _to_an_agent(e))
    parts = work.live + work.dead_end + work.charged + work.spontaneous
    if not owed == work.billed == parts:
        raise HarnessBug(f"trial {trial.record.id}: {owed} tokens billed, {work.billed} entered, {parts} accounted for")


# --- what survived ------------------------------------------------------------------------------------------------


def _live(turns: Sequence[Turn], accepted: Sequence[Instance]) -> set[int]:
    """Orders of the turns that the accepted state rests on."""
    wanted = {file for i in accepted for file in i.files.items()}
    stack = [t for i in accepted for t in _roots(turns, i, wanted)]
    live: set[int] = set()
    while stack:
        turn = stack.pop()
        if turn.order not in live:
            live.add(turn.order)
            stack += _sources(turns, turn)
    return live


def _roots(turns: Sequence[Turn], instance: Instance, wanted: set[File]) -> Iterator[Turn]:
    """The turns that the acceptance of a phase rests on by itself: its last word, its last passing run of each check
    (all runs where nothing was written: there the runs are the work), its reads of accepted files, and whoever last
    wrote what was accepted."""
    past = [t for t in turns if t.order <= instance.order]
    own = [t for t in past if instance.holds(t)]
    idle = not any(t.writes for t in own)
    yield from [t for t in own if t.done][-1:]
    yield from {check: t for t in own for check, passed in t.checks if passed}.values()
    yield from (t for t in own if (idle and t.checks) or t.reads & wanted)
    for file in instance.files.items():
        yield from [t for t in past if t.delegation == instance.delegation and file in t.written][-1:]


def _sources(turns: Sequence[Turn], turn: Turn) -> Iterator[Turn]:
    """The turns that a live turn rests on; only its writes have sources.

    A file outlives the process that wrote it, what was read or tested does not: hence an edit's sources are writes of
    the same attempt, and reads and failing checks of the same attempt in the same process.
    """
    earlier = [t for t in turns if t.order < turn.order]
    near = [t for t in earlier if (t.delegation, t.attempt) == (turn.delegation, turn.attempt)]
    for path, _, mode in turn.writes:
        if mode == "edit":
            touched = [t for t in near if t.touches(path, reading=t.epoch == turn.epoch)][-1:]
        else:
            touched = [t for t in near if t.address[:4] == turn.address[:4] and any(path == p for p, _ in t.reads)][-1:]
        yield from touched
        for reader in (*touched, turn):  # what was read there entered this file, so whoever wrote that did so, too
            for file in (f for f in reader.reads if f[0] == path):
                yield from [t for t in earlier if t.order < reader.order and file in t.written][-1:]
    if any(mode == "edit" for _, _, mode in turn.writes):  # a repair answers the failure that it saw
        yield from [t for t in near if t.epoch == turn.epoch and not all(passed for _, passed in t.checks)][-1:]


# --- what was billed, and what became of the rest -----------------------------------------------------------------


def _to_an_agent(event: Event) -> bool:
    """Completions that a service under test bought are effects, not work. A request that names its delegation is an
    agent's, whatever an arm wrote beside it: tokens must not vanish by a label."""
    metadata = event.data.get("metadata") or {}
    return event.kind == "billed" and ("ref" not in metadata or "delegation" in metadata)


def _tokens(data: dict[str, Json]) -> int:
    return int(data["prompt_tokens"]) + int(data["completion_tokens"])


def _bills(truth: Sequence[Event], turns: Sequence[Turn]) -> dict[str, Bill]:
    """The agents' bills by completion, in order."""
    told: dict[str, tuple[Turn, ...]] = {}
    for t in turns:
        if t.completion is not None:
            told[t.completion] = (*told.get(t.completion, ()), t)
    bills = {}
    for e in filter(_to_an_agent, truth):
        where = next(w for w in (e.data.get("metadata") or {}, e.data["site"]) if "delegation" in w)
        names = told.get(e.data["completion"], ())
        bills[e.data["completion"]] = Bill(e.at_ms, where["delegation"], where["phase"], _tokens(e.data), names)
    return bills


def unbilled(trial: SealedTrial) -> int:
    """Turns whose answer no provider ever billed: an arm that plays the model itself, and does work for nothing."""
    billed = {e.data["completion"] for e in trial.truth if _to_an_agent(e)}
    return sum(turn.completion not in billed for turn in turns_of(trial.trace))


def _origin(trace: Sequence[Event], bill: Bill) -> Origin:
    if bill.told:
        turn = bill.told[-1]
        return Origin(order=turn.order, at_ms=turn.at_ms, address=turn.address)
    asked = [(n, e) for n, e in enumerate(trace) if e.kind == "call" and e.data["call"] == "model"]
    asked = [(n, e) for n, e in asked if _address(e)[:2] == (bill.delegation, bill.phase)]
    for order, e in [(n, e) for n, e in asked if e.at_ms <= bill.at_ms][-1:] or asked[:1]:
        return Origin(order=order, at_ms=bill.at_ms, address=_address(e))
    return Origin(order=-1, at_ms=bill.at_ms, address=(bill.delegation, bill.phase, 0, 0, -1))


def killed(trace: Sequence[Event]) -> set[Address] | None:
    """The turns of which an arm ended a call by the clock: it let go of one that was under way, or called it timed out.
    What came to its end because the trial was over is nobody's kill.

    A kill discards what its own turn was to bring, even where the go at the phase was accepted in the end, and the
    other turns of a go that was not. None where the recorder did not see yet what an arm let go of.
    """
    if recorder(trace) < ABANDONED_SINCE:
        return None
    calls, found = dict[str, Event](), set[Address]()
    for e in trace:
        if e.kind == "call":
            calls[e.data["call_id"]] = e
        elif e.kind == "limit":
            break
        elif e.kind == "abandoned" or (e.kind == "outcome" and e.data.get("verdict") == Verdict.TIMED_OUT):
            call = calls.get(e.data["call_id"])  # an arm may have made one up
            if call is not None:
                found.add(_address(call))
    return found


def _address(call: Event) -> Address:
    site = call.data["site"]
    return site["delegation"], site["phase"], call.data["attempt"], call.epoch, call.data.get("turn", -1)


def _blows(trial: SealedTrial) -> list[Blow]:
    """The faults that fired, with what each of them struck."""
    calls = {e.data["call_id"]: e for e in trial.trace if e.kind == "call"}
    blows = []
    for e in trial.truth:
        if e.kind == "fault" and e.data["state"] == "fired":
            call = calls.get(e.data.get("call_id"))
            turn = _address(call) if call is not None else None
            struck = e.data.get("delegation") or (turn and turn[0])
            blows.append(Blow(e.at_ms, None if e.data.get("fate") in SHARED else struck, turn))
    return blows


def _discarded_ms(trial: SealedTrial, origin: Origin) -> float:
    """When a completion was given up: its process died or was replaced, or its attempt ended or was replaced; infinity
    if it just never came to anything."""
    delegation, _, _, epoch, _ = origin.address
    later = [e for e in trial.trace[origin.order + 1 :] if e.at_ms >= origin.at_ms]
    ends = ("attempt", "attempt_end", "delegation_end")
    moments = [e.at_ms for e in later if e.kind in ends and e.data["delegation"] == delegation]
    mine = hosts(trial.trace)
    moments += [e.at_ms for e in later if e.kind == "epoch" and e.epoch > epoch and mine[e.epoch] == mine.get(epoch)]
    moments += [e.at_ms for e in trial.truth if e.kind == "exit" and e.data.get("epoch") == epoch]
    return min((ms for ms in moments if ms >= origin.at_ms), default=math.inf)
