"""The scripted agent that mends a package: what it does next, given the conversation so far.

A pure function of the conversation, so that it meets every fault as a real agent would: by what its tools answered.
"""

from __future__ import annotations

from collections.abc import Sequence

from workloads.common.agent import CHECK_TRIES, Action, Step, done, runs_of, until_passed
from workloads.common.voice import Voice
from workloads.repository_mutation import matrix, packages
from workloads.repository_mutation.compose import scenario
from workloads.repository_mutation.facts import Facts, mending
from workloads.repository_mutation.operators import Mutant

SUITE, UNIT = "suite", "unit_mend"
READ_CHARS_MAX = 8000
"""A longer file is searched and not read: what was read is paid for again in every later turn."""


def next_actions(facts: Facts, delegation: str, phase: str, steps: list[Step], voice: Voice) -> list[Action]:
    """The tool calls of the next turn."""
    if phase == "test_preflight":
        return until_passed(f"install_{delegation}", steps)
    if phase == "red_validation":
        return _red(UNIT, steps)
    if phase == "implementation":
        return _implement(facts, delegation, steps, voice)
    if delegation.endswith("/verifier"):
        return _verify(facts, steps)
    if phase == "local_verification":
        return _compose_and_run(facts, f"{delegation}/flow.json", f"flow_{delegation}", steps, voice)
    if phase == "oracle_qualification":
        return _compose_and_run(facts, f"{delegation}/qualify.json", f"qualify_{delegation}", steps, voice)
    suite = until_passed(SUITE, steps)
    return suite if suite != done() else _compose_and_run(facts, "release/flow.json", "acceptance", steps, voice)


def _red(check: str, steps: list[Step]) -> list[Action]:
    runs = runs_of(check, steps)
    if runs and "passed" in runs[-1]:
        return done()
    return done("blocked") if len(runs) >= CHECK_TRIES else [("run_check", {"check": check})]


def _look(facts: Facts, path: str) -> Action:
    short = len(packages.tree(facts.locked).get(path, "")) <= READ_CHARS_MAX
    return ("read", {"path": path}) if short else ("grep", {"pattern": "^ *def ", "path": path})


def _implement(facts: Facts, component: str, steps: list[Step], voice: Voice) -> list[Action]:
    own, check = (facts.mend, UNIT) if component == "mend" else (facts.review, SUITE)
    if not steps:
        brief: Action = ("read", {"path": f"{component}/BRIEF.md"})
        imports: Action = ("grep", {"pattern": "import ", "path": facts.diagnosed})
        extra: list[Action] = [("list", {"path": f"{component}/"}), imports]
        looks = [_look(facts, facts.diagnosed)] if component == "mend" else []
        return [brief, *looks, *extra[: int(voice.pick((0, 1, 2), "extra", level=3))]]
    if not any(s.tool == "run_check" for s in steps):
        manifest = voice.text({"component": component, "defect": facts.ref("D")}, "manifest")
        written: Action = ("write", {"path": f"{component}/manifest.json", "content": manifest})
        return [*([written] if facts.hook_in == component else []), ("run_check", {"check": check})]
    return _mend(facts, own, check, steps)


def _mend(facts: Facts, own: Sequence[Mutant], check: str, steps: list[Step]) -> list[Action]:
    """Mend what the last run showed, one defect at a time."""
    runs = runs_of(check, steps)
    found = matrix.load(facts.locked)
    failing = set(runs[-1].get("failing", ()))
    edits = [s for s in steps if s.tool == "edit"]
    mended = {s.args["path"] for s in edits if "error" not in s.result}
    if runs[-1].get("passed"):
        return done()
    if len(runs) >= len(edits) + CHECK_TRIES or runs[-1].get("refused") or len(edits) >= len(own) + CHECK_TRIES:
        return done("blocked")
    for mutant in own:
        if mutant.path not in mended and failing & set(found.fails((mutant,))):
            old, new = mending(packages.tree(facts.locked)[mutant.path], mutant)
            known = any(s.args.get("path") == mutant.path for s in steps)
            looks = [] if known else [_look(facts, mutant.path)]
            edit: Action = ("edit", {"path": mutant.path, "old": old, "new": new})
            return [*looks, edit, ("run_check", {"check": check})]
    return [("run_check", {"check": check})]


def _verify(facts: Facts, steps: list[Step]) -> list[Action]:
    if not steps:
        return [_look(facts, facts.planted[-1].path), ("run_check", {"check": SUITE})]
    return until_passed(SUITE, steps)


def _compose_and_run(facts: Facts, path: str, check: str, steps: list[Step], voice: Voice) -> list[Action]:
    """What a check does to the outside is composed in the very phase that runs it, so a retry words it anew."""
    if not any(s.tool == "write" for s in steps):
        return [("write", {"path": path, "content": scenario(voice, facts, path)}), ("run_check", {"check": check})]
    return until_passed(check, steps)
