"""The far end of the gateway: sends an effect to the real service, once, over the proxied network.

Why a connection of its own for each effect: a cut must harm the calls that it is aimed at and no later one, and only a
fresh connection can tell "refused before anything was sent" from "lost on the way".
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from typing import Any

import aiohttp
from msgspec import Struct

from harness.core.types import EffectCall, Err, Json, Ok, Outcome
from harness.world.live import gitwire, resp
from harness.world.live.native import REJECTED


class NoConnection(Exception):
    """No connection came about, so nothing was sent."""


NETWORK_ERRORS = (NoConnection, OSError, EOFError, aiohttp.ClientError, resp.ProtocolError)
"""What a broken network can raise; TimeoutError is an OSError, asyncio.IncompleteReadError an EOFError."""

NETWORK_DETAIL = {
    "connect-failure": "connection refused",
    "connection-reset": "connection reset by peer",
    "timeout": "timed out",
    "truncated": "the answer broke off",
}
"""By error code; without ports and class names, which differ from run to run and from what is injected."""


class Upstreams(Struct, frozen=True, kw_only=True):
    """Where the services are, as seen through the proxies. The base URLs contain the namespace, without a final slash.

    transport: host and port. repository: "" where there is no remote. hook: "" when nobody keeps count of hooks.
    """

    transport: tuple[str, int]
    database: str
    registry: str
    provider: str
    repository: str = ""
    hook: str = ""

    def base(self, boundary: str) -> str:
        """The base URL of a boundary that speaks HTTP."""
        return getattr(self, boundary).rstrip("/")


def session(timeout_s: float | None = None) -> aiohttp.ClientSession:
    """An HTTP client that reuses no connection and retries nothing. timeout_s: for a whole request; None: for ever."""
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=timeout_s))


async def perform(
    call: EffectCall,
    upstreams: Upstreams,
    ns: str,
    *,
    timeout_s: float | None = None,
    headers: Mapping[str, str] | None = None,
    enclosed: bytes = b"",
) -> Outcome:
    """Make an effect happen, and say what is known about it. Never raises for what a network or a service does.

    timeout_s: real seconds; None waits for ever. headers: further HTTP headers, e.g. an idempotency key. enclosed: what
    came with the effect beside its payload, the pack of a push.
    Ok: `value` is the JSON-able result, `receipt` the service's id of the mutation. Err: `connect-failure` and
    `http-<status>`, `sql-error`, `resp-error`, `rejected` did certainly not happen; `connection-reset`, `timeout`,
    `truncated` may have.
    """
    if call.boundary == "transport":
        return await _publish(call, upstreams.transport, ns, timeout_s)
    if call.boundary == "hook" and not upstreams.hook:
        return Err(code="no-such-service", definite=True, detail="nobody keeps count of hooks")
    if call.boundary == "repository":
        return await _push(call, upstreams, enclosed, timeout_s)
    method, url, body = _http(call, upstreams)
    try:
        async with session(timeout_s) as client, client.request(method, url, json=body, headers=headers) as response:
            raw = await response.read()
            return _outcome(call, response.status, response.content_type, raw)
    except NETWORK_ERRORS as error:
        return network_error(error)


async def _push(call: EffectCall, upstreams: Upstreams, pack: bytes, timeout_s: float | None) -> Outcome:
    """Ask the remote to move one reference, and read what its report says of it."""
    if not upstreams.repository:
        return Err(code="no-such-service", definite=True, detail="there is no remote")
    moved = {name: str(call.payload[name]) for name in ("old", "new", "ref")}
    command = gitwire.Command(**moved)
    kind = {"Content-Type": "application/x-git-receive-pack-request"}
    url = f"{upstreams.base('repository')}/{call.target}/git-receive-pack"
    try:
        async with (
            session(timeout_s) as client,
            client.post(url, data=gitwire.only(command, pack), headers=kind) as response,
        ):
            raw = await response.read()
    except NETWORK_ERRORS as error:
        return network_error(error)
    if response.status != 200:
        return _http_error(call, response.status, raw)
    try:
        why = gitwire.reported(raw, command.ref)
    except ValueError:
        return Err(code="truncated", definite=False, detail=NETWORK_DETAIL["truncated"])
    if why:
        return Err(code=REJECTED, definite=True, detail=why)
    return Ok(value=moved, receipt=f"{command.ref}@{command.new}")


def network_error(error: Exception) -> Err:
    """What an exception of the network says about the call that it ended."""
    match error:
        case aiohttp.ClientConnectorError() | NoConnection():
            code = "connect-failure"
        case TimeoutError():
            code = "timeout"
        case aiohttp.ClientPayloadError() | aiohttp.ClientResponseError() | resp.ProtocolError():
            code = "truncated"
        case asyncio.IncompleteReadError(partial=partial) if partial:
            code = "truncated"
        case _:
            code = "connection-reset"
    return Err(code=code, definite=code == "connect-failure", detail=NETWORK_DETAIL[code])


async def ask_resp(address: tuple[str, int], command: bytes, timeout_s: float | None) -> resp.Reply:
    """One command and its reply, over a connection of its own. Raises NETWORK_ERRORS.

    timeout_s: real seconds, None waits for ever.
    """
    async with asyncio.timeout(timeout_s):
        try:
            reader, writer = await asyncio.open_connection(*address)
        except OSError as error:
            raise NoConnection(str(error)) from error
        try:
            writer.write(command)
            await writer.drain()
            return await resp.read_reply(reader)
        finally:
            writer.transport.abort()  # a plain close would linger for as long as a cut holds back what is unsent


async def _publish(call: EffectCall, address: tuple[str, int], ns: str, timeout_s: float | None) -> Outcome:
    payload = call.payload
    fields = [part for field in payload.get("fields", {}).items() for part in field]
    if "event" in payload:
        fields = ["event", _text(payload["event"]), *fields]
    command = resp.command("XADD", f"{ns}:{call.target}", *payload.get("options", ["*"]), *fields)
    try:
        reply = await ask_resp(address, command, timeout_s)
    except NETWORK_ERRORS as error:
        return network_error(error)
    if isinstance(reply, bytes):
        return Ok(value=reply.decode(), receipt=reply.decode())
    detail = reply.text if isinstance(reply, resp.ReplyError) else "nothing was appended"
    return Err(code="resp-error", definite=True, detail=detail)


def _text(event: Json) -> str:
    return event if isinstance(event, str) else json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def _http(call: EffectCall, upstreams: Upstreams) -> tuple[str, str, Json]:
    base = upstreams.base(call.boundary)
    match call.boundary:
        case "database":
            return "POST", f"{base}/{call.target}/execute", call.payload
        case "registry":
            return "GET", f"{base}/files/{call.payload['file']}", None
        case (
            "provider"
        ):  # a whole answer, since it crosses the seam as a whole; the client gets its stream nevertheless
            whole = {key: value for key, value in call.payload.items() if key not in ("stream", "stream_options")}
            return "POST", f"{base}/v1/chat/completions", whole
    return "POST", f"{base}/{call.target}", call.payload


def _outcome(call: EffectCall, status: int, content_type: str, raw: bytes) -> Outcome:
    """The outcome that an HTTP answer stands for."""
    if status != 200:
        return _http_error(call, status, raw)
    if call.boundary == "registry":
        value = {"body_b64": base64.b64encode(raw).decode(), "content_type": content_type}
        return Ok(value=value, receipt=call.payload["file"])
    try:
        answer = json.loads(raw)
    except ValueError:
        return Err(code="truncated", definite=False, detail=NETWORK_DETAIL["truncated"])
    return Ok(value=answer, receipt=_receipt(call, answer))


def _receipt(call: EffectCall, answer: dict[str, Any]) -> str | None:
    if call.boundary == "database":
        row = answer.get("lastrowid")
        return None if row is None else f"{call.target}/{row}"
    return answer.get("id")


def _http_error(call: EffectCall, status: int, raw: bytes) -> Err:
    try:
        error = json.loads(raw)["error"]
        said = {"code": str(error.get("code")), "message": str(error.get("message"))}
    except (ValueError, KeyError, TypeError, AttributeError):
        said = {"code": "", "message": raw[:200].decode(errors="replace")}
    if call.boundary == "database" and status == 400:
        return Err(code="sql-error", definite=True, detail=f"{said['code']}: {said['message']}")
    return Err(code=f"http-{status}", definite=True, detail=said["message"])
