"""Spans as OTLP messages, written as the JSON lines of the OpenTelemetry file exporter, or posted to a collector.

Ids come from the trial's id and the span's key alone, and times from the start of the run, so that the same sealed run
gives the same bytes. The classes are the official ones; only ids are written otherwise than protobuf's JSON would,
since OTLP wants them in hexadecimal.
"""

from __future__ import annotations

import base64
import hashlib
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from harness.core.errors import ConfigError
from harness.telemetry.model import Attributes, Span

SCOPE = "agentmesh.telemetry"
SCOPE_VERSION = "1"
PATH = "/v1/traces"
RETRIED = (429, 502, 503, 504)
"""Answers after which the OTLP specification lets a client try again."""
TRIES = 4
WAIT_MAX_S = 30.0
TIMEOUT_S = 10.0
_IDS = ("traceId", "spanId", "parentSpanId")


def trace_id(trial_id: str) -> bytes:
    """16 bytes: the trace of a trial."""
    return hashlib.blake2b(trial_id.encode(), digest_size=16, person=b"agentmesh-trace").digest()


def span_id(trial_id: str, key: str) -> bytes:
    """8 bytes: a span of a trial."""
    return hashlib.blake2b(f"{trial_id}\0{key}".encode(), digest_size=8, person=b"agentmesh-span").digest()


def base_ns(started: str) -> int:
    """Nanoseconds of the epoch at which the trials of a run are shown to begin: when the run did."""
    try:
        moment = datetime.fromisoformat(started)
    except ValueError as error:
        raise ConfigError(f"the manifest's start of the run is no time: {started!r}") from error
    return int(moment.timestamp()) * 1_000_000_000


def request(trial_id: str, spans: Sequence[Span], begin_ns: int, resource: Attributes) -> ExportTraceServiceRequest:
    """The message of one trial. resource: what is said of all of its spans, beside the service's name."""
    about = {"service.name": "agentmesh", "agentmesh.time": "nominal", **resource}
    scope = trace_pb2.ScopeSpans(
        scope=InstrumentationScope(name=SCOPE, version=SCOPE_VERSION),
        spans=[_span(trial_id, span, begin_ns) for span in spans],
    )
    whole = trace_pb2.ResourceSpans(resource=Resource(attributes=_attributes(about)), scope_spans=[scope])
    return ExportTraceServiceRequest(resource_spans=[whole])


def _span(trial_id: str, span: Span, begin_ns: int) -> trace_pb2.Span:
    def ns(at_ms: float) -> int:
        return begin_ns + round(at_ms * 1_000_000)

    trace = trace_id(trial_id)
    code = trace_pb2.Status.STATUS_CODE_ERROR if span.error else trace_pb2.Status.STATUS_CODE_UNSET
    return trace_pb2.Span(
        trace_id=trace,
        span_id=span_id(trial_id, span.key),
        parent_span_id=span_id(trial_id, span.parent) if span.parent else b"",
        name=span.name,
        kind=trace_pb2.Span.SPAN_KIND_CLIENT if span.client else trace_pb2.Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=ns(span.start_ms),
        end_time_unix_nano=ns(span.end_ms),
        attributes=_attributes(span.attributes),
        events=[
            trace_pb2.Span.Event(name=m.name, time_unix_nano=ns(m.at_ms), attributes=_attributes(m.attributes))
            for m in span.marks
        ],
        links=[
            trace_pb2.Span.Link(
                trace_id=trace,
                span_id=span_id(trial_id, link.key),
                attributes=_attributes({"agentmesh.link.because": link.because}),
            )
            for link in span.links
        ],
        status=trace_pb2.Status(code=code, message=span.error),
    )


def _attributes(values: Attributes) -> list[KeyValue]:
    return [KeyValue(key=key, value=_any(value)) for key, value in values.items()]


def _any(value: str | bool | int | float) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    return AnyValue(double_value=value) if isinstance(value, float) else AnyValue(string_value=value)


# --- JSON ---------------------------------------------------------------------------------------------------------


def to_json(message: ExportTraceServiceRequest) -> str:
    """One line of OTLP JSON: numbers for enums, hexadecimal ids."""
    held = MessageToDict(message, use_integers_for_enums=True)
    _change_ids(held, lambda text: base64.b64decode(text).hex())
    return msgspec.json.encode(held).decode()


def from_json(line: str) -> ExportTraceServiceRequest:
    """The message of such a line."""
    held = msgspec.json.decode(line)
    _change_ids(held, lambda text: base64.b64encode(bytes.fromhex(text)).decode())
    return ParseDict(held, ExportTraceServiceRequest())


def _change_ids(message: dict[str, Any], change: Callable[[str], str]) -> None:
    """Write the ids of a message's spans and links otherwise, in place."""
    for resource in message.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                for one in (span, *span.get("links", ())):
                    one.update({name: change(one[name]) for name in _IDS if name in one})


# --- HTTP ---------------------------------------------------------------------------------------------------------


def post(endpoint: str, message: ExportTraceServiceRequest, headers: Mapping[str, str]) -> None:
    """Hand a message to a collector (OTLP over HTTP, binary). Busy ones are asked again, as long as they wish.

    endpoint: with or without the path /v1/traces. Raises ConfigError when it cannot be reached or refuses.
    """
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigError(
            "the endpoint is no URL of a collector", where=endpoint, allowed="http:// or https:// and a host"
        )
    url = endpoint if endpoint.rstrip("/").endswith(PATH) else endpoint.rstrip("/") + PATH
    sent = {"Content-Type": "application/x-protobuf", **headers}
    try:
        asked = urllib.request.Request(url, message.SerializeToString(), sent, method="POST")
    except ValueError as error:
        raise ConfigError(f"the endpoint is no URL: {error}", where=endpoint) from error
    for left in reversed(range(TRIES)):
        try:
            with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
                _accepted(answer.read(), url)
                return
        except urllib.error.HTTPError as error:
            if error.code not in RETRIED or not left:
                body = error.read(200).decode(errors="replace").strip()
                said = f"{error.code} {error.reason}" + (f": {body}" if body.isprintable() and body else "")
                raise ConfigError(f"the collector refused the spans: {said}", where=url) from error
            time.sleep(_wait_s(error.headers.get("Retry-After"), TRIES - left))
        except OSError as error:  # URLError is one
            reason = getattr(error, "reason", error)
            hint = "is a collector listening there? --out FILE writes the spans instead"
            raise ConfigError(f"the collector cannot be reached: {reason}", where=url, hint=hint) from error


def _wait_s(retry_after: str | None, tries: int) -> float:
    asked = float(retry_after) if retry_after and retry_after.strip().isdigit() else 0.5 * 2 ** (tries - 1)
    return min(asked, WAIT_MAX_S)


def _accepted(body: bytes, url: str) -> None:
    """Raises ConfigError when the collector says that it dropped some spans."""
    try:
        partial = ExportTraceServiceResponse.FromString(body).partial_success
    except DecodeError:
        return  # it answered 2xx, and in another format: nothing more is known
    if partial.rejected_spans:
        problem = f"the collector rejected {partial.rejected_spans} spans: {partial.error_message}"
        raise ConfigError(problem, where=url)
