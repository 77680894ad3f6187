"""What the arm said: how often each verdict was given, and what became of effects in doubt."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from harness.core.records import Metric, NotApplicable, ScoredTrial
from harness.core.types import Json, Verdict


def _count(verdict: Verdict) -> Callable[[ScoredTrial], float]:
    return lambda scored: float(scored.verdicts.get(verdict.value, 0))


VERDICT_COUNTS: dict[str, Metric] = {
    f"verdict_{verdict.value.replace('-', '_')}": Metric(
        name=f"verdict_{verdict.value.replace('-', '_')}",
        unit="crossings",
        better="neither",
        about=f"crossings that ended with the verdict {verdict.value!r}",
        source="distinct refusal verdicts: none may be folded into another",
        of=_count(verdict),
    )
    for verdict in Verdict
}


def notes(scored: ScoredTrial, named: str) -> Iterator[dict[str, Json]]:
    """Data of the notes of this name in the trace."""
    for event in scored.trial.trace:
        if event.kind == "note" and named in (event.data.get("note"), event.data.get("kind")):
            yield event.data


def _in_doubt(scored: ScoredTrial) -> tuple[int, int]:
    """Effects reserved but not recorded that were met again: how many, and for how many the boundary told whether they
    had happened.

    The arm notes each of them (`in-doubt`, with what the boundary `says`); without such notes its verdicts stand in,
    which leaves out those that turned out not to have happened.
    """
    answers = [data.get("says") for data in notes(scored, "in-doubt")]
    if answers:
        return len(answers), sum(answer in TOLD for answer in answers)
    settled = scored.verdicts.get(Verdict.RECONCILED.value, 0)
    return settled + scored.verdicts.get(Verdict.AWAITING_WAIVER.value, 0), settled


TOLD = ("present", "absent", "lost")
"""Answers that settle a doubt. lost: it is there, and what it returned is not to be had again."""

ANSWERS = (*TOLD, "unknown")


def _says(answer: str) -> Callable[[ScoredTrial], float]:
    return lambda scored: float(sum(data.get("says") == answer for data in notes(scored, "in-doubt")))


IN_DOUBT_BY_ANSWER: dict[str, Metric] = {
    f"in_doubt_{answer}": Metric(
        name=f"in_doubt_{answer}",
        unit="effects",
        better="neither",
        about=f"doubts that were resolved as {answer!r}, by the arm's own notes",
        source="ledger protocol: how each effect in doubt was resolved",
        of=_says(answer),
    )
    for answer in ANSWERS
}


def _waived(scored: ScoredTrial) -> float:
    """Effect calls that ended so. A delegation that ends so says it once more, of the same effect."""
    effects = {e.data["call_id"] for e in scored.trial.trace if e.kind == "call" and e.data["call"] == "effect"}
    ended = (e.data for e in scored.trial.trace if e.kind == "outcome" and e.data["call_id"] in effects)
    return float(sum(data.get("verdict") == Verdict.AWAITING_WAIVER for data in ended))


IN_DOUBT_WAIVED = Metric(
    name="in_doubt_waived",
    unit="effects",
    better="lower",
    about="effects that were left to a person, since nobody could tell whether they had happened",
    source="ledger protocol: a boundary that cannot tell is no reason to guess",
    of=_waived,
)


def _resolved(scored: ScoredTrial) -> float | NotApplicable:
    met, settled = _in_doubt(scored)
    return settled / met if met else NotApplicable("no effect was in doubt")


IN_DOUBT = Metric(
    name="in_doubt",
    unit="effects",
    better="neither",
    about="effects that were reserved and not recorded when they were met again",
    source="ledger protocol: reserve, effect, record",
    of=lambda scored: float(_in_doubt(scored)[0]),
)
IN_DOUBT_RESOLVED = Metric(
    name="in_doubt_resolved",
    unit="share of effects in doubt",
    better="higher",
    about="effects in doubt that the boundary could tell about / effects in doubt; the rest need a waiver",
    source="ledger protocol: probe, then reconcile or execute, never guess",
    of=_resolved,
)


def _foreign_receipts(scored: ScoredTrial) -> float:
    """What scoring counted. Its note has a `kind` and no `note`: those of arms always have one, whatever they hold."""
    own = (data for data in notes(scored, "score") if "note" not in data)
    return float(sum(data.get("foreign_receipts", 0) for data in own))


FOREIGN_RECEIPTS = Metric(
    name="foreign_receipts",
    unit="replies",
    better="lower",
    about="ok replies that carried the receipt of another intended effect",
    source="a suppressed effect must not be vouched for by somebody else's",
    of=_foreign_receipts,
)
