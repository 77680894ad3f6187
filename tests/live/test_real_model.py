"""A real model's endpoint behind our provider: what the agent gets, what is billed, and what is written down."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from harness.world.live import endpoint, model
from harness.world.live.cassette import NotOnTape, Tape
from harness.world.live.completions import Completion, ToolCallSpec
from harness.world.live.provider import ProviderServer
from harness.world.live.realmodel import REFUSALS_MAX, ModelSource
from harness.world.live.redact import MARK
from harness.world.live.spending import Caps, Ledger
from tests.live.modelbench import (
    KEY,
    Truth,
    answered,
    asking,
    free_port,
    in_front_of,
    independent,
    raw_endpoint,
    silent_endpoint,
    source,
    streamed,
    told,
)

pytestmark = pytest.mark.live

HELLO = '{"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"},"finish_reason":null}]}'
END = '{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
USAGE = '{"id":"x","choices":[],"usage":{"prompt_tokens":70,"completion_tokens":20,"total_tokens":90}}'


def nothing_tells(key: str, folder: Path) -> bool:
    return not any(key.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_our_scripted_server_as_the_endpoint_and_a_replay_on_a_dead_port(tmp_path):
    """What a client gets from a replay is byte for byte what it got when it was recorded."""

    def script(ns, request, nth):
        calls = (ToolCallSpec("read", f'{{"path": "{nth}"}}'), ToolCallSpec("list", '{"path": "."}'))
        return Completion(f"Step {nth}: é", calls, "tool_calls")

    asked = [asking("one"), asking("one"), asking("two", stream=False), asking("three", phase="acceptance")]
    upstream_truth = Truth()
    upstream = ProviderServer(upstream_truth, script, lambda r: "all")
    port = await upstream.start()
    await upstream.open("up")
    url = f"http://127.0.0.1:{port}/up/v1"
    async with in_front_of(source(url, tmp_path)) as (base, truth):
        live = [await told(base, one) for one in asked]
    await upstream.stop()
    dead = f"http://127.0.0.1:{free_port()}/v1"
    async with in_front_of(source(dead, tmp_path, mode="replay")) as (base, again):
        played = [await told(base, one) for one in asked]
    assert [(status, body, whole) for status, _, body, whole in played] == [
        (status, body, whole) for status, _, body, whole in live
    ]
    assert all(whole and status == 200 for status, _, _, whole in live)
    assert live[0][2] != live[1][2]  # the same request twice got what the script said each time
    assert again == truth
    assert [b["usage"] for b in truth.of("billed")] == [
        {key: b[key] for key in ("prompt_tokens", "completion_tokens")} for b in upstream_truth.of("billed")
    ]
    assert {b["model"] for b in upstream_truth.of("billed")} == {"m-1"}
    assert not any(b["metadata"] for b in upstream_truth.of("billed"))
    parsed = json.loads(live[2][2])["choices"][0]["message"]
    assert [c["function"]["name"] for c in parsed["tool_calls"]] == ["read", "list"]


async def test_an_answer_of_a_slow_endpoint_is_as_slow_in_a_replay(tmp_path):
    async def script(ns, request, prompt_tokens):
        await asyncio.sleep(0.3)
        return Completion("At last.")

    loop = asyncio.get_running_loop()
    upstream = ProviderServer(Truth(), lambda *_: Completion(), lambda r: "all", forward=script)
    port = await upstream.start()
    await upstream.open("up")
    async with in_front_of(source(f"http://127.0.0.1:{port}/up/v1", tmp_path)) as (base, _):
        live = await model.complete(base, asking("one"), 10)
    await upstream.stop()
    (entry,) = Tape(tmp_path / "cassette.jsonl.gz").entries()
    assert entry.took_ms >= 300
    async with in_front_of(source("http://127.0.0.1:9/v1", tmp_path, mode="replay")) as (base, _):
        began_s = loop.time()
        assert await model.complete(base, asking("one"), 10) == live
        assert loop.time() - began_s >= entry.took_ms / 1000
    assert live.value["content"] == "At last."


async def test_the_orchestrators_client_reads_a_forwarded_stream(tmp_path):
    async with (
        raw_endpoint(streamed([HELLO, END, USAGE, "[DONE]"])) as (url, seen),
        in_front_of(source(url, tmp_path)) as (base, truth),
    ):
        got = await model.complete(base, asking("hi"), 10)
    assert (got.value["content"], got.value["finish_reason"]) == ("Hello", "stop")
    assert got.value["usage"] == {"prompt_tokens": 70, "completion_tokens": 20}
    (billed,) = truth.of("billed")
    assert (billed["usage"], billed["completion"]) == ({"prompt_tokens": 70, "completion_tokens": 20}, got.value["id"])
    assert billed["completion_tokens"] == 2  # our own count, beside it
    assert f"authorization: bearer {KEY}".encode().lower() in seen[0].lower()
    sent = json.loads(seen[0].partition(b"\r\n\r\n")[2])
    assert (sent["model"], "metadata" in sent, "store" in sent) == ("m-1", False, False)


async def test_without_a_key_no_authorization_is_sent_and_empty_tool_calls_are_left_out(tmp_path):
    talk = [{"role": "assistant", "content": "well", "tool_calls": []}, {"role": "user", "content": "go on"}]
    async with (
        raw_endpoint(streamed([HELLO, END, "[DONE]"])) as (url, seen),
        in_front_of(source(url, tmp_path, key="")) as (base, _),
    ):
        await told(base, asking("x", messages=talk))
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert b"authorization" not in head.lower()
    assert json.loads(body)["messages"][0] == {"role": "assistant", "content": "well"}


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        (streamed([HELLO], whole=False), "Hello"),
        (streamed([HELLO, END, USAGE], whole=False), "Hello"),
        (streamed([HELLO, '{"choices":[{"del', "[DONE]"]), "Hello"),
        (streamed([]), ""),
    ],
    ids=["dropped", "dropped before the end", "malformed", "empty"],
)
async def test_an_answer_that_breaks_off_breaks_off_for_the_agent_too_and_is_billed(tmp_path, answer, content):
    async with raw_endpoint(answer) as (url, _), in_front_of(source(url, tmp_path)) as (base, truth):
        got = await model.complete(base, asking("hi"), 10)
    async with in_front_of(source(url, tmp_path, mode="replay")) as (base, again):
        assert await model.complete(base, asking("hi"), 10) == got
    assert (got.code, got.definite) == ("truncated", False)
    assert (len(truth.of("billed")), len(truth.of("undelivered")), truth.of("delivered")) == (1, 1, [])
    assert again == truth
    (entry,) = Tape(tmp_path / "cassette.jsonl.gz").entries()
    assert content in entry.body


async def test_usage_that_is_missing_is_our_count(tmp_path):
    async with (
        raw_endpoint(streamed([HELLO, END, "[DONE]"])) as (url, _),
        in_front_of(source(url, tmp_path)) as (base, truth),
    ):
        got = await model.complete(base, asking("hi"), 10)
    (billed,) = truth.of("billed")
    assert billed["usage"] is None
    counted = {name: billed[name] for name in ("prompt_tokens", "completion_tokens")}
    assert got.value["usage"] == counted
    spent = Ledger(tmp_path / "spending.jsonl", Caps()).total()
    assert (spent.tokens, spent.without_usage) == (sum(counted.values()), 1)


async def test_no_answer_at_all_is_no_answer_for_the_agent(tmp_path):
    async with raw_endpoint(None) as (url, _), in_front_of(source(url, tmp_path)) as (base, truth):
        lost = await model.complete(base, asking("hi"), 10)
        assert (lost.code, lost.definite) == ("connection-reset", False)
        assert truth.of("declined") == [{"status": 0, "site": "implementation"}]
    spent = Ledger(tmp_path / "spending.jsonl", Caps()).total()
    assert (spent.requests, spent.open, spent.declined) == (0, 1, {})  # perhaps it was billed
    folder = tmp_path / "dead"
    folder.mkdir()
    async with in_front_of(source(f"http://127.0.0.1:{free_port()}/v1", folder)) as (base, truth):
        refused = await model.complete(base, asking("hi"), 10)
        assert (refused.code, refused.definite) == ("http-502", True)
    assert Ledger(folder / "spending.jsonl", Caps()).total().declined == {"no answer": 1}


async def test_a_key_that_comes_back_is_written_nowhere_and_told_nobody(tmp_path):
    """Whole, in the pieces of a stream, in the arguments of a tool call, in an error, and in a header."""

    def chunk(delta):
        return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})

    half = len(KEY) // 2
    call = {"index": 0, "id": "c1", "function": {"name": "read", "arguments": json.dumps({"path": KEY})}}
    error = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}}).encode()
    head = b"HTTP/1.1 400 No\r\nx-ratelimit-echo: %b\r\nContent-Length: %d\r\n\r\n" % (KEY.encode(), len(error))
    answers = [
        streamed([chunk({"content": f"it is {KEY}"}), END, "[DONE]"]),
        streamed([chunk({"content": KEY[:half]}), chunk({"content": KEY[half:]}), END, "[DONE]"]),
        streamed([chunk({"tool_calls": [call]}), END, "[DONE]"]),
        head + error,
    ]
    async with raw_endpoint(*answers) as (url, seen), in_front_of(source(url, tmp_path)) as (base, truth):
        got = [await told(base, asking(f"request {n}, by the way {KEY}")) for n in range(4)]
    assert all(KEY.encode() in one for one in seen)  # the endpoint itself gets what it is asked
    for status, headers, body, _ in got:
        assert status in (200, 400)
        assert KEY not in str(headers)
        assert KEY.encode() not in body
        assert KEY not in "".join(_contents(body))
    assert KEY not in repr(truth)
    entries = list(Tape(tmp_path / "cassette.jsonl.gz").entries())
    assert KEY not in repr(entries)
    assert [e.rewritten for e in entries] == [False, True, False, False]
    assert all(MARK in e.request["messages"][0]["content"] for e in entries)
    assert nothing_tells(KEY, tmp_path)
    assert KEY not in repr(source(url, tmp_path))


def _contents(body: bytes) -> list[str]:
    lines = [line[6:] for line in body.decode().splitlines() if line.startswith("data: {")]
    return [c["delta"].get("content") or "" for line in lines for c in json.loads(line)["choices"]]


async def test_a_redirect_does_not_carry_the_key_away(tmp_path):
    async with raw_endpoint(streamed([HELLO, END, "[DONE]"])) as (elsewhere, stolen):
        moved = f"HTTP/1.1 307 T\r\nLocation: {elsewhere}/chat/completions\r\nContent-Length: 0\r\n\r\n".encode()
        async with raw_endpoint(moved) as (url, _), in_front_of(source(url, tmp_path)) as (base, truth):
            await told(base, asking("hi"))
    assert stolen == []
    assert "status 307" in truth.of("missing")[0]["error"]


async def test_at_the_cap_nothing_more_goes_out(tmp_path):
    answers = [streamed([HELLO, END, USAGE, "[DONE]"])] * 9
    async with (
        raw_endpoint(*answers) as (url, seen),
        in_front_of(source(url, tmp_path, caps=Caps(tokens=400))) as (base, truth),
    ):
        statuses = [(await told(base, asking(f"{n}")))[0] for n in range(6)]
    assert statuses == [200] * len(seen) + [402] * (6 - len(seen))
    assert 0 < len(seen) < 6
    assert truth.of("budget")[0] == {"cap": "400 tokens"}
    spent = Ledger(tmp_path / "spending.jsonl", Caps()).total()
    assert (spent.tokens, spent.stopped_by) == (90 * len(seen), "400 tokens")


async def test_a_replay_without_the_answer_says_what_differs(tmp_path):
    async with (
        raw_endpoint(streamed([HELLO, END, "[DONE]"])) as (url, _),
        in_front_of(source(url, tmp_path)) as (base, _),
    ):
        await told(base, asking("write the service"))
    playing: ModelSource = source(url, tmp_path, mode="replay")
    tape = Tape(Path(playing.cassette))
    (entry,) = tape.entries()
    other = {**entry.request, "messages": [{"role": "user", "content": "write the servant"}]}
    with pytest.raises(NotOnTape, match="was 'write the service' and is 'write the servant'"):
        tape.find("trial-1", other, 0)


# --- what goes wrong at an endpoint ---

LONG = '{"error": {"message": "maximum context length is 8192 tokens", "code": "context_length_exceeded"}}'


def chosen(message: dict) -> bytes:
    return answered(200, json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": None}]}))


@pytest.mark.parametrize(
    ("answer", "code", "headers"),
    [
        (
            answered(
                429, "{}", "Retry-After: 7", "X-RateLimit-Remaining-Requests: 0", "X-RateLimit-Reset-Requests: 1s"
            ),
            "http-429",
            {"retry-after": "7", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s"},
        ),
        (answered(500, "{}"), "http-500", {}),
        (answered(503, "<html>busy</html>", "Retry-After: 1"), "http-503", {"retry-after": "1"}),
        (answered(400, LONG), "http-400", {}),
    ],
    ids=["limit", "error", "busy", "too long"],
)
async def test_an_error_of_the_endpoint_is_the_agents_to_deal_with(tmp_path, answer, code, headers):
    async with raw_endpoint(answer, answer) as (url, _), in_front_of(source(url, tmp_path)) as (base, truth):
        status, got, *_ = await told(base, asking("one"))
        lost = await model.complete(base, asking("one"), 10)
    assert (lost.code, lost.definite) == (code, True)
    assert {name: got[name] for name in headers} == headers
    assert truth == [("declined", {"status": status, "site": "implementation"})] * 2
    spent = Ledger(tmp_path / "spending.jsonl", Caps()).total()
    assert (spent.tokens, spent.declined) == (0, {str(status): 2})


@pytest.mark.parametrize(
    ("message", "content", "calls"),
    [
        ({"content": None}, "", []),
        ({"content": "gibberish }{", "tool_calls": []}, "gibberish }{", []),
        (
            {"tool_calls": [{"id": "c", "function": {"name": "no_such", "arguments": "{bad"}}]},
            "",
            [("no_such", "{bad")],
        ),
        ({"tool_calls": [{"id": "c", "function": None}]}, "", [("", "")]),
    ],
    ids=["nothing", "gibberish", "malformed call", "nameless call"],
)
async def test_nonsense_is_an_answer_and_reaches_the_agent_as_it_is(tmp_path, message, content, calls):
    async with raw_endpoint(chosen(message)) as (url, _), in_front_of(source(url, tmp_path)) as (base, truth):
        got = await model.complete(base, asking("hi"), 10)
    assert got.value["content"] == content
    assert [(call["name"], call["arguments"]) for call in got.value["tool_calls"]] == calls
    assert (len(truth.of("billed")), len(truth.of("delivered")), truth.of("missing")) == (1, 1, [])


@pytest.mark.parametrize(
    "answer",
    [
        answered(200, '{"choices": []}'),
        streamed(['{"choices": []}', USAGE, "[DONE]"]),
        answered(200, "<html>hello</html>"),
    ],
    ids=["no choices", "no choices streamed", "no JSON"],
)
async def test_an_answer_without_a_choice_is_none(tmp_path, answer):
    async with raw_endpoint(answer) as (url, _), in_front_of(source(url, tmp_path)) as (base, truth):
        got = await model.complete(base, asking("hi"), 10)
    assert (got.code, got.definite) == ("truncated", False)
    assert (len(truth.of("undelivered")), truth.of("delivered")) == (1, [])


async def test_an_endpoint_that_never_answers_is_given_up_and_may_have_billed(tmp_path, monkeypatch):
    monkeypatch.setattr(endpoint, "TIMEOUT_S", 0.2)
    async with silent_endpoint() as url, in_front_of(source(url, tmp_path)) as (base, truth):
        got = await model.complete(base, asking("hi"), 10)
    assert (got.code, got.definite) == ("connection-reset", False)
    assert truth == [("declined", {"status": 0, "site": "implementation"})]
    spent = Ledger(tmp_path / "spending.jsonl", Caps()).total()
    assert (spent.open, spent.tokens > 0) == (1, True)


@pytest.mark.parametrize(
    ("answer", "times", "because"),
    [
        (answered(401, "{}"), 1, "refuses all requests with status 401: is the key right?"),
        (answered(404, "{}"), 1, "refuses all requests with status 404"),
        (answered(429, '{"error":{"code":"insufficient_quota"}}'), 1, "status 429: its quota is used up"),
        (answered(503, "{}"), REFUSALS_MAX, f"failed {REFUSALS_MAX} times in a row, last with status 503"),
        (None, REFUSALS_MAX, "last with a lost connection"),
        (answered(400, LONG), 0, ""),
    ],
    ids=["key", "path", "quota", "busy for ever", "dead", "too long for ever"],
)
async def test_an_endpoint_that_is_broken_is_no_outcome_of_the_trial(tmp_path, answer, times, because):
    tries = REFUSALS_MAX + 2
    async with raw_endpoint(*[answer] * tries) as (url, _), in_front_of(source(url, tmp_path)) as (base, truth):
        for n in range(times or tries):
            assert truth.of("missing") == []
            await model.complete(base, asking(f"{n}"), 10)
    async with in_front_of(source(url, tmp_path, mode="replay")) as (base, again):
        for n in range(times or tries):
            await model.complete(base, asking(f"{n}"), 10)
    assert again == truth
    assert [because in one["error"] for one in truth.of("missing")] == [True] * bool(times)


async def test_an_answer_between_failures_is_the_end_of_their_row(tmp_path):
    busy, well = answered(503, "{}"), streamed([HELLO, END, "[DONE]"])
    row = [*[busy] * (REFUSALS_MAX - 1), well, *[busy] * (REFUSALS_MAX - 1)]
    async with raw_endpoint(*row) as (url, _), in_front_of(source(url, tmp_path)) as (base, truth):
        for n in range(len(row)):
            await model.complete(base, asking(f"{n}"), 10)
    assert (len(truth.of("declined")), truth.of("missing")) == (len(row) - 1, [])


# --- a server that is none of ours ---


async def test_an_independent_server_streams_calls_tools_and_fails_in_every_way(tmp_path):
    async with independent() as server, aiohttp.ClientSession() as admin:

        async def behave(*behaviors):
            async with admin.post(f"{server}/_llmock/scenario", json={"behaviors": list(behaviors)}) as answer:
                assert answer.status == 201, await answer.text()

        asked = source(f"{server}/v1", tmp_path)
        got, raw = [], []
        async with in_front_of(asked) as (base, truth):
            await behave({"type": "reply", "tool_calls": [{"name": "read", "arguments": {"path": "a/b.py"}}]})
            got.append(await model.complete(base, asking("call"), 20))
            await behave({"type": "reply", "text": "Nothing to do, é."})
            got.append(await model.complete(base, asking("talk"), 20))
            await behave({"type": "fail", "status": 429, "retry_after": 7})
            raw.append(await told(base, asking("limit")))
            got.append(await model.complete(base, asking("limit"), 20))
            for kind in ("disconnect", "truncate", "malformed"):
                fault = {"type": "stream_fault", "kind": kind, "after_chunks": 2}
                await behave({"type": "reply", "text": "one two three four five six seven"}, fault)
                got.append(await model.complete(base, asking(kind), 20))
            await behave({"type": "reply", "text": "No usage."})
            got.append(await model.complete(base, asking("usage", stream_options={}), 20))
            raw.append(await told(base, asking("whole", stream=False)))
    calls = got[0].value["tool_calls"]
    assert [(c["name"], json.loads(c["arguments"])) for c in calls] == [("read", {"path": "a/b.py"})]
    assert got[0].value["finish_reason"] == "tool_calls"
    assert (got[1].value["content"], got[1].value["tool_calls"]) == ("Nothing to do, é.", [])
    assert (raw[0][0], raw[0][1]["retry-after"]) == (429, "7")
    assert truth.of("declined") == [{"status": 429, "site": "implementation"}]
    assert truth.of("suffered") == truth.of("rejected") == []  # what it refuses by itself proves no fault of ours
    assert got[2].value["id"]
    assert [(broken.code, broken.definite) for broken in got[3:6]] == [("truncated", False)] * 3
    usages = [billed["usage"] for billed in truth.of("billed")]
    assert all(usage["prompt_tokens"] > 0 for usage in usages[:3])
    assert usages[3:7] == [None] * 4  # no usage comes with a stream that broke off, or that was not asked for it
    assert raw[1][0] == 200
    async with in_front_of(source(f"http://127.0.0.1:{free_port()}/v1", tmp_path, mode="replay")) as (base, again):
        played = [await model.complete(base, asking(word), 20) for word in ("call", "talk")]
        limited = await told(base, asking("limit"))
        played.append(await model.complete(base, asking("limit"), 20))
        played += [await model.complete(base, asking(kind), 20) for kind in ("disconnect", "truncate", "malformed")]
        played.append(await model.complete(base, asking("usage", stream_options={}), 20))
        whole = await told(base, asking("whole", stream=False))
    assert played == got
    assert (limited[0], limited[1]["retry-after"], limited[2]) == (429, "7", raw[0][2])
    assert whole[2] == raw[1][2]
    assert again == truth
    assert nothing_tells(KEY, tmp_path)
