"""The scripted agents of the tree: what each does next, given the conversation so far.

A pure function of the conversation. A worker answers its brief at once; a supervisor reads what it was handed up, makes
good what it cannot write from, and hands up one return; where there is a verifier, a complaint leads to another return.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from workloads.brief_tree.compose import IN_SCENARIO, scenario
from workloads.brief_tree.facts import ROOT, Facts, children_of
from workloads.brief_tree.repository import check_of, flow_test, return_path
from workloads.brief_tree.returns import composed, consumable
from workloads.common.agent import CHECK_TRIES, Action, Step, done, until_passed
from workloads.common.voice import Voice

GAVE_UP = "agent-blocked."
"""How the note of an attempt ends in which the agent gave up."""


def given_up(messages: Sequence[dict[str, Any]]) -> int:
    """How many attempts before this one ended with the agent giving up, as its opening says."""
    opening = next((str(m["content"]) for m in messages if m["role"] == "user"), "")
    return sum(line.startswith("Attempt ") and line.endswith(GAVE_UP) for line in opening.splitlines())


def next_actions(f: Facts, hop: str, steps: list[Step], before: int, voice: Voice) -> list[Action]:
    """The tool calls of the next turn. before: attempts in which the agent gave up."""
    received = {child: _read(return_path(child), steps) for child in children_of(hop)}
    if received and not steps:
        return [("read", {"path": return_path(child)}) for child in received]
    unusable = [child for child, text in received.items() if consumable(text, child) is None]
    asked = {s.args["path"] for s in steps if s.tool == "read"}
    if missing := [path for child in unusable if (path := f"{child}/BRIEF.json") not in asked]:
        return [("read", {"path": path}) for path in missing]
    writes = [n for n, s in enumerate(steps) if s.tool == "write" and s.args["path"] == return_path(hop)]
    check = check_of(hop) if hop == ROOT or hop in f.verified else ""
    if not writes:
        return [*_hand_up(f, hop, received, before, 0), *_beside(f, hop, voice), *_confirm(check)]
    if any("error" in s.result for s in steps if s.tool == "write"):
        return done("blocked")
    since = steps[writes[-1] :]
    run = next((s.result for s in reversed(since) if s.tool == "run_check" and s.args["check"] == check), None)
    if run is None or not _complained(run, hop):
        return _finish(f, hop, check, since)
    if len(writes) > f.parameters.retries:
        return done("blocked")
    return [*_hand_up(f, hop, received, before, len(writes)), *_confirm(check)]


def _read(path: str, steps: list[Step]) -> str | None:
    read = next((s.result for s in steps if s.tool == "read" and s.args["path"] == path), {})
    return read.get("content")


def _hand_up(f: Facts, hop: str, received: dict[str, str | None], before: int, nth: int) -> list[Action]:
    """The return; before it, what had to be repaired of those that it is made from."""
    made = composed(f, hop, received, before, nth)
    actions: list[Action] = [("write", {"path": return_path(hop), "content": made.text})]
    if made.repaired:
        repaired = json.dumps({"repaired": made.repaired})
        actions.insert(0, ("write", {"path": f"{hop}/repairs.json", "content": repaired}))
    return actions


def _beside(f: Facts, hop: str, voice: Voice) -> list[Action]:
    """What a hop writes for its effect."""
    boundary = f.placed[hop].boundary if hop in f.placed else ""
    if boundary in IN_SCENARIO:
        return [("write", {"path": f"{hop}/flow.json", "content": scenario(voice, f, hop)})]
    if boundary == "hook":
        manifest = voice.text({"desk": hop, "return": f.ref(hop)}, "manifest")
        return [("write", {"path": f"{hop}/manifest.json", "content": manifest})]
    return []


def _confirm(check: str) -> list[Action]:
    return [("run_check", {"check": check})] if check else done()


def _complained(run: dict[str, Any], hop: str) -> bool:
    """Whether the verifier complained of the return, and it was not just that its effects did not go through."""
    return bool(set(run.get("failing", ())) - {flow_test(hop)})


def _finish(f: Facts, hop: str, check: str, since: list[Step]) -> list[Action]:
    """The check until it passes, and then the package of a hop that needs one."""
    if not check:
        return done()
    action = until_passed(check, since, CHECK_TRIES)
    if action == done() and hop in f.placed and f.placed[hop].boundary == "registry":
        return until_passed(f"install_{hop}", since, CHECK_TRIES)
    return action
