"""What the arm said: how often each verdict was given, and what became of effects in doubt."""

from __future__ import annotations

from collections.abc import Callable

from harness.core.records import Metric, NotApplicable, ScoredTrial
from harness.core.types import Verdict


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


def _in_doubt(scored: ScoredTrial) -> tuple[int, int]:
    """Effects reserved but not recorded that were met again: how many, and how many of them were settled.

    The arm notes each of them (kind `in-doubt`, with its `resolution`); without such notes its verdicts stand in, which
    leaves out those that turned out not to have happened.
    """
    noted = [
        event.data.get("resolution", "")
        for event in scored.trial.trace
        if event.kind == "note" and event.data.get("kind") == "in-doubt"
    ]
    if noted:
        return len(noted), sum(resolution in (Verdict.RECONCILED, Verdict.EXECUTED) for resolution in noted)
    settled = scored.verdicts.get(Verdict.RECONCILED.value, 0)
    return settled + scored.verdicts.get(Verdict.AWAITING_WAIVER.value, 0), settled


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
    about="effects in doubt that were settled by asking the boundary / effects in doubt; the rest await a waiver",
    source="ledger protocol: probe, then reconcile or execute, never guess",
    of=_resolved,
)
