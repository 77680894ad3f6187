"""What an arm's durable store holds when a trial is over, as the harness counted it.

Bytes of values in the arm's tables, ledger and all else that it keeps; an arm that keeps something elsewhere is not
seen doing so.
"""

from __future__ import annotations

from harness.core.records import Metric, NotApplicable, ScoredTrial

_PAPER = "ledger storage of the paper's inventory"
UNTOLD = NotApplicable("the trial was recorded before what stores hold was, or left none")


def _stored(scored: ScoredTrial) -> dict | None:
    return next((e.data for e in reversed(scored.trial.truth) if e.kind == "stored"), None)


def _bytes(scored: ScoredTrial) -> float | NotApplicable:
    stored = _stored(scored)
    return UNTOLD if stored is None else float(sum(held for _, held in stored["tables"].values()))


def _per_tenant(scored: ScoredTrial) -> float | NotApplicable:
    stored = _stored(scored)
    if stored is None:
        return UNTOLD
    tenants = stored["tenants"].values()
    return sum(tenants) / len(tenants) if tenants else NotApplicable("the arm keeps nothing by tenant")


def _per_1000_effects(scored: ScoredTrial) -> float | NotApplicable:
    held, intended = _bytes(scored), sum(f.required for f in scored.findings)
    if isinstance(held, NotApplicable):
        return held
    return 1000 * held / intended if intended else NotApplicable("the workload intends no effect")


LEDGER_BYTES = Metric(
    name="ledger_bytes",
    unit="bytes",
    better="lower",
    about="bytes of values in all tables of the arm at the end of a trial, indexes and free pages aside",
    source=_PAPER,
    of=_bytes,
)
LEDGER_BYTES_PER_TENANT = Metric(
    name="ledger_bytes_per_tenant",
    unit="bytes per tenant",
    better="lower",
    about="bytes in those tables of the arm that name a tenant / tenants named",
    source=_PAPER,
    of=_per_tenant,
)
LEDGER_BYTES_PER_1000_EFFECTS = Metric(
    name="ledger_bytes_per_1000_effects",
    unit="bytes per 1000 intended effects",
    better="lower",
    about="ledger_bytes per 1000 intended effects at all boundaries (intended, so that duplicates do not dilute it)",
    source=_PAPER,
    of=_per_1000_effects,
)
