"""The guards of M2: the decisions that keep an enforcement layer from blocking correct work, with their mutations."""

from __future__ import annotations

from arms.mesh.gates import former
from harness.incidents.play import Guard

GUARDS: tuple[Guard, ...] = (
    Guard(
        name="clamp_yielding",
        primitive="M2",
        target="arms.mesh.gates.files:yields",
        reverted=former.yields,
        incidents=("I06",),
        about="A scope that rests on a diagnosis lets a file through at the second request.",
    ),
    Guard(
        name="boot_check",
        primitive="M2",
        target="arms.mesh.m2_exoneration:objections",
        reverted=former.objections,
        incidents=("I07",),
        about="No start with a gate that rejects an artifact known to be correct.",
    ),
    Guard(
        name="seeds_by_binding",
        primitive="M2",
        target="arms.mesh.gates.seeds:seed_handlers",
        reverted=former.seed_handlers,
        incidents=("I08",),
        about="What a name is bound to decides whether a seed reaches its handlers, not how it is spelt.",
    ),
    Guard(
        name="shown_sources_citable",
        primitive="M2",
        target="arms.mesh.gates.evidence:citable",
        reverted=former.citable,
        incidents=("I09",),
        about="A quotation may stand in any source that was shown.",
    ),
    Guard(
        name="generated_never_appealed",
        primitive="M2",
        target="arms.mesh.gates.evidence:generated",
        reverted=former.generated,
        incidents=("I10",),
        about="No appeal is accepted against, or on the word of, what a program made.",
    ),
    Guard(
        name="provenance_by_mode",
        primitive="M2",
        target="arms.mesh.gates.evidence:demanded",
        reverted=former.demanded,
        incidents=("I12",),
        about="A record is demanded only in a mode that produces it.",
    ),
    Guard(
        name="agent_writes_told_apart",
        primitive="M2",
        target="arms.mesh.gates.files:by_agent",
        reverted=former.by_agent,
        incidents=("I15",),
        about="A file is held against the agent only when one of its calls wrote it.",
    ),
)
