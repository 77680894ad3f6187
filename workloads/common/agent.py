"""What every scripted agent does: read its conversation, run a check until it passes, and say that it is done.

Pure functions of the conversation, so that a script meets every fault as a real agent would: by what its tools
answered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from harness.core.roles import Completion, Task
from workloads.common.voice import Voice

Action = tuple[str, dict[str, Any]]

CHECK_TRIES = 3
"""How often the agent runs a check that does not go through before it reports that it is blocked."""


class Step(Struct, frozen=True):
    """A finished tool call as the conversation shows it."""

    tool: str
    args: dict[str, Any]
    result: dict[str, Any]


def history(messages: Sequence[dict[str, Any]]) -> list[Step]:
    """The tool calls of a conversation with their results, in order."""
    results = {m["tool_call_id"]: json.loads(m["content"]) for m in messages if m["role"] == "tool"}
    steps = []
    for message in messages:
        for call in message.get("tool_calls") or ():
            if call["id"] in results:
                function = call["function"]
                steps.append(Step(function["name"], json.loads(function["arguments"]), results[call["id"]]))
    return steps


def done(status: str = "complete") -> list[Action]:
    return [("done", {"status": status})]


def runs_of(check: str, steps: list[Step]) -> list[dict[str, Any]]:
    return [s.result for s in steps if s.tool == "run_check" and s.args.get("check") == check]


def until_passed(check: str, steps: list[Step], tries: int = CHECK_TRIES) -> list[Action]:
    runs = runs_of(check, steps)
    if runs and runs[-1].get("passed"):
        return done()
    if len(runs) >= tries or (runs and runs[-1].get("refused")):
        return done("blocked")
    return [("run_check", {"check": check})]


Next = Callable[[str, str, list[Step], Voice], list[Action]]
"""A script: the tool calls of the next turn, by delegation, phase, what was done so far, and the voice to say it in."""


def answer(task: Task, request: dict[str, Any], nth: int, stream: int, script: Next) -> Completion:
    """What the model answers to the `nth` billed request of its site, in variation stream `stream`: the next turn of
    its script, or one sentence where a service asked and no agent."""
    metadata = request.get("metadata") or {}
    if "ref" in metadata:
        return Completion(content=f"All about {metadata['ref']}, in one sentence.")
    delegation, phase = metadata["delegation"], metadata["phase"]
    voice = Voice(task.seed, task.variation, (stream, delegation, phase, nth))
    actions = script(delegation, phase, history(request["messages"]), voice)
    opening = voice.pick(("Next step.", "Going on.", "Let me continue.", "Now this."), "opening")
    return Completion(content=opening, tool_calls=tuple((tool, json.dumps(args)) for tool, args in actions))
