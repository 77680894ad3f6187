"""What a client's request means as an effect, and what an outcome looks like in the client's own protocol.

Why pure functions in one place: the same translation serves an effect that really happened, one that an arm vouches
for out of its ledger, and one that failed, so a client cannot tell them apart by the form of the answer.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from harness.core.types import Err, Json, Ok, Outcome, Refused
from harness.world.live import gitwire
from harness.world.live.resp import Reply, ReplyError

JSON_TYPE = "application/json"


class Request(Struct, frozen=True):
    """An effect that a client asks for; the fields are those of `EffectCall`."""

    boundary: str
    operation: str
    target: str
    payload: dict[str, Json]


class HttpReply(Struct, frozen=True):
    """An answer over HTTP."""

    status: int
    body: bytes
    content_type: str = JSON_TYPE


# --- requests -----------------------------------------------------------------------------------------------------


def http_request(method: str, boundary: str, path: str, body: bytes, origin: str) -> Request | None:
    """The effect that an HTTP request asks for; None when it asks for none. `path` is what follows the boundary.

    Raises ValueError when the body is not the JSON object that it should be.
    """
    match boundary, method:
        case "registry", "GET" if path.startswith("files/") and not path.endswith(".metadata"):
            return _fetch(path.removeprefix("files/"))
        case "database", "POST" if path.endswith("/execute"):
            asked = _object(body)
            payload = {"sql": str(asked.get("sql", "")), "params": asked.get("params", [])}
            return None if is_read(payload["sql"]) else Request(boundary, "execute", path[: -len("/execute")], payload)
        case "provider", "POST" if path == "v1/chat/completions":
            asked = _object(body)
            return Request(boundary, "chat", str(asked.get("model", "")), asked)
        case "hook", "POST":
            return Request(boundary, "run", path or origin, _object(body or b"{}"))
    return None


def _object(body: bytes) -> dict[str, Json]:
    value = json.loads(body)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _fetch(file: str) -> Request:
    """The download of a wheel or source archive. Source of the naming: PEP 427 and PEP 503."""
    stem = re.sub(r"\.(whl|zip|tar\.\w+)$", "", file)
    name, _, rest = stem.partition("-") if file.endswith(".whl") else stem.rpartition("-")
    project = re.sub(r"[-_.]+", "-", name).lower()
    return Request("registry", "fetch", project, {"package": project, "version": rest.partition("-")[0], "file": file})


_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_READ = re.compile(r"[\s(]*(SELECT|WITH|PRAGMA|EXPLAIN)\b", re.IGNORECASE)
_WRITE = re.compile(
    r"\b(INSERT\s+(OR\s+\w+\s+)?INTO|REPLACE\s+INTO|DELETE\s+FROM|UPDATE\s+.*\bSET)\b", re.I | re.DOTALL
)


def is_read(sql: str) -> bool:
    """Whether a statement only reads; `WITH ... INSERT` writes, whatever its first word promises."""
    bare = _QUOTED.sub(" ", sql)
    return bool(_READ.match(bare)) and not _WRITE.search(bare)


def xadd(parts: Sequence[bytes]) -> Request | ReplyError:
    """The event that an XADD command publishes: `payload.event` is the decoded JSON of its field `event`, other fields
    are under `fields`, and whatever stands between key and fields, unless it is a plain `*`, under `options`."""
    words = [part.decode(errors="replace") for part in parts]
    at = 2
    while at < len(words) and words[at].upper() in ("NOMKSTREAM", "MAXLEN", "MINID", "LIMIT"):
        flag = words[at].upper() == "NOMKSTREAM"
        at += 1 if flag else 3 if words[at + 1 : at + 2] in (["="], ["~"]) else 2
    options, fields = words[2 : at + 1], words[at + 1 :]
    if not fields or len(fields) % 2:
        return ReplyError("ERR wrong number of arguments for 'xadd' command")
    payload: dict[str, Json] = {}
    others = dict(zip(fields[::2], fields[1::2], strict=True))
    if "event" in others:
        payload["event"] = _event(others.pop("event"))
    if others:
        payload["fields"] = others
    if options != ["*"]:
        payload["options"] = options
    return Request("transport", "XADD", words[1], payload)


def _event(text: str) -> Json:
    """Text that is no JSON object or array stays text, so that it is sent on as it came."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (dict, list)) else text


def push(remote: str, command: gitwire.Command, said: gitwire.Told) -> Request:
    """The move of one reference that a push asks for. said: of the commit or tag that it is to be at."""
    moved = {"ref": command.ref, "old": command.old, "new": command.new, "tree": said.tree, "message": said.message}
    return Request("repository", command.operation, remote, moved)


# --- replies ------------------------------------------------------------------------------------------------------


def resp_reply(outcome: Outcome) -> Reply:
    """The reply to an XADD: the id of the entry, or an error."""
    match outcome:
        case Ok(receipt=str(receipt)):
            return receipt.encode()
        case Ok(value=str(value)):
            return value.encode()
        case Ok():
            return ReplyError("ERR no-result")
        case Err():
            return ReplyError(f"ERR {outcome.code} {outcome.detail}".rstrip())
        case Refused():
            return ReplyError(f"ERR refused {outcome.verdict}")


def push_reply(asked: gitwire.PushRequest, outcomes: Sequence[Outcome]) -> HttpReply:
    """The answer to a push of several references: a report, whether the remote moved them, refused to, or an arm
    vouches for it; an error of HTTP as soon as the network lost one."""
    lost = next((o for o in outcomes if isinstance(o, Err) and o.code != REJECTED), None)
    if lost is not None:
        return http_reply(Request("repository", "push", "", {}), lost)
    reasons = [_not_moved(outcome) for outcome in outcomes]
    results = zip((command.ref for command in asked.commands), reasons, strict=True)
    body = gitwire.report(results, asked.capabilities) if outcomes else b""
    return HttpReply(200, body, "application/x-git-receive-pack-result")


REJECTED = "rejected"
"""Error code of a reference that the remote did not move."""


def _not_moved(outcome: Outcome) -> str:
    match outcome:
        case Refused():
            return f"refused {outcome.verdict}"
        case Err():
            return outcome.detail
    return ""


_STATUS = {"connect-failure": 503, "timeout": 504, "sql-error": 400}


def http_reply(request: Request, outcome: Outcome) -> HttpReply:
    """The answer to an HTTP request for an effect."""
    match outcome:
        case Ok():
            return _ok(request, outcome)
        case Refused():
            return failure(409, str(outcome.verdict), outcome.because)
        case Err(code="sql-error"):
            code, _, message = outcome.detail.partition(": ")
            return failure(400, code, message)
        case Err():
            status = re.fullmatch(r"http-(\d{3})", outcome.code)
            return failure(int(status[1]) if status else _STATUS.get(outcome.code, 502), outcome.code, outcome.detail)


def failure(status: int, code: str, message: str) -> HttpReply:
    """An error answer, in the form that all services share."""
    return HttpReply(status, json.dumps({"error": {"code": code, "message": message or code}}).encode())


def _ok(request: Request, outcome: Ok) -> HttpReply:
    """A success in the boundary's own form. An arm that vouches without a result is believed where the form can be
    made up from the receipt (database, hook); where the client needs what is not there, it gets an error."""
    value = outcome.value
    match request.boundary:
        case "database":
            return HttpReply(200, json.dumps(value if isinstance(value, dict) else _written(outcome)).encode())
        case "registry" if isinstance(value, dict):
            return HttpReply(200, base64.b64decode(value["body_b64"]), value["content_type"])
        case "provider" if isinstance(value, dict):
            if request.payload.get("stream"):
                return HttpReply(200, b"".join(sse(value, request.payload)), "text/event-stream")
            return HttpReply(200, json.dumps(value).encode())
        case "hook":
            return HttpReply(200, json.dumps(value if value is not None else {"receipt": outcome.receipt}).encode())
    return failure(502, "no-result", "the effect is known to have happened, but not its result")


def _written(outcome: Ok) -> dict[str, Json]:
    row = (outcome.receipt or "").rpartition("/")[2]
    return {"columns": [], "rows": [], "rowcount": 1, "lastrowid": int(row) if row.isdecimal() else None}


def sse(completion: dict[str, Any], asked: dict[str, Any]) -> Iterator[bytes]:
    """A chat completion as the stream of chunks that a client asked for. Source: OpenAI API reference, streaming."""
    head = {key: completion.get(key) for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    for choice in completion.get("choices", []):
        message = dict(choice["message"])
        if calls := message.get("tool_calls"):
            message["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
        for delta, reason in ((message, None), ({}, choice.get("finish_reason"))):
            chunk = {**head, "choices": [{"index": choice.get("index", 0), "delta": delta, "finish_reason": reason}]}
            yield f"data: {json.dumps(chunk)}\n\n".encode()
    if (asked.get("stream_options") or {}).get("include_usage"):
        yield f"data: {json.dumps({**head, 'choices': [], 'usage': completion.get('usage')})}\n\n".encode()
    yield b"data: [DONE]\n\n"
