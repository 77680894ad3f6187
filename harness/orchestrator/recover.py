"""Running a plan to its end, from durable state: the first start and every resume are the same code.

A delegation that was interrupted is re-entered through the arm with the number of the interrupted attempt. Where
several orchestrators share a plan, each runs its own delegations and learns from the journal what the others ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from msgspec import Struct

from harness.core.types import Attempt, Delegation, DelegationOutcome
from harness.orchestrator import plan
from harness.orchestrator.delegate import Env


class Share(Struct, frozen=True):
    """The part of a plan that is this orchestrator's, by ids. pause: returns when it is time to look again at what the
    others ended. side_by_side: how many delegations it runs at a time."""

    mine: frozenset[str]
    pause: Callable[[], Awaitable[None]]
    side_by_side: int


async def run_plan(env: Env, delegations: Sequence[Delegation], share: Share) -> dict[str, str]:
    """Run every delegation of this share that can run, independent ones side by side; id to how it ended."""
    plan.validate(delegations)
    mine = share.mine
    ended = _ends(env, delegations)
    running: dict[asyncio.Task[DelegationOutcome], Delegation] = {}
    try:
        while True:
            for d in plan.unreachable(delegations, ended):
                if d.id in mine:
                    _end(env, ended, d, DelegationOutcome(status="failed", code="abandoned", because="a need failed"))
            for d in plan.ready(delegations, ended, {r.id for r in running.values()}):
                if d.id in mine and len(running) < share.side_by_side:
                    running[asyncio.create_task(_delegate(env, d))] = d
            if mine <= ended.keys():
                return ended
            elsewhere = any(d.id not in mine and d.id not in ended for d in delegations)
            waiting = len(running) < len(mine - ended.keys())
            await _wait(running, share.pause if elsewhere and waiting else None)
            for task in sorted((t for t in running if t.done()), key=lambda t: running[t].id):
                _end(env, ended, running.pop(task), task.result())
            ended |= _ends(env, [d for d in delegations if d.id not in mine])
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _ends(env: Env, delegations: Sequence[Delegation]) -> dict[str, str]:
    return {d.id: end for d in delegations if (end := env.journal.progress(d.id).end)}


async def _wait(running: Collection[asyncio.Task[Any]], pause: Callable[[], Awaitable[None]] | None) -> None:
    """Until one of these is done or, where ours may wait for somebody else's, a pause is over."""
    resting = [] if pause is None else [asyncio.ensure_future(pause())]
    try:
        await asyncio.wait([*running, *resting], return_when=asyncio.FIRST_COMPLETED)
        for rest in (r for r in resting if r.done()):
            rest.result()
    finally:
        for rest in resting:
            rest.cancel()


async def _delegate(env: Env, d: Delegation) -> DelegationOutcome:
    seen = env.journal.progress(d.id)
    resumed = seen.open_attempt is not None
    number = seen.open_attempt if seen.open_attempt is not None else seen.attempts + 1
    return await env.crossings.delegate(Attempt(delegation=d, number=number, resumed=resumed, notes=seen.notes))


def _end(env: Env, ended: dict[str, str], d: Delegation, outcome: DelegationOutcome) -> None:
    env.journal.end(d.id, outcome.status)
    ended[d.id] = outcome.status
    data = {"delegation": d.id, "status": outcome.status, "code": outcome.code, "verdict": outcome.verdict}
    env.note("delegation_end", data)
