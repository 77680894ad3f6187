"""S1 over HTTP: one streamed chat completion of an OpenAI-compatible provider, and what is known when it breaks."""

from __future__ import annotations

import json
from typing import Any

from harness.core.types import Err, Json, Ok, Outcome
from harness.world.live.upstream import NETWORK_ERRORS, network_error, session


async def complete(base_url: str, request: dict[str, Json], timeout_s: float) -> Outcome:
    """Ok with {id, content, tool_calls, usage, finish_reason}, or Err: `http-<status>` did not happen, anything else
    may have been billed. timeout_s: real seconds for the whole answer."""
    url = f"{base_url}/v1/chat/completions"
    try:
        async with session(timeout_s) as client, client.post(url, json=request) as response:
            if response.status != 200:
                return Err(code=f"http-{response.status}", definite=True, detail=(await response.text())[:200])
            answer = Answer()
            async for line in response.content:
                answer.feed(line)
            if not answer.complete:
                return Err(code="truncated", definite=False, detail="the stream ended before its end")
            return Ok(value=answer.value(), receipt=answer.id)
    except NETWORK_ERRORS as error:
        return network_error(error)


class Answer:
    """A streamed completion, put together from its chunks."""

    def __init__(self) -> None:
        self.id, self.content, self.complete = "", "", False
        self._reason: str | None = None
        self._calls: dict[int, dict[str, str]] = {}
        self._usage: dict[str, int] = {}

    def feed(self, line: bytes) -> None:
        """One line of the event stream."""
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            self.complete = True
            return
        chunk: dict[str, Any] = json.loads(data)
        self.id = chunk.get("id") or self.id
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            self._reason = choice.get("finish_reason") or self._reason
            delta = choice.get("delta") or {}
            self.content += delta.get("content") or ""
            for part in delta.get("tool_calls") or ():
                self._add(part)

    def _add(self, part: dict[str, Any]) -> None:
        call = self._calls.setdefault(part["index"], {"id": "", "name": "", "arguments": ""})
        function = part.get("function") or {}
        call["id"] = part.get("id") or call["id"]
        call["name"] = function.get("name") or call["name"]
        call["arguments"] += function.get("arguments") or ""

    def value(self) -> dict[str, Json]:
        usage = {k: self._usage.get(k, 0) for k in ("prompt_tokens", "completion_tokens")}
        calls = [self._calls[i] for i in sorted(self._calls)]
        value = {"id": self.id, "content": self.content, "tool_calls": calls, "usage": usage}
        return value | {"finish_reason": self._reason} if self._reason else value
