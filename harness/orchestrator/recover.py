"""Running a plan to its end, from durable state: the first start and every resume are the same code.

A delegation that was interrupted is re-entered through the arm with the number of the interrupted attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from harness.core.types import Attempt, Delegation, DelegationOutcome
from harness.orchestrator import plan
from harness.orchestrator.delegate import Env


async def run_plan(env: Env, delegations: Sequence[Delegation]) -> dict[str, str]:
    """Run every delegation that can run, independent ones side by side; id to how it ended."""
    plan.validate(delegations)
    ended = {d.id: end for d in delegations if (end := env.journal.progress(d.id).end)}
    running: dict[asyncio.Task[DelegationOutcome], Delegation] = {}
    try:
        while True:
            for d in plan.unreachable(delegations, ended):
                _end(env, ended, d, DelegationOutcome(status="failed", code="abandoned", because="a need failed"))
            for d in plan.ready(delegations, ended, {r.id for r in running.values()}):
                running[asyncio.create_task(_delegate(env, d))] = d
            if not running:
                return ended
            finished, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(finished, key=lambda t: running[t].id):
                _end(env, ended, running.pop(task), task.result())
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


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
