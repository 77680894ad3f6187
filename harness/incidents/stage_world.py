"""The world of the stage: it does what is listed when a call reaches it, and answers as listed.

Apart from the stage, because what happens outside must not depend on who is asked to decide.
"""

from __future__ import annotations

import json
import re
from collections import Counter

from arms.mesh.control.kinds import Kind, kind_of
from harness.core.clock import Clock
from harness.core.types import Err, Ok, Outcome
from harness.incidents.field import TICK_MS, Listed

CALL_MS = 100.0
"""A call takes this long where the scenario does not say."""

GIVE_UP_MS = 2 * TICK_MS
"""A caller whose call times out gave up after this long; what was sent may still arrive."""


class ListedWorld:
    """Does what is listed when a call reaches it. Drafts of a contained arm are staged and reach the accepted state
    when the attempt is published; to draft once more what was drafted last, or what is accepted already, changes
    nothing there."""

    def __init__(self, clock: Clock, contained: bool) -> None:
        self._clock, self._contained = clock, contained
        self.held: Counter[str] = Counter()
        self._landing: list[tuple[float, tuple[str, ...]]] = []
        self._staged: dict[int, Counter[str]] = {}
        self._drafted_last = ""
        self.published: Counter[str] = Counter()
        self.reached: set[str] = set()

    def settle(self) -> None:
        """What was under way until now has arrived."""
        due = [item for item in self._landing if item[0] <= self._clock.now_ms()]
        self._landing = [item for item in self._landing if item not in due]
        for _, effects in due:
            self.held.update(effects)

    def land_all(self) -> None:
        for _, effects in self._landing:
            self.held.update(effects)
        self._landing.clear()

    async def answer(self, listed: Listed, attempt: int) -> Outcome:
        """Do what is listed and answer as listed."""
        self.reached.add(listed.id)
        takes_ms = CALL_MS if listed.ticks is None else listed.ticks * TICK_MS
        effects = listed.effects
        if listed.truncated is not None and listed.status != "ok":
            effects = listed.truncated
        if listed.status in ("timeout", "lost"):
            self._landing.append((self._clock.now_ms() + (takes_ms if listed.late else 0.0), effects))
            await self._clock.sleep_ms(min(takes_ms, GIVE_UP_MS) if listed.late else takes_ms)
            self.settle()
            return Err(code="timeout" if listed.status == "timeout" else "connection-reset", definite=False)
        await self._clock.sleep_ms(takes_ms)
        if self._contained and kind_of(listed.tool) is Kind.DRAFT:
            said = json.dumps([listed.tool, listed.args], sort_keys=True)
            if listed.status in ("ok", "cut") and said != self._drafted_last:
                self._staged.setdefault(attempt, Counter()).update(effects)
                self._drafted_last = said
        else:
            self.held.update(effects)
            self._drafted_last = "" if effects else self._drafted_last
        return _answered(listed)

    def publish(self, attempt: int) -> None:
        self.published |= self._staged.pop(attempt, Counter())

    def drafted(self, attempt: int) -> list[str]:
        return sorted(self._staged.get(attempt, Counter()))

    def holds(self, listed: Listed) -> int:
        """How often all that a call brings about is there: what a boundary's own read interface would say."""
        self.settle()
        there = Counter(self.published)
        for staged in self._staged.values():
            there |= staged
        return min((self.held[e] + there[e] for e in listed.effects), default=0)

    def effects(self) -> dict[str, int]:
        total = self.held + self.published
        return {key: total[key] for key in sorted(total)}


_HTTP = re.compile(r"http[ -]?([1-5][0-9][0-9])", re.IGNORECASE)
_UNSENT = re.compile(r"ECONNREFUSED|connection refused|not sent|could not resolve|ENOTFOUND", re.IGNORECASE)


def _answered(listed: Listed) -> Outcome:
    """The answer as an adapter of the tool would hand it on: errors by their HTTP status or system error, where the
    text has one."""
    if listed.status in ("ok", "cut"):
        return Ok(value=listed.result)
    text = str(listed.result)
    if listed.status == "partial":
        return Err(code="interrupted", definite=False, detail=text)
    if _UNSENT.search(text):
        return Err(code="connection-refused", definite=True, detail=text)
    http = _HTTP.search(text)
    if http is None:
        return Err(code="error", definite=False, detail=text)
    return Err(code=f"http-{http[1]}", definite=http[1].startswith("4") or http[1] in ("503", "529"), detail=text)
