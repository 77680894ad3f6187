"""Arms for the tests of a workload with repairs: nothing but retries, and a layer that wakes whoever it is told to."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from arms.common.defaults import MODEL_RETRY
from arms.common.retry import Retry
from harness.core.roles import Arm, ArmContext
from harness.core.seams import NextDelegate, NextTool, PassThrough
from harness.core.types import Attempt, DelegationOutcome, Node, Ok, Outcome, System, ToolCall

Points = list[list[str]]
Choose = Callable[[System, str, Points], set[str]]
ROUNDS_MAX = 3


class Waking(PassThrough):
    """Notes what a failed check reported, wakes the components that `choose` names, and tries again."""

    def __init__(self, ctx: ArmContext, choose: Choose) -> None:
        self._ctx, self._choose = ctx, choose
        self._points: dict[str, Points] = {}
        self._woken: dict[str, int] = {}

    async def on_tool(self, call: ToolCall, next: NextTool) -> Outcome:
        outcome = await next(call)
        if call.tool == "run_check" and isinstance(outcome, Ok) and "passed" in outcome.value:
            points = outcome.value.get("checkpoints", [])
            failing = outcome.value["failing"]
            self._ctx.note("answer", {"check": call.args["check"], "points": points, "failing": failing})
            self._points[call.site.delegation] = points
        return outcome

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        for _ in range(ROUNDS_MAX):
            outcome = await next(attempt)
            d = attempt.delegation
            if outcome.status == "done" or d.id not in self._ctx.system.coverage:
                return outcome
            for component in sorted(self._choose(self._ctx.system, d.id, self._points[d.id])):
                repair = self._ctx.system.repairs[component]
                number = self._woken[component] = self._woken.get(component, 0) + 1
                await next(Attempt(delegation=repair, number=number, again=True))
            attempt = replace(attempt, number=attempt.number + 1)
        return await next(attempt)


def everybody(system: System, check: str, points: Points) -> set[str]:
    """Whoever takes part in the scenario."""
    return set(system.coverage[check])


def first_missing(system: System, check: str, points: Points) -> set[str]:
    """The owners of the next steps of the ladders that broke off."""
    owners = set()
    for correlation in {point[0] for point in points}:
        seen = {(stage, node) for c, stage, node in points if c == correlation}
        ways = [(e.source, e.target) for e in system.edges if _point(e.source) in seen and _point(e.target) not in seen]
        owners |= {(source if target.kind == "event" else target).component for source, target in ways}
    return owners


_STAGES = {
    "command": "command-accepted",
    "event": "event-published",
    "subscriber": "subscriber-received",
    "state": "state-committed",
    "route": "route-read",
}


def _point(node: Node) -> tuple[str, str]:
    return _STAGES[node.kind], f"{node.component}/{node.name}"


def _arm(name: str, choose: Choose) -> Arm:
    return Arm(
        name=name,
        about="wakes, and nothing else",
        layers=lambda ctx: (Waking(ctx, choose), Retry(ctx, model=MODEL_RETRY)),
        contained=True,
    )


EVERYBODY = _arm("everybody", everybody)
FIRST_MISSING = _arm("first_missing", first_missing)
