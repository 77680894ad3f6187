"""The client of an OpenAI-compatible endpoint: one request, what came back byte for byte, and what that means.

Why it retries nothing and follows no redirect: how often a model is asked is the arm's to decide, and a key must not be
carried to another host. Nothing of an address but its host and port is ever put into a message.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from msgspec import Struct

from harness.core.clock import monotonic_s
from harness.core.errors import ConfigError
from harness.world.live.cassette import Ended, Json
from harness.world.live.upstream import session

TIMEOUT_S = 600.0
ANSWER_BYTES_MAX = 1 << 26
KEPT_HEADERS = ("content-type", "retry-after", "retry-after-ms", "x-ratelimit-")
"""How the names of those headers begin that are kept and passed on."""

OURS = ("metadata", "store")
"""Fields by which a request is told apart here; an endpoint is not asked to understand them."""


class Raw(Struct, frozen=True, kw_only=True):
    """An answer as it came. status 0: none came. ended: `dropped` within the body, `lost` before a status,
    `unreachable` before anything was sent."""

    status: int = 0
    headers: dict[str, str] = {}
    body: str = ""
    ended: Ended
    took_ms: float = 0.0


def host_of(url: str) -> str:
    """Host and port of an endpoint's base URL, which is all of it that may be told. Raises ConfigError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError("the provider's URL cannot be read", allowed=ALLOWED) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("the provider's URL is not one of HTTP", allowed=ALLOWED)
    if parts.username is not None or parts.password is not None:
        raise ConfigError("the provider's URL contains credentials", hint="put the key into an environment variable")
    return f"{parts.hostname}:{port}" if port else parts.hostname


ALLOWED = "a base URL as clients of OpenAI take it, such as https://host/v1"


def outgoing(request: Json, model: str) -> Json:
    """A request as it goes out: for this model, without what is only ours, and without empty lists of tool calls,
    which some endpoints refuse."""
    kept = {name: value for name, value in request.items() if name not in OURS}
    messages = [{k: v for k, v in m.items() if k != "tool_calls" or v} for m in request["messages"]]
    return {**kept, "model": model, "messages": messages}


async def ask(url: str, key: str, request: Json) -> Raw:
    """Make one request. Never raises for what a network or an endpoint does."""
    began_s, status, headers, body = monotonic_s(), 0, dict[str, str](), bytearray()
    ended: Ended = "lost"
    try:
        async with session(TIMEOUT_S) as client:
            authorized = {"authorization": f"Bearer {key}"} if key else {}
            sent = client.post(_target(url), json=request, headers=authorized, allow_redirects=False)
            async with sent as response:
                status, ended = response.status, "dropped"
                names = ((name.lower(), value) for name, value in response.headers.items())
                headers = {name: value for name, value in names if name.startswith(KEPT_HEADERS)}
                async for piece in response.content.iter_any():
                    body += piece
                    if len(body) > ANSWER_BYTES_MAX:
                        break
                else:
                    ended = "complete"
    except aiohttp.ClientConnectorError:
        ended = "unreachable"
    except (aiohttp.ClientError, OSError):
        pass  # `ended` says how far it came
    took_ms = round((monotonic_s() - began_s) * 1000, 1)
    return Raw(status=status, headers=headers, body=body.decode(errors="replace"), ended=ended, took_ms=took_ms)


def _target(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(path=parts.path.rstrip("/") + "/chat/completions").geturl()


# --- what an answer means -----------------------------------------------------------------------------------------


class Said(Struct, frozen=True, kw_only=True):
    """An answer, put together. tool_calls: (id, name, arguments as text). usage: as the provider reports it, if it
    does. whole: nothing is missing and nothing of it was unreadable."""

    content: str | None
    tool_calls: tuple[tuple[str, str, str], ...]
    finish_reason: str
    usage: dict[str, int] | None
    whole: bool


class _Function(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Part(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct):
    content: str | None = None
    tool_calls: list[_Part] | None = None


class _Choice(Struct):
    index: int = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Usage(Struct):
    prompt_tokens: int
    completion_tokens: int


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


def parse(body: str, ended: Ended, stream: bool) -> Said:
    """Read an answer of status 200 as far as it can be read: a stream up to its first unreadable event, a whole answer
    all or not at all."""
    reading = _Reading()
    if stream and not body.lstrip().startswith("{"):  # some endpoints answer in one piece all the same
        reading.stream(body)
    else:
        reading.feed(body)
        reading.over = reading.sound
    whole = reading.sound and reading.chosen and ended == "complete" and (reading.over or bool(reading.reason))
    return reading.said(whole)


class _Reading:
    """What has been read so far. sound: all of it could be read; over: it said itself that it ended; chosen: there was
    a choice in it, without which it is no answer, however it ended."""

    def __init__(self) -> None:
        self.sound, self.over, self.chosen, self.reason = True, False, False, ""
        self._content: str | None = None
        self._calls: dict[int, list[str]] = {}
        self._usage: dict[str, int] | None = None

    def stream(self, body: str) -> None:
        for line in body.splitlines():
            if not line.startswith("data:"):
                continue
            data = line[5:].strip()
            if data == "[DONE]":
                self.over = True
                return
            self.feed(data)
            if not self.sound:
                return

    def feed(self, text: str) -> None:
        try:
            chunk = msgspec.json.decode(text, type=_Chunk)
        except (msgspec.DecodeError, msgspec.ValidationError):
            self.sound = False
            return
        self.sound = chunk.error is None
        if chunk.usage is not None:
            self._usage = msgspec.to_builtins(chunk.usage)
        for choice in chunk.choices or ():
            if choice.index == 0:
                self.chosen = True
                self.reason = choice.finish_reason or self.reason
                self._add(choice.delta or choice.message or _Delta())

    def _add(self, delta: _Delta) -> None:
        if delta.content is not None:
            self._content = (self._content or "") + delta.content
        for position, part in enumerate(delta.tool_calls or ()):
            function = part.function or _Function()
            call = self._calls.setdefault(self._index(part, position), ["", "", ""])
            call[0] = part.id or call[0]
            call[1] = function.name or call[1]
            said = "" if function.arguments is None else function.arguments
            call[2] += said if isinstance(said, str) else msgspec.json.encode(said).decode()

    def _index(self, part: _Part, position: int) -> int:
        """Which call a part belongs to; some endpoints leave the number out and send each call in one piece."""
        if part.index is not None:
            return part.index
        return len(self._calls) if part.id else max(len(self._calls) - 1, position)

    def said(self, whole: bool) -> Said:
        calls = tuple((c[0], c[1], c[2]) for _, c in sorted(self._calls.items()))
        reason = self.reason or ("tool_calls" if calls else "stop")
        return Said(content=self._content, tool_calls=calls, finish_reason=reason, usage=self._usage, whole=whole)


def in_one_piece(said: Said) -> str:
    """A stream that says the same in one chunk."""
    calls = [
        {"index": n, "id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (ident, name, arguments) in enumerate(said.tool_calls)
    ]
    delta = {"content": said.content, **({"tool_calls": calls} if calls else {})}
    reason = said.finish_reason if said.whole else None
    chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}], "usage": said.usage}
    end = "data: [DONE]\n\n" if said.whole else ""
    return f"data: {msgspec.json.encode(chunk).decode()}\n\n{end}"
