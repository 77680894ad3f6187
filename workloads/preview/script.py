"""The scripted agent of the shop: what it does next, given the conversation so far.

A pure function of the conversation, so that it meets every fault as a real agent would: by what its tools answered.
"""

from __future__ import annotations

from workloads.common.agent import CHECK_TRIES, Action, Step, done, runs_of, until_passed
from workloads.common.defects import planted
from workloads.common.voice import Voice
from workloads.preview.compose import scenario
from workloads.preview.facts import DEFECTS, Facts
from workloads.preview.repository import SERVICES, back_end, delivered


def next_actions(facts: Facts, delegation: str, phase: str, steps: list[Step], voice: Voice) -> list[Action]:
    """The tool calls of the next turn."""
    if phase == "test_design":
        return _design(delegation, steps, voice)
    if phase == "test_preflight":
        return until_passed(f"install_{delegation}", steps)
    if phase == "implementation":
        return _implement(facts, delegation, steps, voice)
    path, check = f"{delegation}/flow.json", "preview" if phase == "acceptance" else f"flow_{delegation}"
    if not any(s.tool == "write" for s in steps):
        # composed in the very phase that runs it, so that a retry words it anew
        return [("write", {"path": path, "content": scenario(voice, facts, path)}), ("run_check", {"check": check})]
    return _mend(facts, steps) if phase == "acceptance" else until_passed(check, steps)


def _design(delegation: str, steps: list[Step], voice: Voice) -> list[Action]:
    if not steps:
        return _reads(delegation, voice)
    if any("error" in s.result for s in steps if s.tool == "write"):
        return done("blocked")
    plan = {"part": delegation, "checks": ["unit", "flow"], "shown by": "a preview of the system as it runs"}
    text = voice.text(voice.spell(plan, "plan"), "plan")
    return [("write", {"path": f"{delegation}/PLAN.json", "content": text}), *done()]


def _reads(delegation: str, voice: Voice) -> list[Action]:
    """The specification, and from L3 on whatever else the agent feels like looking at."""
    extra: list[Action] = [("list", {"path": delegation}), ("grep", {"pattern": "def ", "path": "tests"})]
    return [("read", {"path": f"{delegation}/SPEC.md"}), *extra[: int(voice.pick((0, 1, 2), "extra", level=3))]]


def _implement(facts: Facts, delegation: str, steps: list[Step], voice: Voice) -> list[Action]:
    """The delivery is put together with its mistakes, and the build is green."""
    check = "build" if delegation == "delivery" else f"unit_{delegation}"
    if not steps:
        return _reads(delegation, voice)
    if any(s.tool == "write" for s in steps):
        return until_passed(check, steps)
    if delegation == "delivery":
        texts = {path: planted(text, facts.defects) for path, text in delivered(facts).items()}
    else:
        texts = {SERVICES[delegation]: back_end(facts, delegation)}
    if facts.hook_in == delegation:
        texts[f"{delegation}/manifest.json"] = voice.text({"component": delegation, "sku": facts.sku}, "manifest")
    written: list[Action] = [("write", {"path": path, "content": text}) for path, text in texts.items()]
    return [*written, ("run_check", {"check": check})]


def _mend(facts: Facts, steps: list[Step]) -> list[Action]:
    """Mend all that the last preview showed, and look again; give up when that leads nowhere."""
    runs, check = runs_of("preview", steps), ("run_check", {"check": "preview"})
    if runs and runs[-1].get("passed"):
        return done()
    fixed = {s.args["old"] for s in steps if s.tool == "edit" and "error" not in s.result}
    if len(runs) >= len(fixed) + CHECK_TRIES or (runs and runs[-1].get("refused")):
        return done("blocked")
    shown = set(runs[-1].get("failing", ())) if runs else set()
    known = [(path, d) for path, d in DEFECTS.values() if d in facts.defects and d.test in shown]
    due = [(path, d) for path, d in known if d.wrong not in fixed]
    reads: list[Action] = [("read", {"path": path}) for path in dict.fromkeys(path for path, _ in due)]
    edits: list[Action] = [("edit", {"path": path, "old": d.wrong, "new": d.right}) for path, d in due]
    return [*reads, *edits, check]
