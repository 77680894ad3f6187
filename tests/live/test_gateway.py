"""The effect gateway, used by the clients that services under test use, in front of the real services."""

import asyncio
import http.client
import itertools
import json
import os
import socket
import struct
import urllib.parse

import aiohttp
import pytest
import redis
import uv

from harness.core.errors import HarnessBug
from harness.core.types import CheckSpec, DeclaredEffect, Err, Ok, Refused, Seam, Site, ToolCall, Verdict
from harness.world.live import native, resp, sqlhttp
from harness.world.live.checks import CheckRunner
from harness.world.live.completions import Completion, ToolCallSpec
from harness.world.live.database import DatabaseService
from harness.world.live.gateway import Gateway
from harness.world.live.probing import probe
from harness.world.live.provider import ProviderServer
from harness.world.live.registry import RegistryService
from harness.world.live.transport import TransportService
from harness.world.live.upstream import Upstreams, perform
from harness.world.live.zygote import start_zygote

pytestmark = pytest.mark.live

TOOL_CALL = ToolCall(
    site=Site(delegation="orders", phase="local_verification", seam=Seam.TOOL, name="run_check"),
    call_id="tool-1",
    attempt=2,
    turn=5,
    index=1,
    tool="run_check",
    args={"check": "unit"},
)
EVENT = {"specversion": "1.0", "type": "order.placed", "subject": "o-1", "data": {"total": 1.5}}
DDL = "CREATE TABLE orders (id INTEGER PRIMARY KEY, number TEXT UNIQUE, total REAL)"
MESSAGES = [{"role": "user", "content": "hello"}]
CHAT = {"model": "scripted", "messages": MESSAGES, "metadata": {"ref": "r-1"}, "store": True}


class Outside:
    """The four services, with what they really hold."""

    def __init__(self, folder):
        self.truth = []
        self.transport = TransportService(self._tell)
        self.database = DatabaseService(self._tell, folder)
        self.registry = RegistryService(self._tell)
        said = Completion(content="hi there", tool_calls=(ToolCallSpec("read", '{"path": "a"}'),))
        self.provider = ProviderServer(self._tell, lambda ns, request, nth: said, lambda request: "site")
        self.services = (self.transport, self.database, self.registry, self.provider)

    def _tell(self, ns, kind, data):
        self.truth.append((kind, data))

    def effects(self, boundary):
        return [data for kind, data in self.truth if kind == "effect" and data["boundary"] == boundary]

    async def start(self):
        ports = [await service.start() for service in self.services]
        for service in self.services:
            await service.open("n")
        transport, *bases = ports
        database, registry, provider = (f"http://127.0.0.1:{port}/n" for port in bases)
        async with aiohttp.ClientSession() as client:
            answer = await client.post(f"{database}/shop/schema", json={"statements": [DDL]})
            assert answer.status == 200
        return Upstreams(transport=("127.0.0.1", transport), database=database, registry=registry, provider=provider)

    async def stop(self):
        for service in self.services:
            await service.stop()


class Arm:
    """What stands for the arm: notes each effect, and answers it by itself or lets it through."""

    def __init__(self, upstreams):
        self.upstreams, self.calls, self.answer = upstreams, [], None

    async def __call__(self, call):
        self.calls.append(call)
        if self.answer is not None:
            return await self.answer(call)
        return await perform(call, self.upstreams, "n", timeout_s=5)


@pytest.fixture
async def outside(tmp_path):
    services = Outside(tmp_path / "db")
    services.upstreams = await services.start()
    yield services
    await services.stop()


@pytest.fixture
async def seam(outside):
    return Arm(outside.upstreams)


@pytest.fixture
async def gateway(seam):
    """A gateway that must leave nothing behind."""
    await asyncio.sleep(0)
    tasks, fds = asyncio.all_tasks(), len(os.listdir("/proc/self/fd"))
    ids = itertools.count()
    running = Gateway(seam.upstreams, "n", seam, lambda: f"id-{next(ids)}")
    await running.start()
    yield running
    await running.stop()
    await asyncio.sleep(0.02)
    assert asyncio.all_tasks() - {asyncio.current_task()} <= tasks
    assert len(os.listdir("/proc/self/fd")) <= fds + 1  # the audit connection of the database, opened meanwhile


@pytest.fixture
def ticket(gateway):
    return gateway.open_ticket(TOOL_CALL, "unit")


def _redis(ticket, resp3):
    if not resp3:
        return redis.Redis.from_url(ticket.env["TRANSPORT_URL"], decode_responses=True)
    parts = urllib.parse.urlsplit(ticket.env["TRANSPORT_URL"])
    return redis.Redis(parts.hostname, parts.port, password=parts.password, decode_responses=True)


@pytest.fixture(params=[False, True], ids=["resp2", "resp3"])
def client(ticket, request):
    with _redis(ticket, request.param) as one:
        yield one


def request(url, method="GET", body=None, path=""):
    """(status, body) of one request by http.client."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    connection.request(method, parts.path + path, None if body is None else json.dumps(body))
    answer = connection.getresponse()
    raw = answer.read()
    connection.close()
    return answer.status, raw


def chat(ticket, body=CHAT):
    return request(ticket.env["PROVIDER_URL"], "POST", body, "/chat/completions")


def wheel(ticket, file="meshmoney-1.2.0-py3-none-any.whl"):
    return request(ticket.env["REGISTRY_URL"].removesuffix("simple/") + f"files/{file}")


def execute(ticket, sql, params=(), service="shop"):
    with sqlhttp.connect(f"{ticket.env['DATABASE_URL']}/{service}") as connection:
        cursor = connection.execute(sql, params)
        return cursor.fetchall() if cursor.description else cursor.lastrowid


INSERT = ("INSERT INTO orders (number, total) VALUES (?, ?)", ["o-1", 1.5])


def shape(call):
    return call.boundary, call.operation, call.target, call.payload


# --- transport ----------------------------------------------------------------------------------------------------


async def test_an_event_crosses_the_seam_and_its_id_comes_back(ticket, client, seam, outside):
    ident = await asyncio.to_thread(client.xadd, "orders", {"event": json.dumps(EVENT)})
    (call,), (effect,) = seam.calls, outside.effects("transport")
    assert shape(call) == ("transport", "XADD", "orders", {"event": EVENT})
    assert call.site == Site(delegation="orders", phase="local_verification", seam=Seam.TOOL, name="transport")
    assert (call.attempt, call.turn, call.index, call.ordinal) == (2, 5, 1, 0)
    assert (call.cause, call.origin) == ("tool-1", "unit")
    assert (effect["receipt"], effect["event"], effect["stream"]) == (ident, EVENT, "orders")


async def test_other_fields_and_options_travel_along(ticket, client, seam, outside):
    def work():
        client.xadd("s", {"event": "no json", "trace": "t"}, maxlen=5, approximate=False)
        client.xadd("s", {"only": "x"}, id="9999999999999-7")
        return client.xrange("s")

    entries = await asyncio.to_thread(work)
    assert [call.payload for call in seam.calls] == [
        {"event": "no json", "fields": {"trace": "t"}, "options": ["MAXLEN", "5", "*"]},
        {"fields": {"only": "x"}, "options": ["9999999999999-7"]},
    ]
    assert [fields for _, fields in entries] == [{"event": "no json", "trace": "t"}, {"only": "x"}]


async def test_a_transaction_publishes_event_by_event_in_order(ticket, client, seam):
    def work():
        with client.pipeline() as pipe:
            for subject in ("a", "b", "c"):
                pipe.xadd("orders", {"event": json.dumps({"subject": subject})})
            pipe.xlen("orders")
            return pipe.execute()

    *ids, length = await asyncio.to_thread(work)
    assert length == 3
    assert ids == sorted(ids)
    assert [(call.ordinal, call.payload["event"]["subject"]) for call in seam.calls] == [(0, "a"), (1, "b"), (2, "c")]


async def test_reads_see_the_streams_under_their_own_names(ticket, client, seam):
    def work():
        ident = client.xadd("s", {"event": "{}"})
        assert client.ping()
        assert client.xlen("s") == 1
        assert client.xrevrange("s") == client.xrange("s") == [(ident, {"event": "{}"})]
        assert client.exists("s", "t") == 1
        read = client.xread({"s": "0", "t": "0"})
        assert [name for name, _ in (read.items() if isinstance(read, dict) else read)] == ["s"]
        client.xgroup_create("s", "g", "0")
        assert len(client.xreadgroup("g", "me", {"s": ">"})) == 1
        assert client.xack("s", "g", ident) == 1
        return client.xread({"t": "0"}, block=20)

    assert not await asyncio.to_thread(work)
    assert len(seam.calls) == 1


async def test_whatever_might_write_in_another_way_is_refused(ticket, client, seam):
    def work():
        for command in (["SET", "a", "1"], ["FLUSHALL"], ["EVAL", "return 1", "0"], ["XTRIM", "s", "MAXLEN", "0"]):
            with pytest.raises(redis.ResponseError, match="unknown command"):
                client.execute_command(*command)
        with pytest.raises(redis.ResponseError, match="wrong number"):
            client.execute_command("XADD", "s", "*", "odd")

    await asyncio.to_thread(work)
    assert seam.calls == []


async def test_without_a_ticket_nothing_is_answered(ticket):
    url = ticket.env["TRANSPORT_URL"]

    def work():
        for other in (url.replace(f":{ticket.token}@", "@"), url.replace(ticket.token, "id-99")):
            with pytest.raises(redis.AuthenticationError), redis.Redis.from_url(other) as client:
                client.ping()
        for name in ("DATABASE_URL", "REGISTRY_URL", "PROVIDER_URL", "HOOK_URL"):
            assert request(ticket.env[name].replace(ticket.token, "id-99"))[0] == 403

    await asyncio.to_thread(work)


async def test_a_client_that_does_not_speak_resp_is_told_so(ticket):
    parts = urllib.parse.urlsplit(ticket.env["TRANSPORT_URL"])
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert (await reader.read()).startswith(b"-ERR Protocol error")
    writer.close()


# --- database, registry, provider, hook ---------------------------------------------------------------------------


async def test_writes_to_the_database_are_effects_and_reads_are_not(ticket, seam, outside):
    assert await asyncio.to_thread(execute, ticket, *INSERT) == 1
    assert await asyncio.to_thread(execute, ticket, "SELECT number, total FROM orders") == [("o-1", 1.5)]
    named = "WITH n(v) AS (SELECT :n) INSERT INTO orders (number) SELECT v FROM n"
    assert await asyncio.to_thread(execute, ticket, named, {"n": "o-2"}) == 2
    assert [shape(call) for call in seam.calls] == [
        ("database", "execute", "shop", {"sql": INSERT[0], "params": INSERT[1]}),
        ("database", "execute", "shop", {"sql": named, "params": {"n": "o-2"}}),
    ]
    assert [effect["row"]["number"] for effect in outside.effects("database")] == ["o-1", "o-2"]


async def test_an_error_of_the_database_arrives_as_what_it_is(ticket, seam):
    await asyncio.to_thread(execute, ticket, *INSERT)
    with pytest.raises(sqlhttp.IntegrityError, match="UNIQUE"):
        await asyncio.to_thread(execute, ticket, *INSERT)
    with pytest.raises(sqlhttp.ProgrammingError, match="no such table"):
        await asyncio.to_thread(execute, ticket, "SELECT * FROM missing")


async def test_neither_audit_trail_nor_schema_can_be_reached(ticket, seam):
    base = ticket.env["DATABASE_URL"]
    assert (await asyncio.to_thread(request, base, path="/shop/audit"))[0] == 404
    assert (await asyncio.to_thread(request, base, "POST", {"statements": []}, "/shop/schema"))[0] == 404
    assert (await asyncio.to_thread(request, base, "POST", ["no object"], "/shop/execute"))[0] == 400


async def test_an_installer_fetches_wheel_by_wheel(ticket, seam, outside, tmp_path):
    lock = tmp_path / "lock"
    lock.write_text("\n".join(outside.registry.lock_lines(["meshprice"])))
    index = ["--index-url", ticket.env["REGISTRY_URL"], "--require-hashes", "-r", str(lock)]
    command = [uv.find_uv_bin(), "pip", "install", "--no-cache", "--no-config", "--target", str(tmp_path / "t"), *index]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    assert process.returncode == 0, said
    assert sorted(call.ordinal for call in seam.calls) == [0, 1, 2]
    files = {"meshmoney": "1.2.0", "meshprice": "0.3.0", "meshunits": "2.0.1"}
    payloads = [{"package": n, "version": v, "file": f"{n}-{v}-py3-none-any.whl"} for n, v in files.items()]
    wanted = [("registry", "fetch", payload["package"], payload) for payload in payloads]
    assert sorted(map(shape, seam.calls), key=str) == wanted
    assert len(outside.effects("registry")) == 3
    assert (tmp_path / "t" / "meshprice.py").is_file()


async def test_a_completion_is_an_effect_and_comes_back_whole_or_as_a_stream(ticket, seam, outside):
    status, raw = await asyncio.to_thread(chat, ticket)
    answer = json.loads(raw)
    assert (status, shape(seam.calls[0])) == (200, ("provider", "chat", "scripted", CHAT))
    assert answer["id"] == outside.effects("provider")[0]["receipt"]
    asked = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    status, raw = await asyncio.to_thread(chat, ticket, asked)
    assert seam.calls[1].payload == asked
    lines = [line.removeprefix(b"data: ") for line in raw.split(b"\n\n") if line]
    assert lines.pop() == b"[DONE]"
    chunks = [json.loads(line) for line in lines]
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]) == "hi there"
    assert chunks[0]["choices"][0]["delta"]["tool_calls"][0]["function"]["name"] == "read"
    assert chunks[-1]["usage"] == answer["usage"]
    status, raw = await asyncio.to_thread(request, ticket.env["PROVIDER_URL"], path="/chat/completions")
    assert (status, len(json.loads(raw)["data"])) == (200, 2)
    assert len(seam.calls) == 2


async def test_a_hook_is_an_effect_named_after_its_origin_or_its_path(gateway, ticket, seam):
    async def answer(call):
        return Ok(value={"seen": call.ordinal})

    seam.answer = answer
    assert await asyncio.to_thread(request, ticket.env["HOOK_URL"], "POST", {"path": "a.py"}) == (200, b'{"seen": 0}')
    assert await asyncio.to_thread(request, ticket.env["HOOK_URL"], "POST", None, "/format") == (200, b'{"seen": 1}')
    assert [shape(call) for call in seam.calls] == [
        ("hook", "run", "unit", {"path": "a.py"}),
        ("hook", "run", "format", {}),
    ]


# --- outcomes that are not the service's --------------------------------------------------------------------------


async def test_what_an_arm_vouches_for_satisfies_every_client(ticket, seam, outside, client):
    completion = {"id": "c-7", "model": "scripted", "choices": [{"message": {"content": "x"}}]}
    known = {
        "transport": Ok(receipt="5-0", verdict=Verdict.SUPPRESSED),
        "database": Ok(receipt="shop/41", verdict=Verdict.RECONCILED),
        "registry": Ok(value={"body_b64": "d2hlZWw=", "content_type": "application/zip"}, receipt="f"),
        "provider": Ok(value=completion, receipt="c-7"),
        "hook": Ok(receipt="h-1"),
    }

    async def answer(call):
        return known[call.boundary]

    seam.answer = answer
    assert await asyncio.to_thread(client.xadd, "s", {"event": "{}"}) == "5-0"
    assert await asyncio.to_thread(execute, ticket, *INSERT) == 41
    assert await asyncio.to_thread(wheel, ticket) == (200, b"wheel")
    assert json.loads((await asyncio.to_thread(chat, ticket))[1]) == completion
    assert await asyncio.to_thread(request, ticket.env["HOOK_URL"], "POST") == (200, b'{"receipt": "h-1"}')
    assert [kind for kind, _ in outside.truth if kind == "effect"] == []


async def test_without_the_result_that_a_client_needs_it_gets_an_error(ticket, seam):
    async def answer(call):
        return Ok(verdict=Verdict.RECONCILED)

    seam.answer = answer
    assert (await asyncio.to_thread(wheel, ticket))[0] == 502
    assert (await asyncio.to_thread(chat, ticket))[0] == 502


@pytest.mark.parametrize(
    ("outcome", "status", "code", "text"),
    [
        (Err(code="connection-reset", definite=False), 502, "connection-reset", "connection-reset"),
        (Err(code="timeout", definite=False), 504, "timeout", "timeout"),
        (Err(code="connect-failure", definite=True), 503, "connect-failure", "connect-failure"),
        (Err(code="http-429", definite=True), 429, "http-429", "http-429"),
        (Refused(verdict=Verdict.STALLED, because="no"), 409, "refused-as-stalled", "refused refused-as-stalled"),
    ],
)
async def test_failures_and_refusals_are_errors_of_each_client(ticket, seam, outcome, status, code, text, client):
    async def answer(call):
        return outcome

    seam.answer = answer
    with pytest.raises(redis.ResponseError, match=text):
        await asyncio.to_thread(client.xadd, "s", {"event": "{}"})
    with pytest.raises(sqlhttp.DatabaseError) as refused:
        await asyncio.to_thread(execute, ticket, *INSERT)
    assert refused.value.code == code
    for reply in (await asyncio.to_thread(wheel, ticket), await asyncio.to_thread(chat, ticket)):
        assert (reply[0], json.loads(reply[1])["error"]["code"]) == (status, code)


@pytest.mark.parametrize("error", [LookupError, HarnessBug])
async def test_an_exception_out_of_the_seam_is_raised_when_the_ticket_is_closed(gateway, ticket, seam, error):
    async def answer(call):
        raise error("a bug")

    seam.answer = answer
    assert (await asyncio.to_thread(wheel, ticket))[0] == 502
    with pytest.raises(error, match="a bug"):
        await gateway.close_ticket(ticket)


# --- tickets ------------------------------------------------------------------------------------------------------


class Slow:
    """An arm that takes its time."""

    def __init__(self):
        self.entered, self.released, self.ended = asyncio.Event(), asyncio.Event(), []

    async def __call__(self, call):
        self.entered.set()
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("done")
        return Ok(receipt="1-1", value={"body_b64": "", "content_type": "x"})


async def test_closing_waits_for_what_is_under_way_and_refuses_the_rest(gateway, ticket, seam):
    seam.answer = slow = Slow()
    fetching = asyncio.ensure_future(asyncio.to_thread(wheel, ticket))
    await slow.entered.wait()
    closing = asyncio.ensure_future(gateway.close_ticket(ticket))
    await asyncio.sleep(0.05)
    assert not closing.done()
    assert (await asyncio.to_thread(wheel, ticket))[0] == 403
    slow.released.set()
    await closing
    assert (await fetching)[0] == 200
    assert slow.ended == ["done"]
    assert len(seam.calls) == 1


async def test_closing_can_cancel_what_is_under_way(gateway, ticket, seam):
    seam.answer = slow = Slow()
    fetching = asyncio.ensure_future(asyncio.to_thread(wheel, ticket))
    await slow.entered.wait()
    await gateway.close_ticket(ticket, cancel=True)
    assert slow.ended == ["cancelled"]
    assert (await fetching)[0] == 502


async def test_an_effect_outlives_the_client_that_asked_for_it(gateway, ticket, seam):
    seam.answer = slow = Slow()
    parts = urllib.parse.urlsplit(ticket.env["TRANSPORT_URL"])
    _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    event = resp.command("XADD", "s", "*", "event", "{}")
    writer.write(resp.command("AUTH", ticket.token) + event)
    await slow.entered.wait()
    writer.transport.abort()
    await asyncio.sleep(0.05)
    slow.released.set()
    await gateway.close_ticket(ticket)
    assert slow.ended == ["done"]


async def test_stopping_ends_everything_at_once(gateway, ticket, seam, outside):
    seam.answer = slow = Slow()

    def blocked():
        once = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
        with redis.Redis.from_url(ticket.env["TRANSPORT_URL"], retry=once) as client:
            client.xread({"s": "$"}, block=60_000)

    waiting = [asyncio.ensure_future(asyncio.to_thread(*work)) for work in ((blocked,), (wheel, ticket))]
    await slow.entered.wait()
    await asyncio.sleep(0.1)
    async with asyncio.timeout(2):
        await gateway.stop()
    assert slow.ended == ["cancelled"]
    left = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
    assert isinstance(left[0], redis.ConnectionError)
    for port in (gateway._resp_port, gateway._http_port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


async def test_tickets_count_and_announce_their_own_effects(gateway, seam):
    seen = []
    one = gateway.open_ticket(TOOL_CALL, "unit", lambda: seen.append("one"))
    two = gateway.open_ticket(TOOL_CALL, "lint", lambda: seen.append("two"))
    for ticket in (one, two, one):
        await asyncio.to_thread(wheel, ticket)
    assert seen == ["one", "two", "one"]
    assert [(call.origin, call.ordinal) for call in seam.calls] == [("unit", 0), ("lint", 0), ("unit", 1)]
    assert len({call.call_id for call in seam.calls} | {one.token, two.token}) == 5


CHECK = """\
import json, os, urllib.request, redis, sqlhttp
def test_order():
    with redis.Redis.from_url(os.environ["TRANSPORT_URL"]) as transport:
        transport.xadd("orders", {"event": json.dumps({"subject": "o-1"})})
    with sqlhttp.connect(os.environ["DATABASE_URL"] + "/shop") as shop:
        shop.execute("INSERT INTO orders (number) VALUES (?)", ["o-1"])
        assert shop.execute("SELECT count(*) FROM orders").fetchone() == (1,)
    body = json.dumps({"model": "scripted", "messages": []}).encode()
    answer = urllib.request.urlopen(os.environ["PROVIDER_URL"] + "/chat/completions", body)
    assert json.load(answer)["object"] == "chat.completion"
"""

NODE_CHECK = """\
const test = require('node:test'); const assert = require('node:assert');
test('hook', async () => {
  const answer = await fetch(process.env.HOOK_URL + '/format', {method: 'POST', body: '{"path": "a"}'});
  assert.equal(answer.status, 502);
});
"""


async def test_what_checks_and_hooks_do_is_seen_and_held(gateway, seam, outside, tmp_path):
    (tmp_path / "unit_test.py").write_text(CHECK)
    (tmp_path / "unit.cjs").write_text(NODE_CHECK)
    (tmp_path / "lock").write_text("\n".join(outside.registry.lock_lines(["meshmoney"])))
    zygote = await start_zygote(tmp_path / "s")
    runner, progress = CheckRunner(zygote.socket_path), []
    for kind, target in (("pytest", "unit_test.py"), ("node", "unit.cjs"), ("install", "lock")):
        ticket = gateway.open_ticket(TOOL_CALL, kind, lambda: progress.append(1))
        running = await runner.start(CheckSpec(name=kind, kind=kind, target=target), tmp_path, ticket.env)
        result = await running.wait()
        await gateway.close_ticket(ticket)
        assert result.passed, result.output_tail
    boundaries = ["transport", "database", "provider", "hook", "registry"]
    assert [call.boundary for call in seam.calls] == boundaries
    assert [call.origin for call in seam.calls] == ["pytest", "pytest", "pytest", "node", "install"]
    assert len(progress) == 5
    seam.answer = slow = Slow()
    ticket = gateway.open_ticket(TOOL_CALL, "again")
    running = await runner.start(CheckSpec(name="x", kind="install", target="lock"), tmp_path, ticket.env)
    await slow.entered.wait()
    running.kill()
    assert (await running.wait()).signal == 9
    slow.released.set()
    await gateway.close_ticket(ticket)
    assert slow.ended == ["done"]
    await zygote.stop()


# --- performing and probing ---------------------------------------------------------------------------------------


@pytest.fixture
async def call(gateway, ticket):
    """Makes effect calls as the gateway does."""

    def make(boundary, target, payload):
        operation = {"transport": "XADD", "database": "execute", "registry": "fetch", "provider": "chat"}
        asked = native.Request(boundary, operation.get(boundary, "run"), target, payload)
        return gateway._call(ticket, asked)

    return make


MONEY = {"package": "meshmoney", "version": "1.2.0", "file": "meshmoney-1.2.0-py3-none-any.whl"}
EFFECTS = [
    ("transport", "orders", {"event": EVENT}),
    ("database", "shop", {"sql": INSERT[0], "params": INSERT[1]}),
    ("registry", "meshmoney", MONEY),
    ("provider", "scripted", CHAT),
]


async def test_performing_gives_the_result_and_the_receipt(call, outside):
    outcomes = [await perform(call(*effect), outside.upstreams, "n", timeout_s=5) for effect in EFFECTS]
    assert all(isinstance(outcome, Ok) for outcome in outcomes)
    assert outcomes[0].receipt == outside.effects("transport")[0]["receipt"]
    assert (outcomes[1].receipt, outcomes[1].value["rowcount"]) == ("shop/1", 1)
    assert (outcomes[2].receipt, outcomes[2].value["content_type"]) == (MONEY["file"], "application/zip")
    assert outcomes[3].receipt == outside.effects("provider")[0]["receipt"]
    json.dumps([outcome.value for outcome in outcomes])


async def _misbehave(how):
    """A server that breaks each connection in a certain way, and its port."""

    async def serve(reader, writer):
        asked = await reader.read(10)
        if how == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        elif how == "silent":
            await reader.read()
        elif how == "short":
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
            writer.write(b"$20\r\nhalf" if asked.startswith(b"*") else head)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


def _at(port):
    base = f"http://127.0.0.1:{port}"
    return Upstreams(transport=("127.0.0.1", port), database=base, registry=base, provider=base)


@pytest.mark.parametrize(
    ("how", "code"), [("reset", "connection-reset"), ("silent", "timeout"), ("closed", "connection-reset")]
)
async def test_after_something_was_sent_nobody_knows(call, how, code):
    server, port = await _misbehave(how)
    for effect in EFFECTS:
        outcome = await perform(call(*effect), _at(port), "n", timeout_s=0.3)
        assert (outcome.code, outcome.definite) == (code, False), effect
        declared = DeclaredEffect(boundary=effect[0], operation="", target="", key=("event.type",))
        assert (await probe(call(*effect), declared, _at(port), "n", timeout_s=0.3)).count is None
    server.close()


async def test_half_an_answer_is_no_answer(call):
    server, port = await _misbehave("short")
    for effect in EFFECTS:
        outcome = await perform(call(*effect), _at(port), "n", timeout_s=1)
        assert (outcome.code, outcome.definite) == ("truncated", False), effect
    server.close()


async def test_where_nobody_listens_nothing_was_sent(call):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        for effect in EFFECTS:
            outcome = await perform(call(*effect), _at(unused.getsockname()[1]), "n", timeout_s=1)
            assert (outcome.code, outcome.definite) == ("connect-failure", True), effect


async def test_what_a_service_refuses_did_not_happen(call, outside):
    outside.provider.arm_failure("n", 429)
    outcomes = {}
    for boundary, target, payload in [
        ("provider", "scripted", CHAT),
        ("database", "shop", {"sql": "INSERT INTO missing VALUES (1)", "params": []}),
        ("registry", "none", {"file": "none-1-py3-none-any.whl"}),
        ("transport", "s", {"fields": {"a": "b"}, "options": ["0-0"]}),
        ("hook", "format", {}),
    ]:
        outcome = await perform(call(boundary, target, payload), outside.upstreams, "n", timeout_s=5)
        assert outcome.definite
        outcomes[boundary] = outcome
    codes = {boundary: outcome.code for boundary, outcome in outcomes.items()}
    assert codes == {
        "provider": "http-429",
        "database": "sql-error",
        "registry": "http-404",
        "transport": "resp-error",
        "hook": "no-such-service",
    }
    assert outcomes["database"].detail == "SQLITE_ERROR: no such table: missing"


KEYS = {
    "transport": ("event.type", "event.subject"),
    "database": ("row.number", "row.total"),
    "registry": (),
    "provider": ("metadata.ref", "model"),
}


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect[0])
async def test_a_probe_counts_what_is_there(call, outside, effect):
    boundary, target, _ = effect
    declared = DeclaredEffect(boundary=boundary, operation="", target=target, key=KEYS[boundary])
    asked = call(*effect)
    before = await probe(asked, declared, outside.upstreams, "n")
    assert (before.count, before.receipts, before.value) == (0, (), None)
    done = []
    for _ in range(1 if boundary == "database" else 2):
        done.append(await perform(asked, outside.upstreams, "n"))
    after = await probe(asked, declared, outside.upstreams, "n")
    assert (after.count, after.receipts) == (len(done), tuple(one.receipt for one in done))
    if boundary == "provider":
        assert after.value["choices"] == done[-1].value["choices"]
    elif boundary != "registry":
        assert after.value == done[-1].value


@pytest.mark.parametrize(
    ("sql", "params", "there"),
    [
        ("INSERT INTO orders (total, number) VALUES (?, ?)", [1.5, "o-1"], 1),
        ('insert into "orders"(number, total) values (:n, 1.50)', {"n": "o-1"}, 1),
        ("INSERT OR IGNORE INTO orders (number, total) SELECT 'o' || ?, ?", ["-1", 1.5], 1),
        ("INSERT INTO orders VALUES (NULL, ?, ?)", ["o-1", 1.5], 1),
        ("INSERT INTO orders (number, total) VALUES (?, ?), (?, ?)", ["o-1", 1.5, "o-2", 2], 1),
        ("INSERT INTO orders (number, total) VALUES (?, ?), (?, ?)", ["o-1", 1.5, "o-9", 2], 0),
        ("INSERT INTO orders (number, total) VALUES (?, 1.5) ON CONFLICT DO NOTHING RETURNING id", ["o-1"], 1),
        ("INSERT INTO orders (number, total) VALUES (?, ?)", ["o-1", 2.5], 0),
        ("INSERT INTO orders (number) VALUES (?)", ["o-1"], None),
        ("INSERT INTO orders (number, total) SELECT number, total FROM old", [], None),
        ("UPDATE orders SET total = 1.5 WHERE number = 'o-1'", [], None),
        ("INSERT INTO missing (number, total) VALUES (?, ?)", ["o-1", 1], None),
        ("this is no sql (", [], None),
    ],
)
async def test_a_row_is_found_however_its_insert_is_spelt(call, outside, sql, params, there):
    for number, total in (("o-1", 1.5), ("o-2", 2)):
        payload = {"sql": INSERT[0], "params": [number, total]}
        await perform(call("database", "shop", payload), outside.upstreams, "n")
    declared = DeclaredEffect(boundary="database", operation="", target="shop", key=KEYS["database"])
    asked = call("database", "shop", {"sql": sql, "params": params})
    assert (await probe(asked, declared, outside.upstreams, "n")).count == there


async def test_a_probe_without_a_key_to_look_for_cannot_tell(call, outside):
    for boundary, payload, key in [
        ("transport", {"event": EVENT}, ()),
        ("transport", {"event": EVENT}, ("event.none",)),
        ("provider", CHAT, ("messages",)),
        ("provider", {**CHAT, "store": False}, ("metadata.ref",)),
        ("database", {"sql": INSERT[0], "params": INSERT[1]}, ("sql",)),
        ("hook", {}, ("path",)),
    ]:
        declared = DeclaredEffect(boundary=boundary, operation="", target="t", key=key)
        assert (await probe(call(boundary, "t", payload), declared, outside.upstreams, "n")).count is None, boundary


# --- translations -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("select 1", True),
        ("  -- a remark\n /* INSERT INTO */ (SELECT 'INSERT INTO x' AS \"DELETE FROM\")", True),
        ("WITH a AS (SELECT 1) SELECT replace(x, 'a', 'b') FROM a", True),
        ("EXPLAIN QUERY PLAN SELECT 1", True),
        ("PRAGMA table_info(orders)", True),
        ("WITH a AS (SELECT 1) INSERT OR REPLACE INTO t SELECT * FROM a", False),
        ("WITH a AS (SELECT 1) UPDATE t SET x = 1", False),
        ("WITH a AS (SELECT 1) DELETE FROM t", False),
        ("INSERT INTO t VALUES (1)", False),
        ("CREATE TABLE t (x)", False),
        ("", False),
    ],
)
async def test_a_statement_is_a_read_if_it_cannot_write(sql, read):
    assert native.is_read(sql) is read


@pytest.mark.parametrize(
    ("file", "project", "version"),
    [
        ("My_Pkg.core-1.2.0-py3-none-any.whl", "my-pkg-core", "1.2.0"),
        ("thing-2.0-1-cp311-cp311-linux_x86_64.whl", "thing", "2.0"),
        ("some-thing-3.1.tar.gz", "some-thing", "3.1"),
    ],
)
async def test_a_file_is_named_after_project_and_version(file, project, version):
    asked = native.http_request("GET", "registry", f"files/{file}", b"", "")
    assert (asked.target, asked.payload) == (project, {"package": project, "version": version, "file": file})
    assert native.http_request("GET", "registry", f"files/{file}.metadata", b"", "") is None


async def test_replies_survive_the_wire():
    replies = [b"bulk\r\n", b"", 7, -1, None, resp.OK, resp.ReplyError("ERR no"), [b"a", [1, None], []]]
    reader = asyncio.StreamReader()
    reader.feed_data(b"".join(map(resp.encode, replies)))
    assert [await resp.read_reply(reader) for _ in replies] == replies
    assert resp.encode({"a": None}, resp3=True) == b"%1\r\n$1\r\na\r\n_\r\n"
    assert resp.encode({"a": None}) == b"*2\r\n$1\r\na\r\n$-1\r\n"
