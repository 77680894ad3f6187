"""What a provider says, and how it looks on the wire: whole or in the chunks of a stream, in order or broken off.

Why apart from the server: who speaks and what is billed is decided there; the protocol's forms are the same for all.

Source of fields, error bodies and headers: the OpenAI API reference (chat completions).
"""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal

import msgspec
from aiohttp import web

Json = dict[str, Any]
Status = Literal[429, 500, 503]

CREATED_S = 1_760_000_000  # ``created`` of completion n is this plus n, so that no answer depends on the clock
PIECES = 4  # into how many deltas a streamed text or a tool call's arguments are split when they are long enough
LIMITS = {"x-ratelimit-limit-requests": "10000", "x-ratelimit-remaining-requests": "9999"}
ERRORS = {
    429: ("Rate limit reached for requests", "requests", "rate_limit_exceeded"),
    500: ("The server had an error while processing your request", "server_error", None),
    503: ("The engine is currently overloaded, please try again later", "service_unavailable", None),
}


class ToolCallSpec(msgspec.Struct, frozen=True):
    """One tool call of the model; the arguments are JSON text and are sent as they are. ident: "" has one made."""

    name: str
    arguments_json: str
    ident: str = ""


class Completion(msgspec.Struct, frozen=True):
    """What the model says. drifting: it is in a loop that leads nowhere, which the truth alone is told.

    Of a model elsewhere: ident, the completion's id; usage, {prompt_tokens, completion_tokens} as it was billed there,
    if that was told; whole, whether its answer came to an end, without which nobody gets one here either; headers, its
    limits.
    """

    content: str | None = None
    tool_calls: tuple[ToolCallSpec, ...] = ()
    finish_reason: str = "stop"
    drifting: bool = False
    ident: str = ""
    usage: dict[str, int] | None = None
    whole: bool = True
    headers: dict[str, str] = {}

    def tokens(self) -> int:
        """Our own count of what is said: ceil(UTF-8 bytes / 4) of content plus tool calls."""
        return spoken_tokens(completion(self.ident, 0, "", self)["choices"][0]["message"])


class Declined(msgspec.Struct, frozen=True):
    """A model elsewhere did not answer: its error, which is passed on as it is. status 0: the connection was lost."""

    status: int
    headers: dict[str, str] = {}
    body: str = ""


def spoken_tokens(message: Json) -> int:
    """Tokens of a message: ceil(UTF-8 bytes / 4) of its content plus its tool calls."""
    spoken = (message["content"] or "").encode() + msgspec.json.encode(message.get("tool_calls", msgspec.Raw()))
    return -(-len(spoken) // 4)


def without_end(pieces: list[bytes]) -> list[bytes]:
    """An answer that breaks off: a stream without the reason of its end and all that follows, a whole one in the
    middle."""
    if len(pieces) == 1:
        return [pieces[0][: len(pieces[0]) // 2]]
    return [piece for piece in pieces[:-1] if b'"finish_reason":null' in piece]


def completion(ident: str, n: int, model: str, said: Completion) -> Json:
    """The completion object, without usage. Tool call ids have one length, so that no name can change a token count."""
    message: Json = {"role": "assistant", "content": said.content}
    if said.tool_calls:
        message["tool_calls"] = []
    for index, spec in enumerate(said.tool_calls):
        made = "call_" + hashlib.sha256(f"{ident}-{index}".encode()).hexdigest()[:24]
        function = {"name": spec.name, "arguments": spec.arguments_json}
        message["tool_calls"].append({"id": spec.ident or made, "type": "function", "function": function})
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": said.finish_reason}
    return {"id": ident, "object": "chat.completion", "created": CREATED_S + n, "model": model, "choices": [choice]}


def chunks(answer: Json, include_usage: bool) -> Iterator[Json]:
    """The chunks of a streamed answer: role, content, tool calls, finish reason and, when asked for, usage."""
    head = {key: answer[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    tail = {"usage": None} if include_usage else {}
    message = answer["choices"][0]["message"]
    deltas: list[Json] = [{"role": "assistant", "content": "" if message["content"] else None}]
    deltas += [{"content": piece} for piece in _split(message["content"] or "")]
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        deltas.append({"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]})
        parts = [{"index": index, "function": {"arguments": piece}} for piece in _split(function["arguments"])]
        deltas += [{"tool_calls": [part]} for part in parts]
    reasons = [None] * len(deltas) + [answer["choices"][0]["finish_reason"]]
    for delta, reason in zip([*deltas, {}], reasons, strict=True):
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **tail}
    if include_usage:
        yield {**head, "choices": [], "usage": answer["usage"]}


def _split(text: str) -> list[str]:
    size = max(1, -(-len(text) // PIECES))
    return [text[start : start + size] for start in range(0, len(text), size)]


async def write(request: web.Request, response: web.StreamResponse, pieces: list[bytes], whole: bool = True) -> int:
    """Send the pieces one by one and return the bytes that went out; fewer than all if the client left. whole: the
    answer ends with them; otherwise the connection breaks off there."""
    written = 0
    with suppress(ConnectionError):
        if request.transport is not None:
            request.transport.set_write_buffer_limits(high=0)  # so that waiting for the socket means an empty buffer
        await response.prepare(request)
        for piece in pieces[:-1] if whole else pieces:
            await response.write(piece)
            written += len(piece)
        if not whole:
            _hang_up(request)
            return written
        await response.write_eof(pieces[-1])
        if request.transport is not None and not request.transport.is_closing():
            written += len(pieces[-1])
    return written


def _hang_up(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()  # after what has been written, which an abort would lose


async def declined(request: web.Request, said: Declined) -> web.StreamResponse:
    """The error of a model elsewhere, or the loss of its connection."""
    if not said.status:
        _hang_up(request)
        return web.StreamResponse()
    response = web.Response(text=said.body, status=said.status, content_type="application/json")
    response.headers.update(said.headers)
    return response


def as_json(value: Any, status: int = 200) -> web.Response:
    """A value as the body of an answer."""
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def refusal(status: int, message: str, kind: str = "invalid_request_error", code: str | None = None) -> web.Response:
    """An error in the protocol's form."""
    return as_json({"error": {"message": message, "type": kind, "param": None, "code": code}}, status)


def rejection(status: int, retry_after_s: float | None) -> web.Response:
    """The error of an armed failure. retry_after_s: in real seconds, goes into its headers."""
    response = refusal(status, *ERRORS[status])
    response.headers.update(LIMITS | ({"x-ratelimit-remaining-requests": "0"} if status == 429 else {}))
    if retry_after_s is not None:
        response.headers["retry-after"] = f"{retry_after_s:g}"
        response.headers["retry-after-ms"] = f"{retry_after_s * 1000:g}"
    return response
