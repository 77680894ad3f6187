"""A shop of which a browser sees something else than plain requests do; named by tests as `module:name`."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from harness.core.roles import Completion, Task
from workloads.preview.task import Preview

RULES = ("body {", "nav {", "li {")


class Contradictory(Preview):
    """Its style sheet styles nothing that is there, which only a browser sees."""

    def reply(self, task: Task, request: dict[str, Any], nth: int, stream: int) -> Completion:
        said = super().reply(task, request, nth, stream)
        return replace(said, tool_calls=tuple((tool, _elsewhere(args)) for tool, args in said.tool_calls))


def _elsewhere(text: str) -> str:
    for rule in RULES:
        text = text.replace(rule, ".nobody {")
    return text


CONTRADICTORY = Contradictory()
