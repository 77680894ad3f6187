"""The scripted agent of the order system: what it does next, given the conversation so far.

A pure function of the conversation, so that it meets every fault as a real agent would: by what its tools answered.
"""

from __future__ import annotations

from workloads.codegen import repository
from workloads.codegen.compose import scenario
from workloads.codegen.facts import Facts
from workloads.common.agent import CHECK_TRIES, Action, Step, done, runs_of, until_passed
from workloads.common.defects import mend, planted
from workloads.common.voice import Voice


def next_actions(facts: Facts, delegation: str, phase: str, steps: list[Step], voice: Voice) -> list[Action]:
    """The tool calls of the next turn."""
    component = delegation.split("/")[0]
    if phase == "test_design":
        return _design(component, steps, voice)
    if phase == "test_preflight":
        return until_passed(f"install_{component}", steps)
    if phase == "red_validation":
        return _red(f"unit_{component}", steps)
    if phase == "implementation":
        return _implement(facts, component, steps, voice)
    if delegation.endswith("/verifier"):
        return _verify(component, steps)
    if phase == "local_verification":
        return _compose_and_run(facts, f"{component}/flow.json", f"flow_{component}", steps, voice)
    if phase == "oracle_qualification":
        return _compose_and_run(facts, f"{component}/qualify.json", f"qualify_{component}", steps, voice)
    return _compose_and_run(facts, "acceptance/flow.json", "acceptance", steps, voice)


def _reads(component: str, voice: Voice) -> list[Action]:
    """The specification, and from L3 on whatever else the agent feels like looking at."""
    extra: list[Action] = [("list", {"path": component}), ("grep", {"pattern": "def ", "path": component})]
    return [("read", {"path": f"{component}/SPEC.md"}), *extra[: int(voice.pick((0, 1, 2), "extra", level=3))]]


def _design(component: str, steps: list[Step], voice: Voice) -> list[Action]:
    if not steps:
        return _reads(component, voice)
    if any("error" in s.result for s in steps if s.tool == "write"):
        return done("blocked")
    plan = {"component": component, "tests": ["unit", "flow", "qualification"], "then": "implement"}
    text = voice.text(voice.spell(plan, "plan"), "plan")
    return [("write", {"path": f"{component}/TESTPLAN.json", "content": text}), *done()]


def _red(check: str, steps: list[Step]) -> list[Action]:
    runs = runs_of(check, steps)
    if runs and "passed" in runs[-1]:
        return done()
    return done("blocked") if len(runs) >= CHECK_TRIES else [("run_check", {"check": check})]


def _implement(facts: Facts, component: str, steps: list[Step], voice: Voice) -> list[Action]:
    path, check = repository.SOURCE_PATH[component], f"unit_{component}"
    defects = facts.defects[component]
    if not steps:
        return _reads(component, voice)
    if not any(s.tool == "write" and s.args["path"] == path for s in steps):
        source = planted(repository.SERVICES[component], defects)
        written: list[Action] = [("write", {"path": path, "content": source})]
        if facts.hook_in == component:
            manifest = voice.text({"component": component, "order": facts.order_ref}, "manifest")
            written.append(("write", {"path": f"{component}/manifest.json", "content": manifest}))
        return [*written, ("run_check", {"check": check})]
    return mend(path, defects, check, steps)


def _verify(component: str, steps: list[Step]) -> list[Action]:
    if not steps:
        return [("read", {"path": repository.SOURCE_PATH[component]}), ("run_check", {"check": f"unit_{component}"})]
    return until_passed(f"unit_{component}", steps)


def _compose_and_run(facts: Facts, path: str, check: str, steps: list[Step], voice: Voice) -> list[Action]:
    """What a check does to the outside is composed in the very phase that runs it, so a retry words it anew."""
    if not any(s.tool == "write" for s in steps):
        return [("write", {"path": path, "content": scenario(voice, facts, path)}), ("run_check", {"check": check})]
    return until_passed(check, steps)
