"""OpenTelemetry export, read back by the official classes: parents, links, states of effects, and a real receiver."""

from __future__ import annotations

import functools
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from handmade import Build, Story, Toy, want
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from sealedrun import sealed_run
from typer.testing import CliRunner

from harness.commands import telemetry as command
from harness.core.errors import ConfigError
from harness.core.records import SealedTrial
from harness.score import score
from harness.telemetry import export, otlp
from harness.telemetry.blame import BEFORE, STRUCK_ALL, STRUCK_CAUSE, STRUCK_DELEGATION, STRUCK_EARLIER
from harness.telemetry.model import Span
from harness.telemetry.spans import spans
from harness.trace_store import TraceStore

NS = 1_000_000


def value(message: Any, name: str) -> Any:
    """An attribute of a span, an event or a link; None where it has none of this name."""
    for pair in message.attributes:
        if pair.key == name:
            return getattr(pair.value, pair.value.WhichOneof("value"))
    return None


@functools.cache
def lines() -> tuple[str, ...]:
    with TraceStore.open(sealed_run()) as store:
        return tuple(otlp.to_json(message) for message in export.messages(store, store.records()))


@functools.cache
def traces() -> dict[str, tuple[Message, ...]]:
    """The spans of every trial, through JSON and back."""
    found = {}
    for line in lines():
        (resource,) = otlp.from_json(line).resource_spans
        (scope,) = resource.scope_spans
        (root,) = [span for span in scope.spans if not span.parent_span_id]
        found[value(root, "agentmesh.trial.id")] = tuple(scope.spans)
    return found


def sealed(trial_id: str) -> SealedTrial:
    with TraceStore.open(sealed_run()) as store:
        return store.read(trial_id)


# --- the whole run ------------------------------------------------------------------------------------------------


def test_every_trial_is_a_trace_of_its_own() -> None:
    with TraceStore.open(sealed_run()) as store:
        ids = [record.id for record in store.records()]
    assert list(traces()) == ids
    numbers = set()
    for trial, found in traces().items():
        (trace,) = {span.trace_id for span in found}
        assert trace == otlp.trace_id(trial)
        assert len(trace) == 16
        numbers.add(trace)
        assert len({span.span_id for span in found}) == len(found)
        assert all(len(span.span_id) == 8 and any(span.span_id) for span in found)
    assert len(numbers) == len(ids)


def test_parents_are_there_come_first_and_begin_no_later() -> None:
    for found in traces().values():
        seen: dict[bytes, Message] = {}
        for span in found:
            assert span.end_time_unix_nano >= span.start_time_unix_nano
            if span.parent_span_id:
                parent = seen[span.parent_span_id]
                assert parent.start_time_unix_nano <= span.start_time_unix_nano
            seen[span.span_id] = span


def test_links_point_to_spans_of_faults_that_had_fired() -> None:
    some = 0
    for found in traces().values():
        by_id = {span.span_id: span for span in found}
        for span in found:
            for link in span.links:
                some += 1
                fault = by_id[link.span_id]
                assert link.trace_id == span.trace_id
                assert fault.name.startswith("fault ")
                assert value(link, "agentmesh.link.because")
                fired = [event.time_unix_nano for event in fault.events if event.name == "fired"]
                assert fired
                assert min(fired) <= span.end_time_unix_nano
    assert some


def test_every_duplicate_links_to_a_fault_and_there_are_as_many_as_findings_say() -> None:
    surplus: dict[str, int] = {}
    for line in (sealed_run() / "findings.jsonl").read_text().splitlines():
        f = json.loads(line)
        surplus[f["trial"]] = surplus.get(f["trial"], 0) + (
            max(0, f["observed"] - f["required"]) if f["required"] else 0
        )
    assert sum(surplus.values())
    for trial, found in traces().items():
        duplicates = [span for span in found if value(span, "agentmesh.effect.duplicate")]
        assert len(duplicates) == surplus.get(trial, 0)
        fired = [e.time_unix_nano for span in found for e in span.events if e.name == "fired"]
        for span in duplicates:
            before = [at for at in fired if at <= span.start_time_unix_nano]
            assert bool(span.links) is bool(before)
            assert value(span, "agentmesh.effect.unprovoked") is (not before)
            assert span.status.code == Status.STATUS_CODE_ERROR
    assert all(span.links for found in traces().values() for span in found if value(span, "agentmesh.effect.duplicate"))


def test_nothing_of_a_trial_is_left_out() -> None:
    for trial_id, found in traces().items():
        trial = sealed(trial_id)
        names = [span.name for span in found]
        count = {kind: sum(e.kind == kind for e in trial.trace) for kind in ("call", "attempt")}
        assert sum(value(span, "agentmesh.call.kind") is not None for span in found) == count["call"]
        assert sum(name.startswith("invoke_agent ") for name in names) == count["attempt"]
        crossed = sum(e.kind == "crossed" for e in trial.truth)
        durable = sum(e.kind == "effect" for e in trial.truth)
        assert sum(value(span, "agentmesh.effect.state") == "crossed" for span in found) == crossed
        positions = {value(s, "agentmesh.effect.position") for s in found if "agentmesh.effect.position" in str(s)}
        assert len(positions) == durable
        assert sum(name.startswith("fault ") for name in names) == trial.record.faults_scheduled


def test_a_model_call_speaks_the_conventions_of_generative_ai() -> None:
    bills = {e.data["completion"]: e.data for t in traces() for e in sealed(t).truth if e.kind == "billed"}
    calls = [span for found in traces().values() for span in found if span.name.startswith("chat")]
    assert calls
    used = 0
    for span in calls:
        assert value(span, "gen_ai.operation.name") == "chat"
        assert value(span, "gen_ai.agent.name")
        assert span.kind == Message.SPAN_KIND_CLIENT
        if value(span, "gen_ai.usage.input_tokens") is not None:
            used += 1
            assert value(span, "gen_ai.response.id") in bills
    assert used > len(calls) / 2
    tools = [span for found in traces().values() for span in found if span.name.startswith("execute_tool")]
    assert tools
    assert all(value(s, "gen_ai.tool.name") and value(s, "gen_ai.tool.call.id") for s in tools)


def test_times_are_those_of_the_logs_from_the_start_of_the_run() -> None:
    begin = otlp.base_ns(json.loads((sealed_run() / "manifest.json").read_text())["started"])
    trial_id, found = next(iter(traces().items()))
    asked = {e.data["call_id"]: e.at_ms for e in sealed(trial_id).trace if e.kind == "call"}
    for span in found:
        call_id = value(span, "agentmesh.call.call_id")
        if value(span, "agentmesh.call.kind"):
            assert span.start_time_unix_nano == begin + round(asked[call_id] * NS)


def test_the_same_run_gives_the_same_bytes() -> None:
    with TraceStore.open(sealed_run()) as store:
        again = [otlp.to_json(message) for message in export.messages(store, store.records()[:3])]
    assert again == list(lines()[:3])


def test_ids_are_hexadecimal_in_json() -> None:
    (resource,) = json.loads(lines()[0])["resourceSpans"]
    span = resource["scopeSpans"][0]["spans"][1]
    assert bytes.fromhex(span["traceId"]) == otlp.trace_id(next(iter(traces())))
    assert len(span["spanId"]) == len(span["parentSpanId"]) == 16
    assert isinstance(span["kind"], int)
    assert {a["key"] for a in resource["resource"]["attributes"]} >= {"service.name", "agentmesh.arm"}


# --- trials written by hand ---------------------------------------------------------------------------------------


def told(b: Build, **record: Any) -> dict[str, Span]:
    trial = b.seal(**record)
    findings = score(trial, Toy(want("k"))).findings
    found = spans(trial, findings)
    assert len({span.key for span in found}) == len(found)
    return {span.key: span for span in found}


def states(found: dict[str, Span]) -> list[str]:
    return [
        str(s.attributes["agentmesh.effect.state"]) for s in found.values() if "agentmesh.effect.state" in s.attributes
    ]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (dict(), ["asked", "crossed", "durable", "recorded"]),
        (dict(crossed=0, commits=0), ["asked", "recorded"]),
        (dict(crossed=2, commits=1), ["asked", "crossed", "crossed", "durable", "recorded"]),
        (dict(crossed=0, commits=0, said="refused"), ["asked", "refused"]),
        (dict(crossed=1, commits=0, said="err"), ["asked", "crossed", "failed"]),
        (dict(crossed=1, commits=1, said=""), ["asked", "crossed", "durable", "in_doubt"]),
        (dict(crossed=0, commits=0, said=""), ["asked", "abandoned"]),
    ],
)
def test_an_effect_goes_through_its_states(how: dict, expected: list[str]) -> None:
    b = Build()
    b.ask("k", **how)
    found = told(b)
    assert states(found) == expected
    chain = [span for span in found.values() if "agentmesh.effect.state" in span.attributes]
    assert all(a.end_ms == b.start_ms for a, b in itertools.pairwise(chain))
    assert {span.parent for span in chain} == {"call/c0"}


def test_what_a_ledger_says_is_a_state() -> None:
    b = Build()
    site = {"delegation": "d", "phase": "p", "seam": "S2", "name": "transport"}
    call = {"call": "effect", "call_id": "c", "site": site, "attempt": 1, "boundary": "transport", "operation": "put"}
    b.note("call", **call, target="x", payload={"names": ["k"]})
    b.note("note", note="ledger", state="reserved", call_id="c")
    b.really("crossed", call_id="c", boundary="transport", attempt=1, delegation="d", phase="p")
    b.note("note", note="ledger", state="doubted", call_id="c")
    b.really("effect", boundary="transport", names=["k"], receipt="r")
    b.note("note", note="ledger", state="recorded", call_id="c")
    b.note("outcome", call_id="c", result="ok", verdict="reconciled", code="", definite=True, receipt="r")
    assert states(told(b)) == ["asked", "reserved", "crossed", "in_doubt", "durable", "recorded", "reconciled"]


def test_a_note_of_doubt_is_a_state_where_one_call_alone_can_be_meant() -> None:
    b = Build()
    site = {"delegation": "d", "phase": "p", "seam": "S2", "name": "transport"}
    call = {"call": "effect", "site": site, "attempt": 1, "boundary": "transport", "operation": "put", "target": "x"}
    b.note("call", **call, call_id="c", payload={"names": ["k"]})
    b.note("note", note="in-doubt", boundary="transport", says="absent")
    b.note("note", note="in-doubt", boundary="database", says="absent")
    b.note("outcome", call_id="c", result="ok", verdict="suppressed-as-duplicate", code="", definite=True, receipt=None)
    assert states(told(b)) == ["asked", "in_doubt", "suppressed"]


def duplicate(fault: dict[str, Any] | None, at: str = "between") -> Span:
    """The span of a duplicate of `k`, whose two calls are c0 and c4 (or c5, with a fault between them)."""
    b = Build()

    def fire() -> None:
        if fault is not None:
            data = {"class": "x", "variant": "v", "fate": "fail", "delegation": "elsewhere", "phase": "p", "seam": "S2"}
            b.really("fault", fault=0, state="fired", **{**data, "name": "chat", "call_id": None, **fault})

    b.really("fault", fault=0, state="armed", **{"class": "x", "variant": "v", "strike": {}})
    b.ask("k")
    if at == "between":
        fire()
    b.ask("k")
    if at == "after":
        fire()
    (found,) = [s for s in told(b, faults_scheduled=1).values() if s.attributes.get("agentmesh.effect.duplicate")]
    return found


@pytest.mark.parametrize(
    ("fault", "because"),
    [
        ({"call_id": "c6"}, STRUCK_CAUSE),
        ({"call_id": "c1"}, STRUCK_EARLIER),
        ({"fate": "die"}, STRUCK_ALL),
        ({"fate": "cut", "name": "transport"}, STRUCK_ALL),
        ({"fate": "cut", "name": "database"}, BEFORE),
        ({"delegation": "d"}, STRUCK_DELEGATION),
        ({}, BEFORE),
    ],
)
def test_a_duplicate_is_linked_to_its_fault_for_the_nearest_reason(fault: dict[str, Any], because: str) -> None:
    (link,) = duplicate(fault).links
    assert (link.key, link.because) == ("fault/0", because)


def test_a_duplicate_before_any_fault_is_unprovoked() -> None:
    for span in (duplicate(None), duplicate({}, at="after")):
        assert span.links == ()
        assert span.attributes["agentmesh.effect.unprovoked"] is True


def test_a_killed_attempt_ends_with_its_process_and_the_fault_is_told() -> None:
    s = Story()
    s.begin()
    call = s.ask()
    s.really("fault", fault=0, state="armed", **{"class": "staging_crash", "variant": "v", "strike": {}})
    s.die(call)
    s.really("fault", fault=0, state="observed", evidence={"kind": "exit", "epoch": 0, "signal": "SIGKILL"})
    s.begin()
    found = {span.key: span for span in spans(s.trial(faults_scheduled=1))}
    death = next(e.at_ms for e in s.truth if e.kind == "exit")
    assert found["attempt/0"].end_ms == death
    assert found["attempt/0"].error == "its process ended first"
    assert found[f"call/{call}"].end_ms == death
    assert found[f"call/{call}"].error == "never answered"
    assert [link.key for link in found[f"call/{call}"].links] == ["fault/0"]
    assert [(m.name, m.at_ms) for m in found["fault/0"].marks][2] == ("observed", death)
    assert [m.name for m in found["fault/0"].marks] == ["armed", "fired", "observed"]
    assert found["attempt/1"].attributes["agentmesh.epoch"] == 1


def test_an_unscored_trial_has_effects_without_keys() -> None:
    b = Build()
    b.ask("k")
    (found,) = [s for s in spans(b.seal()) if s.attributes.get("agentmesh.effect.state") == "durable"]
    assert found.parent == "call/c0"
    assert "agentmesh.effect.natural_key" not in found.attributes


def test_an_empty_trial_is_a_root_alone() -> None:
    (root,) = spans(Build().trial(status="invalid", because="lag"))
    assert (root.key, root.parent, root.error) == ("trial", "", "invalid: lag")


# --- the wire and the command -------------------------------------------------------------------------------------


class Collector:
    """An OTLP receiver on the loopback: answers with each of `codes` in turn, then with 200."""

    def __init__(self, codes: list[int], rejected: int = 0) -> None:
        self.codes, self.rejected = codes, rejected
        self.got: list[tuple[str, dict[str, str], ExportTraceServiceRequest]] = []

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        self.got.append((path, headers, ExportTraceServiceRequest.FromString(body)))
        if self.codes:
            return self.codes.pop(0), b"no"
        response = ExportTraceServiceResponse()
        response.partial_success.rejected_spans = self.rejected
        return 200, response.SerializeToString()


@contextmanager
def listening(collector: Collector) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            code, answer = collector.answer(self.path, dict(self.headers), body)
            self.send_response(code)
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def invoke(*words: str) -> Any:
    app = typer.Typer()
    command.add(app)
    app.callback()(lambda: None)
    return CliRunner().invoke(app, ["telemetry", str(sealed_run()), *words])


def test_a_collector_gets_what_a_file_would_hold() -> None:
    first, second = list(traces())[:2]
    collector = Collector([503, 429])
    with listening(collector) as endpoint:
        done = invoke("--endpoint", endpoint, "--trial", first, "--trial", second, "--header", "x-key=a=b")
    assert done.exit_code == 0, done.output
    assert {path for path, _, _ in collector.got} == {"/v1/traces"}
    assert all(h["Content-Type"] == "application/x-protobuf" for _, h, _ in collector.got)
    assert {h.get("X-Key", h.get("x-key")) for _, h, _ in collector.got} == {"a=b"}
    assert [otlp.to_json(message) for _, _, message in collector.got] == [lines()[0]] * 3 + [lines()[1]]


@pytest.mark.parametrize(
    ("collector", "said"),
    [
        (Collector([400]), "refused the spans: 400 Bad Request: no"),
        (Collector([503] * otlp.TRIES), "refused the spans: 503"),
        (Collector([], rejected=7), "rejected 7 spans"),
    ],
)
def test_a_collector_that_does_not_take_them_is_an_error(collector: Collector, said: str) -> None:
    with listening(collector) as endpoint:
        done = invoke("--endpoint", endpoint + "/v1/traces", "--trial", next(iter(traces())))
    assert isinstance(done.exception, ConfigError)
    assert said in str(done.exception)


def test_nobody_listening_and_no_url_are_errors_of_input() -> None:
    with listening(Collector([])) as endpoint:
        pass
    trial = next(iter(traces()))
    assert "cannot be reached" in str(invoke("--endpoint", endpoint, "--trial", trial).exception)
    assert "no URL" in str(invoke("--endpoint", "127.0.0.1", "--trial", trial).exception)
    assert "no URL" in str(invoke("--endpoint", "file:///etc/passwd", "--trial", trial).exception)
    assert "NAME=VALUE" in str(invoke("--endpoint", endpoint, "--header", "x").exception)
    assert "--out or --endpoint" in str(invoke("--endpoint", endpoint, "--out", "x").exception)
    assert "no sealed trial" in str(invoke("--trial", "zz").exception)


def test_a_file_has_a_line_for_each_trial(tmp_path: Path) -> None:
    out = tmp_path / "spans.jsonl"
    trial = next(iter(traces()))
    done = invoke("--out", str(out), "--trial", trial)
    assert done.exit_code == 0
    assert done.stdout == f"{out}: spans: {len(traces()[trial])}, trials: 1 (a line for each)\n"
    assert out.read_text() == lines()[0] + "\n"
    done = invoke("--trial", trial)
    assert done.stdout == lines()[0] + "\n"
    assert isinstance(invoke("--out", str(tmp_path / "none" / "x.jsonl"), "--trial", trial).exception, ConfigError)


def test_findings_are_found_wherever_their_lines_are(tmp_path: Path) -> None:
    kept = (sealed_run() / "findings.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "findings.jsonl").write_bytes(b"".join(kept[1::2] + kept[::2]))
    places = export._places(tmp_path)
    first = json.loads(kept[0])["trial"]
    found = export._findings(tmp_path, places[first])
    wanted = [line for line in kept if json.loads(line)["trial"] == first]
    assert sorted(f.key for f in found) == sorted(json.loads(line)["key"] for line in wanted)
    assert len(found) == len(wanted)
    assert all(msgspec.to_builtins(f)["boundary"] for f in found)
