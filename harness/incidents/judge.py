"""Judging a replayed field scenario: what materialised against what was intended, and the decisions against reference.

Apart from the stage, so that nothing that plays a scenario can read how it will be judged.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Literal

from msgspec import Struct

from harness.incidents.field import Scenario
from harness.incidents.stage import Replay

Stall = Literal["in-window", "early", "late", "missed", "none", "false-stop"]
"""none: there is no stall and nothing was stopped."""


class Judged(Struct, frozen=True, kw_only=True):
    """A scenario with one arm. excess, missing: effects too many and too few; decisions_right of decisions: calls
    decided as the reference does or equally well. blame None: the report blames nobody."""

    id: str
    excess: int
    missing: int
    run: str
    run_wanted: str
    stall: Stall
    decisions: int
    decisions_right: int
    wrong: dict[str, str]
    blame: bool | None
    arm_error: str

    @property
    def fold_right(self) -> bool:
        return not self.excess and not self.missing

    @property
    def run_right(self) -> bool:
        return self.run == self.run_wanted

    @property
    def all_decided(self) -> bool:
        """Right, and every single call decided as the reference does."""
        return self.right and self.decisions_right == self.decisions and self.blame is not False

    @property
    def right(self) -> bool:
        """Both the fold of the effects and the verdict of the run, and no stop out of its window."""
        return self.fold_right and self.run_right and self.stall in ("in-window", "none") and not self.arm_error


def judge(scenario: Scenario, replay: Replay) -> Judged:
    """Pure: the same replay is always judged the same."""
    truth = scenario.truth
    intended, got = Counter(truth.intended), Counter(replay.effects)
    stall = _stall(scenario, replay)
    wrong = {}
    for call in scenario.calls():
        wanted = truth.correct.get(call.id, "executed")
        said = replay.decisions.get(call.id, "not-reached")
        fine = {_plain(wanted), *(_plain(other) for other in truth.also.get(call.id, ()))}
        stopped = said == "not-reached" and "refused-as-stalled" in fine and stall == "in-window"  # nothing is issued
        if _plain(said) not in fine and not stopped:
            wrong[call.id] = f"{said}, wanted {wanted}"
    total = sum(1 for _ in scenario.calls())
    return Judged(
        id=scenario.id,
        excess=(got - intended).total(),
        missing=(intended - got).total(),
        run=replay.verdict,
        run_wanted=truth.run,
        stall=stall,
        decisions=total,
        decisions_right=total - len(wrong),
        wrong=wrong,
        blame=_blame(truth.blame, replay) if truth.blame else None,
        arm_error=replay.arm_error,
    )


def _plain(decision: str) -> str:
    """The decision in the words of the format, which has one for every refusal by a rule: a fence is such a rule."""
    if decision.startswith("routed"):
        return "routed"
    return "rejected-by-gate" if decision == "fenced" else decision


def _stall(scenario: Scenario, replay: Replay) -> Stall:
    order = [call.id for call in scenario.calls()]
    stopped = [i for i, id in enumerate(order) if replay.decisions.get(id) == "refused-as-stalled"]
    truth = scenario.truth
    if not truth.stall_from:
        return "false-stop" if stopped else "none"
    first, last = order.index(truth.stall_from), order.index(truth.detect_by) if truth.detect_by else len(order)
    if not stopped:
        return "missed" if truth.detect_by else "none"
    return "early" if stopped[0] < first else "late" if stopped[0] > last else "in-window"


def _blame(wanted: str, replay: Replay) -> bool:
    """Whether a word of the party that the arm named stands in the report's own words."""
    words = set(re.findall(r"\w{4,}", wanted.lower()))
    named = [str(note.data["party"]).lower() for note in replay.notes if note.data.get("party")]
    return any(words & set(re.findall(r"\w{4,}", name)) for name in named)
