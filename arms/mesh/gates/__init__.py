"""The registry of gates: every rule that a call of the mesh arm has to pass, in the order in which they are asked.

Nothing here acts: `arms.mesh.m2_exoneration` asks, and carries out what is answered.
"""

from arms.mesh.gates import calls, code, evidence, files, order, outside, parties, seeds, shell
from arms.mesh.gates.base import Gate

GATES: tuple[Gate, ...] = (
    calls.COMPLETE_CALL,
    calls.TOOL_ARGUMENTS,
    calls.DECLARED_CHECK,
    files.WRITE_SET,
    code.BASE_CLASS_IDIOM,
    seeds.SEED_HANDLERS,
    evidence.CITATION_APPEAL,
    evidence.TOOLCHAIN_DEFAULTS,
    shell.DENIED_OPERATION,
    parties.HAND_OFF,
    parties.MISDIRECTED_REPAIR,
    evidence.SCOPE_RECEIPT,
    outside.UNKNOWN_OUTCOME,
    outside.DESTRUCTIVE,
    calls.REPEATED_FAILURE,
    outside.UNDECLARED_EFFECT,
    outside.PACKAGE_ALLOW_LIST,
    order.PHASE_ORDER,
    files.STRAY_ARTIFACT,
    evidence.ACCEPTANCE_EVIDENCE,
    evidence.PROVENANCE,
)
