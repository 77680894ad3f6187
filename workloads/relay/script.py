"""The scripted agent of the relay: what it does next, given the conversation so far.

A pure function of the conversation and of draws under its seed, so that it meets every fault, and every arm, as a real
agent would: by what its tools answered.
"""

from __future__ import annotations

from msgspec import Struct

from workloads.common.agent import CHECK_TRIES, Action, Step, done, runs_of, until_passed
from workloads.common.defects import planted
from workloads.common.voice import Voice
from workloads.relay.compose import ACCEPTANCE, scenario
from workloads.relay.facts import COMPONENTS, HIDDEN, REGRESSION, REREAD, SEARCH, Facts
from workloads.relay.sources import SERVICES, SOURCE_PATH

ACCEPTANCE_TRIES = 2

QUIET = {"intake": "install_intake", "pricing": "smoke_pricing"}
"""The last check of the components that have no flow of their own."""


class Turn(Struct, frozen=True, kw_only=True):
    """What the next turn depends on. drifting: it reads again what it may not change and has read before."""

    actions: list[Action]
    drifting: bool = False


def next_turn(facts: Facts, delegation: str, phase: str, steps: list[Step], voice: Voice) -> Turn:
    """The tool calls of the next turn."""
    component = delegation.rpartition("/")[2]
    if phase == "repair":
        return _repair(component, steps, voice)
    if phase == "implementation":
        return Turn(actions=_implement(facts, component, steps, voice))
    if delegation == "acceptance":
        return Turn(actions=_play(facts, ACCEPTANCE, "acceptance", steps, voice, ACCEPTANCE_TRIES))
    return Turn(actions=_verify(facts, component, steps, voice))


# --- a component of one's own -------------------------------------------------------------------------------------


def _implement(facts: Facts, component: str, steps: list[Step], voice: Voice) -> list[Action]:
    path, check = SOURCE_PATH[component], check_of(facts, component)
    if not steps:
        extra: list[Action] = [("list", {"path": component}), ("grep", {"pattern": "def ", "path": component})]
        return [("read", {"path": f"{component}/SPEC.md"}), *extra[: int(voice.pick((0, 1, 2), "extra", level=3))]]
    if not any(s.tool == "write" and s.args["path"] == path for s in steps):
        written: list[Action] = [("write", {"path": path, "content": first_draft(facts, component)})]
        if facts.hook_in == component:
            manifest = voice.text({"component": component, "order": facts.order_ref}, "manifest")
            written.append(("write", {"path": f"{component}/manifest.json", "content": manifest}))
        if check.startswith("flow_"):
            written.append(_composed(facts, f"{component}/flow.json", voice))
        return [*written, ("run_check", {"check": check})]
    return _mend(facts, component, check, steps, voice)


def _mend(facts: Facts, component: str, check: str, steps: list[Step], voice: Voice) -> list[Action]:
    """Mend what the last run showed, one defect at a time."""
    path, runs = SOURCE_PATH[component], runs_of(check, steps)
    if runs and runs[-1].get("passed"):
        return done()
    fixed = {s.args["old"] for s in steps if s.tool == "edit" and "error" not in s.result}
    if len(runs) >= len(fixed) + CHECK_TRIES or (runs and runs[-1].get("refused")):
        return done("blocked")
    failing = {
        test.rpartition("::")[2] if "::" in test else "" for test in (runs[-1].get("failing", ()) if runs else ())
    }
    for defect in facts.unit[component]:
        if defect.test in failing and defect.wrong not in fixed:
            edit: Action = ("edit", {"path": path, "old": defect.wrong, "new": defect.right})
            again: list[Action] = [("read", {"path": path})] if _rereads(voice) else []
            return [edit, *again, ("run_check", {"check": check})]
    return [("run_check", {"check": check})]


def _rereads(voice: Voice) -> bool:
    return voice.draw("reread") < REREAD


def first_draft(facts: Facts, component: str) -> str:
    """What the agent writes first: with the defects that its tests see, and perhaps with one that they do not."""
    source = planted(SERVICES[component], facts.unit[component])
    return planted(source, [HIDDEN[component]]) if component in facts.defective else source


def check_of(facts: Facts, component: str) -> str:
    """The check that a component is developed against."""
    return f"flow_{component}" if facts.flow_first and component == "notices" else f"unit_{component}"


def _verify(facts: Facts, component: str, steps: list[Step], voice: Voice) -> list[Action]:
    if component in QUIET:
        return until_passed(QUIET[component], steps)
    if check_of(facts, component).startswith("flow_"):
        return until_passed(f"unit_{component}", steps)
    return _play(facts, f"{component}/flow.json", f"flow_{component}", steps, voice)


def _play(
    facts: Facts, path: str, check: str, steps: list[Step], voice: Voice, tries: int = CHECK_TRIES
) -> list[Action]:
    """What a check does to the outside is composed in the very phase that runs it, so a retry words it anew."""
    if not any(s.tool == "write" for s in steps):
        return [_composed(facts, path, voice), ("run_check", {"check": check})]
    return until_passed(check, steps, tries)


def _composed(facts: Facts, path: str, voice: Voice) -> Action:
    return "write", {"path": path, "content": scenario(voice, facts, path)}


# --- a repair -----------------------------------------------------------------------------------------------------


def _repair(component: str, steps: list[Step], voice: Voice) -> Turn:
    """Read, find and mend the defect; or, where there is none, do what agents do who are told that there is one."""
    path, hidden = SOURCE_PATH[component], HIDDEN[component]
    if not steps:
        return Turn(actions=[("read", {"path": path}), ("read", {"path": f"{component}/SPEC.md"})])
    source = next((s.result.get("content", "") for s in steps if s.tool == "read" and s.args["path"] == path), "")
    changed = any(s.tool in ("edit", "write") for s in steps)
    if changed:
        return Turn(actions=_confirmed(component, steps))
    if hidden.wrong in source:
        found: Action = ("edit", {"path": path, "old": hidden.wrong, "new": hidden.right})
        return Turn(actions=[found, ("run_check", {"check": f"unit_{component}"})])
    searched = [s for s in steps if s.tool == "read" and not s.args["path"].startswith(f"{component}/")]
    if searched or voice.draw("what it does") < SEARCH:
        return _search(component, steps, len(searched))
    if voice.draw("regression") < REGRESSION:
        guess: Action = ("edit", {"path": path, "old": hidden.right, "new": hidden.wrong})
    else:
        guess = (
            "write",
            {"path": f"{component}/settings.py", "content": f"RETRIES = {3 + int(6 * voice.draw('n'))}\n"},
        )
    return Turn(actions=[guess, ("run_check", {"check": f"unit_{component}"})])


def _confirmed(component: str, steps: list[Step]) -> list[Action]:
    """The tests of the component, and then that it starts."""
    unit = until_passed(f"unit_{component}", steps)
    return until_passed(f"smoke_{component}", steps) if unit == done() else unit


def _search(component: str, steps: list[Step], reads: int) -> Turn:
    """Read one after another of the files of the others, which it may not change, and begin again at the end."""
    if any(s.result.get("refused") for s in steps):
        return Turn(actions=done("blocked"))
    others = [SOURCE_PATH[c] for c in COMPONENTS if c != component]
    return Turn(actions=[("read", {"path": others[reads % len(others)]})], drifting=reads >= len(others))
