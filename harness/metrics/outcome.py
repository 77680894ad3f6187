"""How the trial came out: success, and how deep delegations were nested."""

from __future__ import annotations

from harness.core.records import Metric, NotApplicable, ScoredTrial


def _delegation_depth(scored: ScoredTrial) -> float | NotApplicable:
    depths = [e.data["depth"] for e in scored.trial.trace if e.kind == "attempt" and "depth" in e.data]
    if not depths:
        return NotApplicable("no attempt in the trace says how deep its delegation lies")
    return float(max(depths))


TASK_SUCCESS = Metric(
    name="task_success",
    unit="share of trials",
    better="higher",
    about="1 when every delegation is done and the accepted state is the wanted one, else 0",
    source="task success at fixed budget; guard of non-inferiority",
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
