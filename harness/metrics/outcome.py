"""How the trial came out: success, and how deep delegations were nested."""

from __future__ import annotations

from harness.core.records import Metric, NotApplicable, ScoredTrial


def _delegation_depth(scored: ScoredTrial) -> float | NotApplicable:
    depths = [e.data["depth"] for e in scored.trial.trace if e.kind == "attempt" and "depth" in e.data]
    if not depths:
        return NotApplicable("no attempt in the trace says how deep its delegation lies")
    return float(max(depths))


def _within_budget(scored: ScoredTrial) -> float | NotApplicable:
    """The budget is the registered one, the same for every arm, and comes with the judgement: a trial that ran does not
    know it, so that no arm can aim at it. It is far below the limit at which a trial is broken off."""
    if not scored.budget_tokens:
        return NotApplicable("no token budget is registered for a trial")
    return float(scored.success and scored.work.billed <= scored.budget_tokens)


def _real_s(scored: ScoredTrial) -> float | NotApplicable:
    record = scored.trial.record
    if record.world == "sim":
        return NotApplicable("time is virtual in the sim world")
    return record.real_s


TASK_SUCCESS_AT_BUDGET = Metric(
    name="task_success_at_budget",
    unit="share of trials",
    better="higher",
    about="1 when task_success is 1 and the tokens billed are within the registered budget of a trial, else 0",
    source="task success at fixed budget of the paper's inventory",
    of=_within_budget,
)
TRIAL_NOMINAL_MS = Metric(
    name="trial_nominal_ms",
    unit="ms",
    better="lower",
    about="nominal time from the begin of a trial to its end",
    source="wall-time cost of a trial, on the time scale that all arms share",
    of=lambda scored: scored.trial.record.duration_ms,
)
TRIAL_REAL_S = Metric(
    name="trial_real_s",
    unit="s",
    better="lower",
    about="real time that a trial took, its set-up and its burial included",
    source="wall-time cost of a trial",
    of=_real_s,
)
TASK_SUCCESS = Metric(
    name="task_success",
    unit="share of trials",
    better="higher",
    about="1 when every delegation is done and the accepted state is the wanted one, else 0",
    source="guard of non-inferiority",
    of=lambda scored: float(scored.success),
)
DELEGATION_DEPTH = Metric(
    name="delegation_depth",
    unit="levels",
    better="neither",
    about="deepest delegation that was attempted; 1 is a child of the run",
    source="delegation depth distribution of the paper's inventory",
    of=_delegation_depth,
)
