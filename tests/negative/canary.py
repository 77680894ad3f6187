"""The check that truth does not leak: nothing that crosses a seam contains the token that is planted in the truth.

Why beside the trace: it leaves out conversations and cuts long texts, so a leak could hide there. An arm that listens
at every seam hears all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from harness.core.records import Event
from harness.core.roles import Arm, ArmContext
from harness.core.seams import Layer


class Listening:
    """A layer that changes nothing and keeps what goes in and what comes out."""

    def __init__(self, heard: list[Any]) -> None:
        self._heard = heard

    async def _cross(self, call: Any, next: Any) -> Any:
        self._heard.append(call)
        outcome = await next(call)
        self._heard.append(outcome)
        return outcome

    on_delegate = on_model = on_tool = on_effect = on_commit = _cross


def listened(arm: Arm, heard: list[Any]) -> Arm:
    """The arm with a listener on both sides of its layers."""

    def layers(context: ArmContext) -> tuple[Layer, ...]:
        return (Listening(heard), *arm.layers(context), Listening(heard))

    return replace(arm, layers=layers)


def leaks(truth: Iterable[Event], crossed: Iterable[Any]) -> list[str]:
    """What contains a canary of this truth, as JSON text, however deep and in whatever spelling of its letters."""
    tokens = [event.data["token"] for event in truth if event.kind == "canary"]
    assert tokens, "the truth has no canary"
    texts = (msgspec.json.encode(item).decode() for item in crossed)
    return [text for text in texts if any(token in text.lower() for token in tokens)]
