"""The scripted agent of the laboratory: it runs suites, mends what they show, and runs them again.

A pure function of the conversation. It does not know what a suite is like: one that fails of no defect that it knows of
is run again, as often as an agent would.
"""

from __future__ import annotations

from workloads.common.agent import CHECK_TRIES, Action, Step, done, runs_of, until_passed
from workloads.common.defects import Defect, planted
from workloads.common.voice import Voice
from workloads.test_execution.compose import scenario
from workloads.test_execution.facts import LATENT, Facts
from workloads.test_execution.repository import SERVICES, SOURCE_PATH


def next_actions(facts: Facts, delegation: str, phase: str, steps: list[Step], voice: Voice) -> list[Action]:
    """The tool calls of the next turn."""
    if phase == "test_design":
        return _design(delegation, steps, voice)
    if phase == "test_preflight":
        return until_passed(f"install_{delegation}", steps)
    if phase == "implementation":
        return _implement(facts, delegation, steps, voice)
    check = "acceptance" if phase == "acceptance" else f"suite_{delegation}"
    if not any(s.tool == "write" for s in steps):
        # composed in the very phase that runs it, so that a retry words it anew
        path = f"{delegation}/flow.json"
        return [("write", {"path": path, "content": scenario(voice, facts, path)}), ("run_check", {"check": check})]
    return until_passed(check, steps)


def known(facts: Facts, component: str) -> tuple[Defect, ...]:
    """The mistakes of a first draft."""
    return (*facts.defects[component], *((LATENT,) if component == "payments" else ()))


def _design(component: str, steps: list[Step], voice: Voice) -> list[Action]:
    if not steps:
        return _reads(component, voice)
    if any("error" in s.result for s in steps if s.tool == "write"):
        return done("blocked")
    plan = {"component": component, "suites": ["unit", "suite"], "green": "when every one of them passes"}
    text = voice.text(voice.spell(plan, "plan"), "plan")
    return [("write", {"path": f"{component}/TESTPLAN.json", "content": text}), *done()]


def _reads(component: str, voice: Voice) -> list[Action]:
    """The specification, and from L3 on whatever else the agent feels like looking at."""
    extra: list[Action] = [("list", {"path": component}), ("grep", {"pattern": "def ", "path": "suites"})]
    return [("read", {"path": f"{component}/SPEC.md"}), *extra[: int(voice.pick((0, 1, 2), "extra", level=3))]]


def _implement(facts: Facts, component: str, steps: list[Step], voice: Voice) -> list[Action]:
    path, check = SOURCE_PATH[component], f"unit_{component}"
    if not steps:
        return _reads(component, voice)
    if not any(s.tool == "write" and s.args["path"] == path for s in steps):
        draft = planted(SERVICES[component], known(facts, component))
        written: list[Action] = [("write", {"path": path, "content": draft})]
        if facts.hook_in == component:
            manifest = voice.text({"component": component, "sku": facts.sku}, "manifest")
            written.append(("write", {"path": f"{component}/manifest.json", "content": manifest}))
        return [*written, ("run_check", {"check": check})]
    return _mend(facts, component, check, steps)


def _mend(facts: Facts, component: str, check: str, steps: list[Step]) -> list[Action]:
    """Mend what the last run showed, one defect at a time; where it showed none, run the suite again."""
    runs = runs_of(check, steps)
    if runs and runs[-1].get("passed"):
        return done()
    fixed = {s.args["old"] for s in steps if s.tool == "edit" and "error" not in s.result}
    if len(runs) >= len(fixed) + CHECK_TRIES or (runs and runs[-1].get("refused")):
        return done("blocked")
    failing = {test.rpartition("::")[2] for test in (runs[-1].get("failing", ()) if runs else ())}
    for defect in known(facts, component):
        if defect.test in failing and defect.wrong not in fixed:
            edit: Action = ("edit", {"path": SOURCE_PATH[component], "old": defect.wrong, "new": defect.right})
            return [edit, ("run_check", {"check": check})]
    return [("run_check", {"check": check})]
