"""Toxiproxy's wire form: request bodies read, errors and toxics written, as its Go server does it.

Clients match on these texts, and a mistyped fault must be refused in the same way by both servers.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, overload

from aiohttp import web

from harness.world.live.toxics import KINDS
from harness.world.live.toxilink import DOWNSTREAM, UPSTREAM
from harness.world.live.toxiport import Proxy, ProxyError
from harness.world.live.toxistage import Toxic

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PROXY_FIELDS = {"name": "string", "listen": "string", "upstream": "string", "enabled": "bool"}
NEW_PROXY = {"name": "", "listen": "", "upstream": "", "enabled": True}
TOXIC_FIELDS = {"name": "string", "type": "string", "stream": "string", "toxicity": "float32", "attributes": "object"}
UPDATE_FIELDS = {"toxicity": "float32", "attributes": "object"}
INT64_END, FLOAT32_END = 1 << 63, 3.5e38
_JSON_NAMES = {bool: "bool", str: "string", int: "number", float: "number", list: "array", dict: "object"}


class ApiError(Exception):
    """An answer that is not a success. status: the HTTP status, also part of the body."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.message, self.status = message, status


def read_proxy(body: bytes) -> dict[str, Any]:
    """The fields of a proxy to create. Raises ApiError."""
    fields = decode(body, "Proxy", PROXY_FIELDS, NEW_PROXY)
    for required in ("name", "upstream"):
        if not fields[required]:
            raise ApiError(f"missing required field: {required}", 400)
    return fields


def read_population(body: bytes) -> list[dict[str, Any]]:
    """The proxies of a list to populate. Raises ApiError."""
    population = decode(body, "Proxy", PROXY_FIELDS, NEW_PROXY, many=True)
    for place, fields in enumerate(population, start=1):
        for required in ("name", "upstream"):
            if not fields[required]:
                raise ApiError(f"missing required field: {required} at proxy {place}", 400)
    return population


def read_toxic(body: bytes, present: Mapping[str, Toxic]) -> Toxic:
    """The toxic that a request wants to add to those `present`. Raises ApiError."""
    defaults = {"name": "", "type": "", "stream": "downstream", "toxicity": 1.0, "attributes": {}}
    fields = decode(body, "ToxicWrapper", TOXIC_FIELDS, defaults)
    if fields["stream"].lower() not in (UPSTREAM, DOWNSTREAM):
        raise ApiError("stream was invalid, can be either upstream or downstream", 400)
    if fields["type"] not in KINDS:
        raise ApiError("invalid toxic type", 400)
    name = fields["name"] or f"{fields['type']}_{fields['stream']}"
    if name in present:
        raise ApiError("toxic already exists", 409)
    attributes = _attributes(fields["type"], fields["attributes"], dict.fromkeys(KINDS[fields["type"]].fields, 0))
    return Toxic(name, fields["type"], fields["stream"], fields["toxicity"], attributes)


def update_toxic(body: bytes, toxic: Toxic) -> Toxic:
    """The toxic with the attributes and the toxicity that a request changes. Raises ApiError."""
    fields = decode(body, "", UPDATE_FIELDS, {"toxicity": toxic.toxicity, "attributes": {}})
    attributes = _attributes(toxic.type, fields["attributes"], toxic.attributes)
    return Toxic(toxic.name, toxic.type, toxic.stream, fields["toxicity"], attributes)


def encode_toxic(toxic: Toxic) -> dict[str, Any]:
    """As Toxiproxy shows it, with its order of keys and without a decimal point in whole numbers."""
    toxicity = int(toxic.toxicity) if toxic.toxicity == int(toxic.toxicity) else toxic.toxicity
    return {
        "attributes": dict(toxic.attributes),
        "name": toxic.name,
        "type": toxic.type,
        "stream": toxic.stream,
        "toxicity": toxicity,
    }


def encode_proxy(proxy: Proxy) -> dict[str, Any]:
    """As Toxiproxy shows it, without the empty "Logger" that 2.12 adds by mistake."""
    return {
        "name": proxy.name,
        "listen": proxy.listen,
        "upstream": proxy.upstream,
        "enabled": proxy.enabled,
        "toxics": encode_toxics(proxy),
    }


def encode_toxics(proxy: Proxy) -> list[dict[str, Any]]:
    """In Toxiproxy's order: all of the upstream first, then all of the downstream."""
    return [
        encode_toxic(toxic)
        for stream in (UPSTREAM, DOWNSTREAM)
        for toxic in proxy.toxics.values()
        if toxic.direction == stream
    ]


@overload
def decode(
    body: bytes, owner: str, fields: Mapping[str, str], defaults: Mapping[str, Any], *, many: Literal[False] = False
) -> dict[str, Any]: ...
@overload
def decode(
    body: bytes, owner: str, fields: Mapping[str, str], defaults: Mapping[str, Any], *, many: Literal[True]
) -> list[dict[str, Any]]: ...
def decode(
    body: bytes, owner: str, fields: Mapping[str, str], defaults: Mapping[str, Any], *, many: bool = False
) -> Any:
    """The fields of the one object in a body, or of `many` in an array. Missing and null ones keep their default.

    fields: name to Go type; owner: the Go struct, for the message. Unknown fields and anything after the first value
    are ignored, as Go's decoder does. Raises ApiError (400).
    """
    value = _first_value(body)
    if many:
        items = [] if value is None else value
        if not isinstance(items, list):
            raise _mismatch(value, f"Go value of type []toxiproxy.{owner}")
        return [_object(item, owner, "", fields, defaults) for item in items]
    return _object(value, owner, "", fields, defaults)


def _first_value(body: bytes) -> Any:
    text = body.decode("utf-8", errors="replace").lstrip(" \t\r\n")
    if not text:
        raise _bad("EOF")
    try:
        return json.JSONDecoder(parse_constant=_no_constant).raw_decode(text)[0]
    except RecursionError:
        raise _bad("exceeded max depth") from None
    except json.JSONDecodeError as error:
        rest = text[error.pos :].strip()
        if not rest or error.msg.startswith("Unterminated"):
            raise _bad("unexpected EOF") from None
        raise _bad(f"invalid character {rest[0]!r} looking for beginning of value") from None
    except ValueError:  # a number of more digits than Python converts
        raise _bad("json: number out of range") from None


def _no_constant(name: str) -> None:
    raise _bad(f"invalid character {name[0]!r} looking for beginning of value")  # NaN and Infinity are not JSON


def _attributes(kind: str, given: Mapping[str, Any], defaults: Mapping[str, int]) -> dict[str, int]:
    attributes = _object(given, KINDS[kind].go_name, "attributes.", KINDS[kind].fields, defaults)
    if kind == "slicer" and attributes["average_size"] <= 0:  # the original accepts it, then never ends
        raise _bad("average_size must be greater than 0")
    return attributes


def _object(
    value: Any, owner: str, path: str, fields: Mapping[str, str], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    if value is None:
        return dict(defaults)
    if not isinstance(value, dict):
        raise _mismatch(value, f"Go value of type toxiproxy.{owner}")
    result = dict(defaults)
    spelled = {name.lower(): name for name in fields}
    for key, item in value.items():
        name = spelled.get(key.lower())  # Go matches keys without regard to case
        if name is None or item is None:
            continue
        if not _fits(item, fields[name]):
            shown = "toxics.NoopToxic" if fields[name] == "object" else fields[name]
            raise _mismatch(item, f"Go struct field {owner}.{path}{name} of type {shown}")
        result[name] = float(item) if fields[name] == "float32" else item
    return result


def _fits(item: Any, go_type: str) -> bool:
    if go_type == "float32":
        return type(item) in (int, float) and abs(item) < FLOAT32_END
    if go_type in ("int", "int64"):
        return type(item) is int and abs(item) < INT64_END
    return type(item) is {"string": str, "bool": bool, "object": dict}[go_type]


def _mismatch(item: Any, target: str) -> ApiError:
    numeric = type(item) in (int, float) and target.endswith(("int", "int64", "float32"))
    shown = f"number {item}" if numeric else _JSON_NAMES[type(item)]
    return _bad(f"json: cannot unmarshal {shown} into {target}")


def _bad(reason: str) -> ApiError:
    return ApiError(f"bad request body: {reason}", 400)


def json_answer(data: object, status: int = 200) -> web.Response:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return web.Response(body=text.encode(), status=status, content_type="application/json")


def _text(text: str, status: int) -> web.Response:
    headers = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
    return web.Response(body=f"{text}\n".encode(), status=status, headers=headers)


@web.middleware
async def answer_like_go(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors in the form of Go's http.Error; browsers are refused, so that no web page can drive the proxy."""
    if request.headers.get("User-Agent", "").startswith("Mozilla/"):
        return _text("User agent not allowed", 403)
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return _text("404 page not found", 404)
    except web.HTTPMethodNotAllowed:
        return web.Response(status=405)
    except ProxyError as error:
        failure = ApiError(str(error), 500)
    except ApiError as error:
        failure = error
    body = json.dumps({"error": failure.message, "status": failure.status}, separators=(",", ":"), ensure_ascii=False)
    return _text(body, failure.status)
