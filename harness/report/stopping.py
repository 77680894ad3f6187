"""When a run may end: the registered rule, looked at after every pair in registered order.

Evidence that may be looked at any time allows a run to end as soon as the question is answered, and nothing later may
change where that was: the pair is a function of the rows before it, whatever other workers ran beyond.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from msgspec import Struct

from harness.report.decision import kill_criterion, phase_two
from harness.report.prereg import Prereg
from harness.report.prereg.form import Until
from harness.report.rows import Row
from harness.stats.kill import KillDecision

UNTIL: tuple[Until, ...] = get_args(Until)
"""all_pairs: a fixed size. kill_criterion: GO or STOP, about the control alone. full_claim: that, and the comparison is
settled too: superiority with both non-inferiority claims is shown, or one of these is refuted."""

GROWS = 2.0
"""Evidence below this says nothing about a pace."""


class Look(Struct, frozen=True, kw_only=True):
    """What is known after so many pairs. stop_at: number of pairs after which the run was allowed to end, None: not
    yet. evidence: claim -> (e-value so far, needed)."""

    pairs: int
    stop_at: int | None
    evidence: dict[str, tuple[float, float]]

    def sentence(self) -> str:
        """Where the evidence stands; once it grows, with a guess at the pair by which it is enough at this pace."""
        parts = []
        for claim, (e_value, needed) in self.evidence.items():
            guess = self._guess(e_value, needed)
            parts.append(f"{claim} {e_value:.3g}/{needed:.3g}" + (f" (pair {guess}?)" if guess else ""))
        return f"pair {self.pairs}: evidence/needed: {', '.join(parts)}"

    def _guess(self, e_value: float, needed: float) -> int | None:
        if not GROWS <= e_value < needed:
            return None
        return math.ceil(self.pairs * math.log(needed) / math.log(e_value))


def look(control: Sequence[Row], treatment: Sequence[Row], prereg: Prereg, until: Until, looked: int = 0) -> Look:
    """Look at the rows of the finished prefix, in registered order. treatment: those of the pairs that it finished
    too; empty where nothing is compared. looked: so many pairs were looked at before, and the run went on.

    Gates are not asked: whether data may be judged at all does not depend on how many there are.
    """
    kill = kill_criterion(control, prereg, ())
    evidence = {"GO": (kill.e_go, 1 / prereg.errors.go), "STOP": (kill.e_stop, 1 / prereg.errors.stop)}
    stop_at = None if until == "all_pairs" else _killed(kill, prereg)
    if until == "full_claim":
        evidence |= _claims(control, treatment, prereg)
        stop_at = stop_at and _settled(control, treatment, prereg, max(stop_at, looked + 1))
    return Look(pairs=len(control), stop_at=stop_at, evidence=evidence)


def _killed(kill: KillDecision, prereg: Prereg) -> int | None:
    """The pair at which GO or STOP was reached. GO_NARROW is no reason to end: it is a weaker answer, given where the
    other two cannot be."""
    reached = kill.e_go >= 1 / prereg.errors.go or kill.e_stop >= 1 / prereg.errors.stop
    return kill.decided_at if reached and kill.decided_at >= prereg.design.pairs_min else None


def _settled(control: Sequence[Row], treatment: Sequence[Row], prereg: Prereg, least: int) -> int | None:
    """The first number of pairs, from `least` on, at which the comparison is settled. No search may halve here: that
    the treatment met its faults can be lost again with more pairs."""
    for n in range(least, len(treatment) + 1):
        second = phase_two(control[:n], treatment[:n], prereg)
        if second["superiority"]["shown"] or second["non_inferiority"]["worse"]:
            return n
    return None


def _claims(control: Sequence[Row], treatment: Sequence[Row], prereg: Prereg) -> dict[str, tuple[float, float]]:
    n = len(treatment)
    if not n:
        return {}
    second = phase_two(control[:n], treatment, prereg)
    claims = [*second["superiority"]["claims"], *second["non_inferiority"]["claims"]]
    return {claim["name"]: (claim["e_value"], claim["needed"]) for claim in claims}


def told(pairs: int, stopped_at: int | None, seen: Look, prereg: Prereg, until: Until) -> dict[str, Any]:
    """The entry of `summary.json`: by which rule the run ended and where (`stop_at`: as recomputed from the rows).

    pairs: registered number. stopped_at: what the run itself noted, None: it has not ended or has a fixed size. seen:
    the look at the rows that everything is computed from.
    """
    limit = min(pairs, prereg.design.pairs_max)
    because = f"all {seen.pairs} of at most {limit} pairs are used"
    if seen.stop_at is not None:
        because = f"{until} was settled after pair {seen.stop_at} of at most {limit}"
    elif seen.pairs < limit:
        because = f"{seen.pairs} of {limit} pairs are there"
    places = {"stop_at": seen.stop_at, "stopped_at": stopped_at}
    return {"rule": until, "pairs_max": limit, "because": because, **{k: v for k, v in places.items() if v is not None}}


def misplaced(entry: Mapping[str, Any], pairs: int) -> list[str]:
    """Why the end of a run is not where its rule puts it, or nothing: a run that was cut where it pleased somebody may
    not be judged. pairs: that were used."""
    if entry["rule"] == "all_pairs" or "stopped_at" not in entry:
        return []
    right = entry.get("stop_at", entry["pairs_max"])
    if min(entry["stopped_at"], entry["pairs_max"]) == right == pairs:
        return []
    return [f"the run was ended after pair {entry['stopped_at']}, by its rule {entry['rule']} it ends after {right}"]
