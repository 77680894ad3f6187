"""Gate on the order of a delegation's phases: nothing is accepted out of turn, or without having been staged."""

from __future__ import annotations

from arms.mesh.gates.base import ALLOW, Gate, Ruling, reject
from arms.mesh.gates.view import View
from harness.core.types import Commit

PHASE_ORDER = Gate(
    name="phase_order", about="Phases are accepted in declared order, each staged first.", module=__name__,
    crossings=("commit",),
)  # fmt: skip


def phase_order(call: Commit, view: View) -> Ruling:
    """Publish follows stage of the same phase in the same attempt; a phase follows the one before it. After a restart
    the first accepted phase is not known, so the first commit seen is taken as it comes."""
    phase, phases = call.site.phase, view.phases
    if not phases:
        return ALLOW
    if phase not in phases:
        return reject(f"{phase} is no phase of this delegation", f"its phases are: {', '.join(phases)}")
    if call.step == "publish" and view.staged != phase:
        return reject(f"{phase} was not staged in this attempt", "stage it first")
    due = expected(view)
    if due is not None and phase != due:
        return reject(f"{phase} is out of turn", f"the next phase is {due}" if due else "every phase is accepted")
    return ALLOW


def expected(view: View) -> str | None:
    """The phase whose turn it is, "" after the last one, None where that is not known."""
    if not view.accepted:
        return view.phases[0] if view.whole else None
    following = view.phases.index(view.accepted[-1]) + 1
    return view.phases[following] if following < len(view.phases) else ""
