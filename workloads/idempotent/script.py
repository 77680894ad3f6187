"""The scripted agent of the keyed order system: that of `codegen`, with scenarios of its own.

A pure function of the conversation, as there.
"""

from __future__ import annotations

from workloads.codegen import script as codegen
from workloads.common.agent import Action, Step, until_passed
from workloads.common.voice import Voice
from workloads.idempotent.compose import scenario
from workloads.idempotent.facts import Facts

FLOWS = {
    ("orders", "local_verification"): ("orders/flow.json", "flow_orders"),
    ("inventory", "local_verification"): ("inventory/flow.json", "flow_inventory"),
    ("orders", "oracle_qualification"): ("orders/qualify.json", "qualify_orders"),
    ("storefront", "oracle_qualification"): ("storefront/qualify.json", "qualify_storefront"),
    ("acceptance", "acceptance"): ("acceptance/flow.json", "acceptance"),
}
"""By delegation and phase: the scenario that it composes, and the check that runs it."""


def next_actions(facts: Facts, delegation: str, phase: str, steps: list[Step], voice: Voice) -> list[Action]:
    """The tool calls of the next turn."""
    if (delegation, phase) not in FLOWS:
        return codegen.next_actions(facts, delegation, phase, steps, voice)
    path, check = FLOWS[delegation, phase]
    if not any(step.tool == "write" for step in steps):
        return [("write", {"path": path, "content": scenario(voice, facts, path)}), ("run_check", {"check": check})]
    return until_passed(check, steps)
