"""What the truth says about the evidence that an arm had: loops of the agent, and answers that a fault had turned.

The arm sees neither; joined with what it let through, they say what a primitive bought, and, with runs of checks and
the models that were paid, what it cost.
"""

from __future__ import annotations

from harness.core.records import Metric, NotApplicable, ScoredTrial
from harness.core.types import Json


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
    """Judged by what was handed on and not by the verdict on it: a name for an answer does not make it right."""
    truth = scored.trial.truth
    if not any(e.kind == "suffered" and e.data.get("what") == "flipped" for e in truth):
        return NotApplicable("no check's answer was turned")
    really = {e.data["call_id"]: e.data["passed"] for e in truth if e.kind == "checked"}  # the last run of each call
    told = (e.data for e in scored.trial.trace if e.kind == "outcome" and "passed" in e.data)
    return float(sum(d["passed"] != really.get(d["call_id"], d["passed"]) for d in told))


FLAKY_ANSWERS_BELIEVED = Metric(
    name="flaky_answers_believed",
    unit="check answers",
    better="lower",
    about="answers of checks that were handed on as the opposite of what the last run of the same call came to",
    source="evidence adequacy: deterministic under identical conditions, or no input to any decision",
    of=_flaky_answers_believed,
)


CHECKS_RUN = Metric(
    name="checks_run",
    unit="check runs",
    better="lower",
    about="runs of checks that came to an end, those that the arm made by itself included",
    source="the cost of asking again: an arm that repeats checks pays in runs and not in tokens",
    of=lambda scored: float(sum(e.kind == "checked" for e in scored.trial.truth)),
)


def _tokens_on_stronger_model(scored: ScoredTrial) -> float | NotApplicable:
    """The orchestrator's own model is the one that it named outside the arm."""
    own = {e.data["model"] for e in scored.trial.trace if e.kind == "call" and "model" in e.data}
    bills = [e.data for e in scored.trial.truth if e.kind == "billed" and _to_an_agent(e.data)]
    if not own or not all("model" in data for data in bills):
        return NotApplicable("the logs do not say which model was asked for")
    return float(sum(b["prompt_tokens"] + b["completion_tokens"] for b in bills if b["model"] not in own))


def _to_an_agent(bill: dict[str, Json]) -> bool:
    """What a service under test buys for itself carries a reference and names no delegation."""
    metadata = bill.get("metadata") or {}
    return "ref" not in metadata or "delegation" in metadata


TOKENS_ON_STRONGER_MODEL = Metric(
    name="tokens_on_stronger_model",
    unit="tokens",
    better="lower",
    about="tokens billed to the agent for another model than the orchestrator's own",
    source="the arm's own escalation; not more expensive here, so shown apart",
    of=_tokens_on_stronger_model,
)
