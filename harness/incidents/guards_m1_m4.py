"""The guards of the progress breaker and of the budget lattice, each with its mutation."""

from __future__ import annotations

from collections.abc import Sequence

from arms.mesh.progress import Progress, Round
from arms.mesh.sessions import Evidence
from harness.core.types import DelegationOutcome, Verdict
from harness.incidents.play import Guard


def _never_repeats(history: Sequence[Evidence], call: str) -> str | None:
    return None


def _same_check_fails(before: Sequence[Round], now: Round) -> Progress:
    """A fingerprint over the names of the failing checks: equal as long as the same check fails."""

    def names(one: Round) -> frozenset[str]:
        return frozenset(check for check, ids in one.failing.items() if ids)

    alike = any(names(past) == names(now) for past in before)
    return Progress(kind="stuck" if alike else "unknown", because="by name", evidence=tuple(sorted(names(now))))


def _one_fatal_end(what: str, outcome: DelegationOutcome, progress: Progress, rounds: int) -> DelegationOutcome:
    """Whatever stopped a delegation, it is told as one and the same end."""
    if what == "end" and outcome.status == "failed":
        return outcome
    return DelegationOutcome(status="stopped", code="stopped", because="stopped", verdict=Verdict.STALLED)


GUARDS: tuple[Guard, ...] = (
    Guard(
        name="repeat_trip",
        primitive="M1",
        target="arms.mesh.m1_progress:repeats",
        reverted=_never_repeats,
        incidents=("I01",),
        about="the fourth identical call with identical results is refused, however well the three before went",
    ),
    Guard(
        name="moving_evidence",
        primitive="M1",
        target="arms.mesh.rounds:moved",
        reverted=_same_check_fails,
        incidents=("I02",),
        about="rounds are told apart by what fails in them, never by the name of the check that fails",
    ),
    Guard(
        name="distinct_verdicts",
        primitive="M4",
        target="arms.mesh.rounds:told_apart",
        reverted=_one_fatal_end,
        incidents=("I20",),
        about="a stall, an exhausted budget and a lost lease end a delegation with verdicts of their own",
    ),
)
