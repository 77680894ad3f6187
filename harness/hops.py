"""What became of every hop of a trial: what was handed up, what was wrong with it, and whether the parent could use it.

Why from the trace and not at the hop: whether a result is of use is known only when the parent has used it, so nothing
can be written down once and left alone. Until then it is not known, which is another thing than known to be bad.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from harness.core.records import Event, Hop, HopAttempt, Oracle, SealedTrial
from harness.core.types import Json
from harness.turns import done_delegations


def planned(trial: SealedTrial, oracle: Oracle) -> tuple[Hop, ...]:
    """The hops of a trial's plan; none where its workload hands nothing up."""
    hops = getattr(oracle, "hops", None)
    return tuple(hops(trial.record.seed, trial.record.variation)) if hops else ()


def attempts_of(trial: SealedTrial, oracle: Oracle) -> tuple[HopAttempt, ...]:
    """The attempts of every hop that was dispatched, by hop in the order of the plan. Pure.

    An attempt is a return that was written. A hop that was dispatched and never returned anything has one attempt
    without a return. A return that a restarted orchestrator writes once more, to the letter, is no other one.
    """
    hops = planned(trial, oracle)
    if not hops:
        return ()
    seen = _observed(trial, hops)
    done = done_delegations(trial.trace)
    found: list[HopAttempt] = []
    for hop in hops:
        if hop.delegation not in seen.dispatched:
            continue
        returns = seen.returns[hop.delegation]
        ended_badly = hop.delegation in seen.ended and hop.delegation not in done
        for number, one in enumerate(returns or [None], start=1):
            last = number >= len(returns)
            found.append(_judged(trial, oracle, hop, number, one, last=last, abandoned=last and ended_badly))
    return tuple(found)


class _Return(Struct):
    """A return as it was written. used: whether the parent could write from it, None as long as it did not try."""

    text: str
    epoch: int
    flagged: bool | None = None
    used: bool | None = None


class _Observed(Struct):
    dispatched: set[str]
    ended: set[str]
    returns: dict[str, list[_Return]]


def _observed(trial: SealedTrial, hops: tuple[Hop, ...]) -> _Observed:
    """One walk over the trace: returns, what verifiers said of them, and what parents did with the last of each.

    What a verifier came to is taken from the truth: a fault may turn its answer, and an arm may answer without it.
    """
    came_to = {e.data["call_id"]: e.data["passed"] for e in trial.truth if e.kind == "checked"}
    written = {
        _turn(e, e.data["delegation"], e.data["phase"]): e.data["writes"] for e in trial.trace if e.kind == "turn"
    }
    by_path = {hop.returns: hop for hop in hops}
    verified = {(hop.delegation, hop.verifier): hop for hop in hops if hop.verifier}
    below: dict[str, list[Hop]] = {}
    for hop in hops:
        below.setdefault(hop.consumed_with, []).append(hop)
    seen = _Observed(set(), set(), {hop.delegation: [] for hop in hops})
    repaired: dict[str, set[str]] = {}
    for event, args, told in _settled(trial):
        data = event.data
        if event.kind == "attempt":
            seen.dispatched.add(data["delegation"])
        elif event.kind == "delegation_end":
            seen.ended.add(data["delegation"])
        elif told.get("result") != "ok":
            continue
        elif data["tool"] == "write" and "content" in args:
            path, text = str(args.get("path")), str(args["content"])
            if path in by_path:
                really = text if _left(written, event, path, text) else ""
                _add(seen.returns[by_path[path].delegation], really, event.epoch)
            if any(path == hop.repairs for hop in hops):
                repaired.setdefault(path, set()).update(_names(text))
            for child in below.get(path, ()):
                for one in seen.returns[child.delegation][-1:]:
                    one.used = one.used is not False and child.delegation not in repaired.get(child.repairs, ())
        elif data["tool"] == "run_check" and data["call_id"] in came_to:
            checked = verified.get((data["site"]["delegation"], str(args.get("check"))))
            for one in seen.returns[checked.delegation][-1:] if checked else ():
                one.flagged = not came_to[data["call_id"]]  # a check may also fail of the effects that it has
    return seen


def _settled(trial: SealedTrial) -> Iterator[tuple[Event, dict[str, Json], dict[str, Json]]]:
    """Dispatches, ends, and tool calls with their arguments and what came back, as they were asked."""
    outcomes = {e.data["call_id"]: e.data for e in trial.trace if e.kind == "outcome"}
    for event in trial.trace:
        if event.kind in ("attempt", "delegation_end"):
            yield event, {}, {}
        elif event.kind == "call" and event.data.get("call") == "tool":
            yield event, event.data.get("args", {}), outcomes.get(event.data["call_id"], {})


Turn = tuple[str, str, int, int, int]  # delegation, phase, attempt, epoch, turn


def _turn(event: Event, delegation: str, phase: str) -> Turn:
    return delegation, phase, event.data.get("attempt", 1), event.epoch, event.data.get("turn", -1)


def _left(written: Mapping[Turn, Sequence[Sequence[str]]], call: Event, path: str, text: str) -> bool:
    """Whether a file was left with this text, as the orchestrator saw it at the end of the turn. Of a turn that never
    ended nobody knows better."""
    site = call.data["site"]
    writes = written.get(_turn(call, site["delegation"], site.get("phase", "")))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return writes is None or any(one[:2] == [path, digest] for one in map(list, writes))


def _add(returns: list[_Return], text: str, epoch: int) -> None:
    if returns and returns[-1].text == text and returns[-1].epoch < epoch:
        returns[-1].epoch = epoch
    else:
        returns.append(_Return(text, epoch))


def _names(text: str) -> list[str]:
    try:
        found: Any = json.loads(text)
        return [str(name) for name in found["repaired"]]
    except (ValueError, KeyError, TypeError):  # an agent may write anything
        return []


def _judged(
    trial: SealedTrial, oracle: Any, hop: Hop, number: int, one: _Return | None, *, last: bool, abandoned: bool
) -> HopAttempt:
    """The finding about one attempt. one: None where nothing was returned."""
    ends = [*(["abandoned"] if abandoned else []), *(["retried"] if not last else [])]
    if one is None:
        return HopAttempt(
            hop=hop.delegation,
            number=number,
            schema_valid=False,
            brief_satisfied=False,
            failures=("nothing returned",),
            states=("dispatched", *ends),
        )
    failures = tuple(oracle.return_failures(trial.record.seed, hop.delegation, one.text))
    used = [] if one.used is None else ["usable" if one.used else "repaired"]
    return HopAttempt(
        hop=hop.delegation,
        number=number,
        schema_valid=not any(failure.startswith("schema:") for failure in failures),
        brief_satisfied=not failures,
        usable_downstream=one.used,
        failures=failures,
        flagged=one.flagged,
        states=("dispatched", "returned", "invalid" if failures else "satisfied", *used, *ends),
    )
