"""What the truth says about the evidence that an arm had: loops of the agent, and answers that a fault had turned.

The arm sees neither; joined with what it let through, they say what a primitive bought.
"""

from __future__ import annotations

from harness.core.records import Metric, NotApplicable, ScoredTrial
from harness.core.types import Verdict


def _tokens_in_loops(scored: ScoredTrial) -> float:
    billed = (e.data for e in scored.trial.truth if e.kind == "billed" and e.data.get("drifting"))
    return float(sum(data["prompt_tokens"] + data["completion_tokens"] for data in billed))


TOKENS_IN_LOOPS = Metric(
    name="tokens_in_loops",
    unit="tokens",
    better="lower",
    about="tokens billed for turns in which the agent went round in a planted loop",
    source="the paper's loop of 54 successful calls: what a session without progress costs until somebody ends it",
    of=_tokens_in_loops,
)


def _flaky_answers_believed(scored: ScoredTrial) -> float | NotApplicable:
    turned = {e.data["call_id"] for e in scored.trial.truth if e.kind == "suffered" and e.data.get("what") == "flipped"}
    if not turned:
        return NotApplicable("no check's answer was turned")
    outcomes = (e.data for e in scored.trial.trace if e.kind == "outcome" and e.data["call_id"] in turned)
    return float(sum(d["result"] == "ok" and d["verdict"] == Verdict.EXECUTED for d in outcomes))


FLAKY_ANSWERS_BELIEVED = Metric(
    name="flaky_answers_believed",
    unit="check answers",
    better="lower",
    about="answers of checks that a fault had turned and that were handed on as if nothing were the matter",
    source="evidence adequacy: deterministic under identical conditions, or no input to any decision",
    of=_flaky_answers_believed,
)
