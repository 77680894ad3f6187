"""The scripted agent of the shared house: what it does next, given the conversation so far.

A pure function of the conversation, so that it meets every fault as a real agent would: by what its tools answered.
"""

from __future__ import annotations

from workloads.common.agent import Action, Step, done, until_passed
from workloads.common.defects import mend, planted
from workloads.common.voice import Voice
from workloads.tenants import compose
from workloads.tenants.facts import Facts
from workloads.tenants.repository import SOURCE, source_path


def next_actions(facts: Facts, delegation: str, phase: str, steps: list[Step], voice: Voice) -> list[Action]:
    """The tool calls of the next turn."""
    tenant, _, part = delegation.partition("/")
    if phase == "test_design":
        return _design(facts, delegation, steps, voice)
    if phase == "test_preflight":
        return until_passed(f"install_{tenant}", steps)
    if phase == "implementation":
        return _implement(facts, tenant, steps, voice)
    if part == "intake":
        return _run(f"{delegation}/flow.json", compose.intake(voice, facts, tenant), f"intake_{tenant}", steps)
    if part == "billing":
        return _run(f"{delegation}/flow.json", compose.billing(voice, facts), f"billing_{tenant}", steps)
    return _run("ops/flow.json", compose.settlement(voice, facts), "acceptance", steps)


def _design(facts: Facts, delegation: str, steps: list[Step], voice: Voice) -> list[Action]:
    if not steps:
        extra: list[Action] = [("list", {"path": delegation}), ("grep", {"pattern": "def ", "path": delegation})]
        return [("read", {"path": f"{delegation}/SPEC.md"}), *extra[: int(voice.pick((0, 1, 2), "extra", level=3))]]
    if any("error" in s.result for s in steps if s.tool == "write"):
        return done("blocked")
    plan = {"part": delegation, "order": facts.order_ref, "checks": ["unit", "flow"], "then": "implement"}
    return [("write", {"path": f"{delegation}/PLAN.json", "content": voice.text(voice.spell(plan))}), *done()]


def _implement(facts: Facts, tenant: str, steps: list[Step], voice: Voice) -> list[Action]:
    path, check, defects = source_path(tenant), f"unit_{tenant}", facts.defects[tenant]
    if not steps:
        return [("read", {"path": f"{tenant}/intake/SPEC.md"})]
    if any(s.tool == "write" and s.args["path"] == path for s in steps):
        return mend(path, defects, check, steps)
    written: list[Action] = [("write", {"path": path, "content": planted(SOURCE, defects)})]
    if facts.hook_in == tenant:
        manifest = voice.text({"tenant": tenant, "order": facts.order_ref}, "manifest")
        written.append(("write", {"path": f"{tenant}/intake/manifest.json", "content": manifest}))
    return [*written, ("run_check", {"check": check})]


def _run(path: str, text: str, check: str, steps: list[Step]) -> list[Action]:
    """What a check does to the outside is composed in the very phase that runs it, so a retry words it anew."""
    if not any(s.tool == "write" for s in steps):
        return [("write", {"path": path, "content": text}), ("run_check", {"check": check})]
    return until_passed(check, steps)
