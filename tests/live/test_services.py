"""The four services of the live world, each used by the client that a service under test would use."""

import asyncio
import json
import shutil
import socket
import sys
import threading

import aiohttp
import pytest
import redis
import redis.asyncio
import uv

from harness.world.live import sqlhttp
from harness.world.live.completions import Completion, ToolCallSpec
from harness.world.live.database import DatabaseService
from harness.world.live.provider import ProviderServer
from harness.world.live.registry import PACKAGES, Package, RegistryService, build_wheel
from harness.world.live.transport import TransportService, encode

pytestmark = pytest.mark.live


class Truth(list):
    """The ground truth as the services tell it."""

    def __call__(self, ns, kind, data):
        self.append((ns, kind, data))

    def of(self, ns, kind="effect"):
        return [data for where, what, data in self if (where, what) == (ns, kind)]


@pytest.fixture
def truth():
    return Truth()


@pytest.fixture
async def start():
    """Starts services with the namespaces a and b open; when the test is over they must leave nothing behind."""
    running = {}

    async def _start(service):
        port = running[service] = await service.start()
        await service.open("a")
        await service.open("b")
        return port

    def threads():
        return {t for t in threading.enumerate() if not t.name.startswith("asyncio")}  # those are the clients'

    tasks, before = asyncio.all_tasks(), threads()
    yield _start
    for service, port in running.items():
        await service.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() - tasks - {asyncio.current_task()} == set()
    assert threads() <= before


async def eventually(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


# --- transport ---


@pytest.mark.parametrize("protocol", [2, 3])
async def test_events_are_appended_read_back_and_reported(start, truth, protocol):
    port = await start(TransportService(truth))
    async with redis.asyncio.Redis(port=port, protocol=protocol, decode_responses=True) as client:
        event = {"specversion": "1.0", "id": "1", "type": "order.placed", "data": {"n": "é"}}
        first = await client.xadd("a:orders", {"event": json.dumps(event)})
        await client.xadd("a:orders", {"event": "not json"}, maxlen=10)
        assert await client.xlen("a:orders") == 2
        assert (await client.xrange("a:orders"))[0] == (first, {"event": json.dumps(event)})
        waiting = asyncio.create_task(client.xread({"a:orders": "$"}, block=5000))
        await asyncio.sleep(0.02)

        def publish():
            with redis.Redis(port=port, protocol=protocol) as sync:
                return sync.xadd("a:orders", {"plain": "1"}).decode()

        last = await asyncio.to_thread(publish)
        woken = await waiting
        assert last in json.dumps(woken)
        assert await client.xread({"a:orders": "$"}, block=20) in ([], {})
    common = {"boundary": "transport", "operation": "XADD", "stream": "orders"}
    assert truth.of("a")[0] == {**common, "event": event, "receipt": first}
    assert [e["event"] for e in truth.of("a")[1:]] == ["not json", {"plain": "1"}]


async def test_only_applied_appends_are_reported(start, truth):
    port = await start(TransportService(truth))
    async with redis.asyncio.Redis(port=port) as client:
        await client.set("a:text", "x")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            await client.xadd("a:text", {"event": "{}"})
        assert await client.xadd("a:none", {"event": "{}"}, nomkstream=True) is None
        with pytest.raises(redis.ResponseError, match="equal or smaller"):
            await client.xadd("a:s", {"event": "{}"}, id="1-1") and await client.xadd("a:s", {"event": "{}"}, id="1-1")
        async with client.pipeline(transaction=True) as queued:
            queued.xadd("a:s", {"event": "1"})
            assert len(truth.of("a")) == 1
            await queued.execute()
        for refused in (client.xadd("closed:s", {"event": "{}"}), client.flushall(), client.select(1)):
            with pytest.raises(redis.ResponseError, match="permission"):
                await refused
    assert truth.of("a")[0]["receipt"] == "1-1"
    assert [e["event"] for e in truth.of("a")] == [{}, 1]
    assert [ns for ns, *_ in truth] == ["a", "a"]


async def test_a_namespace_is_emptied_and_a_vanished_reader_forgotten(start, truth):
    service = TransportService(truth)
    port = await start(service)
    async with redis.asyncio.Redis(port=port) as client:
        for ns in "ab":
            await client.xadd(f"{ns}:s", {"event": "{}"})
        assert await service.close("a") == []
        assert await client.keys("*") == [b"b:s"]
        gone = redis.asyncio.Redis(port=port)
        reader = asyncio.create_task(gone.xread({"b:s": "$"}, block=60_000))
        await eventually(lambda: len(service.connections) == 2)
        await asyncio.sleep(0.02)
        reader.cancel()
        await asyncio.wait([reader])
        await gone.connection_pool.disconnect()
        await eventually(lambda: len(service.connections) == 1)
        await eventually(lambda: not service.redis.dbs[0]._change_callbacks)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(5):
        assert (await reader.read()).startswith(b"-ERR")  # and closed
    writer.close()


def test_replies_are_encoded_per_protocol():
    value = [b"x", None, True, 1.5, {"k": 1}]
    assert encode(value, False) == b"*5\r\n$1\r\nx\r\n$-1\r\n:1\r\n$3\r\n1.5\r\n*2\r\n$1\r\nk\r\n:1\r\n"
    assert encode(value, True) == b"*5\r\n$1\r\nx\r\n_\r\n#t\r\n,1.5\r\n%1\r\n$1\r\nk\r\n:1\r\n"


# --- database ---

SCHEMA = [
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, sku TEXT UNIQUE, qty REAL)",
    "INSERT INTO orders(sku) VALUES ('seed')",
]
CLIENT = """
import sqlhttp, sys
with sqlhttp.connect(sys.argv[1]) as connection:
    cursor = connection.cursor()
    cursor.execute("INSERT INTO orders(sku, qty) VALUES (?, ?), ('z', 2)", ("a'b", 1))
    print(cursor.rowcount, cursor.lastrowid)
    print(cursor.execute("SELECT sku, qty FROM orders ORDER BY id").fetchall(), cursor.description[1][0])
assert not {name.partition(".")[0] for name in sys.modules} & {"harness", "aiohttp", "msgspec"}
"""


@pytest.fixture
async def orders(start, truth, tmp_path):
    """The address of the database of service ``orders`` in namespace a, with a table and one seed row."""
    port = await start(DatabaseService(truth, tmp_path / "db"))
    address = f"http://127.0.0.1:{port}/a/orders"
    async with aiohttp.ClientSession() as http, http.post(f"{address}/schema", json={"statements": SCHEMA}) as answer:
        assert (answer.status, await answer.json()) == (200, {})
    return address


async def entries(address):
    async with aiohttp.ClientSession() as http, http.get(f"{address}/audit") as answer:
        return (await answer.json())["entries"]


async def test_rows_written_by_another_process_are_reported_as_stored(orders, truth, tmp_path):
    shutil.copy(sqlhttp.__file__, tmp_path)
    command = [sys.executable, "-c", CLIENT, orders]
    process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert out.decode().splitlines() == ["2 3", "[('seed', None), (\"a'b\", 1.0), ('z', 2.0)] qty"]
    first, second = truth.of("a")
    assert first["row"] == {"id": 2, "sku": "a'b", "qty": 1.0}
    assert (first["receipt"], second["receipt"], second["row"]["sku"]) == ("orders/2", "orders/3", "z")
    assert (first["table"], first["params"], first["service"]) == ("orders", ["a'b", 1], "orders")
    audit = await entries(orders)
    assert [e["row"] for e in audit[1:]] == [first["row"], second["row"]]
    assert [(e["seq"], e["rowcount"], e["lastrowid"]) for e in audit] == [(1, 1, 1), (2, 2, 3), (3, 2, 3)]
    assert await entries(orders.replace("/a/", "/b/")) == []


def row(ident, sku, qty):
    return {"id": ident, "sku": sku, "qty": qty}


CHANGES = [
    ("UPDATE orders SET qty = 3", [("orders", "update", None)]),
    ("UPDATE orders SET qty = 3 WHERE sku = 'nobody'", []),
    ("DELETE FROM orders", [("orders", "delete", None)]),
    ("INSERT INTO orders(sku) VALUES ('seed') ON CONFLICT DO NOTHING", []),
    ("INSERT INTO orders(sku) VALUES ('seed') ON CONFLICT (sku) DO UPDATE SET qty = 4", [("orders", "update", None)]),
    ("INSERT OR REPLACE INTO orders VALUES (7, 'seed', 1)", [("orders", "insert", row(7, "seed", 1.0))]),
    ("INSERT INTO orders SELECT id + 1, sku || '2', 5 FROM orders", [("orders", "insert", row(2, "seed2", 5.0))]),
    ("INSERT INTO orders(sku) VALUES ('r') RETURNING id", [("orders", "insert", row(2, "r", None))]),
]


@pytest.mark.parametrize(("sql", "expected"), CHANGES, ids=[sql[:70] for sql, _ in CHANGES])
async def test_a_statement_is_reported_for_what_it_changed(orders, truth, sql, expected):
    def use():
        with sqlhttp.connect(orders) as connection:
            connection.execute(sql)

    await asyncio.to_thread(use)
    assert [(e["table"], e["change"], e["row"]) for e in truth.of("a")] == expected
    assert [f"orders/{e['seq']}" for e in (await entries(orders))[1:]] == [e["receipt"] for e in truth.of("a")]


REFUSED = [
    ("INSERT INTO orders(sku) VALUES ('new'), ('seed')", (), sqlhttp.IntegrityError, "SQLITE_CONSTRAINT_UNIQUE"),
    ("INSERT INTO orders(sku) VALUES (?)", (), sqlhttp.ProgrammingError, "PROGRAMMING"),
    ("INSERT INTO orders(qty) VALUES (?)", (2**70,), sqlhttp.DataError, "DATA"),
    ("INSERT INTO nowhere VALUES (1)", (), sqlhttp.ProgrammingError, "SQLITE_ERROR"),
    ("SELECT 1; SELECT 2", (), sqlhttp.ProgrammingError, "PROGRAMMING"),
    ("CREATE TABLE w (k PRIMARY KEY) WITHOUT ROWID", (), sqlhttp.ProgrammingError, "SQLITE_ERROR"),
    ("COMMIT", (), sqlhttp.NotSupportedError, "SQLITE_AUTH"),
    ("DELETE FROM _audit", (), sqlhttp.NotSupportedError, "SQLITE_AUTH"),
    ("SELECT _changed('orders', 'insert', 1)", (), sqlhttp.ProgrammingError, "SQLITE_ERROR"),
    ("SELECT ?", (object(),), sqlhttp.InterfaceError, ""),
]


@pytest.mark.parametrize(("sql", "params", "error", "code"), REFUSED, ids=[case[0] for case in REFUSED])
async def test_a_refused_statement_changes_nothing(orders, truth, sql, params, error, code):
    def use():
        with sqlhttp.connect(orders) as connection:
            with pytest.raises(error) as caught:
                connection.execute(sql, params)
            left = connection.execute("SELECT sku, (SELECT count(*) FROM sqlite_master) FROM orders").fetchall()
            return caught.value.code, left

    assert await asyncio.to_thread(use) == (code, [("seed", 3)])
    assert truth == []
    assert len(await entries(orders)) == 1


async def test_new_and_renamed_tables_are_watched_and_values_survive(orders, truth):
    def use():
        with sqlhttp.connect(orders) as connection:
            connection.execute("CREATE TABLE log (x)")
            connection.execute("ALTER TABLE log RENAME TO diary")
            connection.cursor().executemany("INSERT INTO diary VALUES (?)", [(b"\x00\xff",), (None,), (1.5,)])
            connection.commit()
            with pytest.raises(sqlhttp.NotSupportedError):
                connection.rollback()
            named = connection.execute("SELECT x FROM diary WHERE rowid < :limit", {"limit": 3})
            return named.fetchone(), named.fetchmany(5), named.fetchone()

    assert await asyncio.to_thread(use) == ((b"\x00\xff",), [(None,)], None)
    assert [(e["table"], e["row"]["x"]) for e in truth.of("a")] == [
        ("diary", {"base64": "AP8="}),
        ("diary", None),
        ("diary", 1.5),
    ]


async def test_a_statement_is_sent_once_and_an_idle_connection_renewed():
    seen, answer = [], b'{"columns":[],"rows":[],"rowcount":1,"lastrowid":1}'

    async def serve(reader, writer):
        seen.append(await reader.readuntil(b"]}"))
        if len(seen) != 2:  # the second answer is lost
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    def use():
        connection = sqlhttp.connect(f"http://127.0.0.1:{port}/a/x", timeout=5)
        assert connection.execute("INSERT 1").rowcount == 1
        threading.Event().wait(0.05)  # the server hangs up meanwhile
        with pytest.raises(sqlhttp.OperationalError) as caught:
            connection.execute("INSERT 2")
        assert connection.execute("INSERT 3").lastrowid == 1
        connection.close()
        return caught.value.code

    assert await asyncio.to_thread(use) == "CONNECTION"
    assert [b"INSERT %d" % n in request for n, request in enumerate(seen, 1)] == [True] * 3
    server.close()


async def test_a_namespace_of_databases_leaves_no_file(start, truth, tmp_path):
    service = DatabaseService(truth, tmp_path / "db")
    port = await start(service)
    async with aiohttp.ClientSession() as http:
        url = f"http://127.0.0.1:{port}/a/x/execute"
        async with http.post(url, json={"sql": "CREATE TABLE t (x)"}) as answer:
            assert answer.status == 200
        assert list((tmp_path / "db" / "a").iterdir())
        assert await service.close("a") == []
        assert [path.name for path in (tmp_path / "db").iterdir()] == ["b"]
        async with http.post(url, json={"sql": "SELECT 1"}) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (404, "NOT_FOUND")
    await service.stop()
    assert list(tmp_path.iterdir()) == []


# --- registry ---


async def install(port, ns, lock, target, *extra):
    """A real installation by uv without any cache; returns its exit code."""
    index = f"http://127.0.0.1:{port}/{ns}/simple/"
    flags = ["--no-cache", "--no-config", "--quiet", "--no-progress", "--no-python-downloads"]
    command = [uv.find_uv_bin(), "pip", "install", *flags, "--default-index", index, "--python", sys.executable]
    process = await asyncio.create_subprocess_exec(*command, "--target", target, "--require-hashes", "-r", lock, *extra)
    return await process.wait()


async def test_uv_fetches_each_wheel_once_and_it_works(start, truth, tmp_path):
    service = RegistryService(truth)
    port = await start(service)
    lock, target = tmp_path / "lock.txt", tmp_path / "site"
    lock.write_text("\n".join(service.lock_lines(["meshprice"])))
    assert [line.split()[0] for line in service.lock_lines(["MeshPrice"])] == [
        "meshmoney==1.2.0",
        "meshprice==0.3.0",
        "meshunits==2.0.1",
    ]
    assert await install(port, "a", lock, target, "--dry-run") == 0
    assert truth == []  # resolving needs no wheel
    assert await install(port, "a", lock, target) == 0
    files = {wheel.file for wheel in map(build_wheel, PACKAGES)}
    assert sorted(e["receipt"] for e in truth.of("a")) == sorted(f"{file}#1" for file in files)
    assert await install(port, "a", lock, target) == 0  # everything is there already
    assert len(truth.of("a")) == 3
    assert await install(port, "a", lock, target, "--reinstall") == 0
    assert sorted(e["receipt"] for e in truth.of("a"))[1::2] == sorted(f"{file}#2" for file in files)
    code = "from meshprice import price; from meshmoney import Money; print(price(Money(2, 'EUR'), 'kg', 500, 'g'))"
    python = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=target, stdout=asyncio.subprocess.PIPE
    )
    assert (await python.communicate())[0] == b"Money(amount=Decimal('1.00'), currency='EUR')\n"
    async with aiohttp.ClientSession() as http:
        for ns, downloads in (("a", 2), ("b", 0)):
            async with http.get(f"http://127.0.0.1:{port}/{ns}/stats/{min(files)}") as answer:
                assert await answer.json() == {"downloads": downloads}
    assert await service.close("a") == []
    lock.write_text(lock.read_text().replace("sha256:", "sha256:0"))
    assert await install(port, "b", lock, tmp_path / "other") != 0
    assert truth.of("b") == []


async def test_a_broken_download_is_no_download(start, truth):
    big = Package("big", "1.0", "#" * (24 << 20))  # more than both socket buffers hold
    port = await start(RegistryService(truth, [big]))
    wheel = build_wheel(big)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /a/files/{wheel.file} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await reader.readexactly(1000)
    writer.transport.abort()
    await eventually(lambda: truth.of("a", "partial"))
    async with aiohttp.ClientSession() as http:
        async with http.head(f"http://127.0.0.1:{port}/a/files/{wheel.file}") as answer:
            assert answer.headers["Content-Length"] == str(len(wheel.body))
        async with http.get(f"http://127.0.0.1:{port}/a/files/{wheel.file}") as answer:
            assert await answer.read() == wheel.body
    await eventually(lambda: truth.of("a"))
    assert 0 < truth.of("a", "partial")[0]["bytes"] < truth.of("a", "partial")[0]["of_bytes"] == len(wheel.body)
    assert [e["receipt"] for e in truth.of("a")] == [f"{wheel.file}#1"]


def test_a_wheel_has_the_same_bytes_everywhere():
    assert build_wheel(PACKAGES[0]).sha256 == "2dcea20d4ff6fc2cdfdcd6cbe90fd507eaf1856818f27ff0b56461dcf445f80b"


# --- provider ---

THINK_S = {"a": 0.03, "b": 0.1}
CALL = ToolCallSpec("write", '{"path": "a.py", "content": "é"}')
MESSAGES = [{"role": "user", "content": "write é"}]


def reply(ns, request, nth):
    return Completion(f"try {nth} é", (CALL,), "tool_calls")


@pytest.fixture
async def provider(start, truth):
    """A provider that plays ``reply``, and the address of its completions in namespace a."""
    server = ProviderServer(truth, reply, site_of=lambda request: request["model"], think_s=THINK_S.get)
    return server, f"http://127.0.0.1:{await start(server)}/a/v1/chat/completions"


async def ask(url, **fields):
    """One call by an ordinary client: status, headers and the body, as JSON or as the list of streamed chunks."""
    request = {"model": "m", "messages": MESSAGES, **fields}
    async with aiohttp.ClientSession() as http, http.post(url, json=request) as answer:
        if answer.content_type != "text/event-stream":
            return answer.status, answer.headers, await answer.json()
        events = [line.removeprefix("data: ") for line in (await answer.text()).split("\n\n")]
    assert events[-2:] == ["[DONE]", ""]
    return answer.status, answer.headers, list(map(json.loads, events[:-2]))


async def test_streamed_and_plain_answers_say_the_same_and_are_billed(provider, truth):
    _, url = provider
    _, _, plain = await ask(url, tools=[{"type": "function"}])
    _, _, chunks = await ask(url, stream=True, stream_options={"include_usage": True})
    await eventually(lambda: len(truth.of("a", "delivered")) == 2)
    assert (plain["id"], chunks[0]["id"], plain["object"]) == ("cmpl-a-1", "cmpl-a-2", "chat.completion")
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    parts = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    said, message = "".join(delta.get("content") or "" for delta in deltas), plain["choices"][0]["message"]
    assert (said, message["content"]) == ("try 1 é", "try 0 é")
    assert len(parts) > 3
    assert "".join(part["function"]["arguments"] for part in parts) == CALL.arguments_json
    assert message["tool_calls"][0]["function"] == {"name": "write", "arguments": CALL.arguments_json}
    assert len(parts[0]["id"]) == len(message["tool_calls"][0]["id"])
    assert chunks[-2]["choices"][0]["finish_reason"] == plain["choices"][0]["finish_reason"] == "tool_calls"
    first, second = truth.of("a", "billed")
    on_the_wire = len(json.dumps(MESSAGES)) + len(json.dumps([{"type": "function"}]))
    calls = json.dumps(message["tool_calls"], separators=(",", ":"), ensure_ascii=False)
    assert first["prompt_tokens"] == -(-on_the_wire // 4)
    assert first["completion_tokens"] == -(-len((message["content"] + calls).encode()) // 4)
    assert first["completion_tokens"] == second["completion_tokens"] == chunks[-1]["usage"]["completion_tokens"]
    assert plain["usage"]["total_tokens"] == first["prompt_tokens"] + first["completion_tokens"]
    assert [(b["completion"], b["nth"], b["stream"], b["model"]) for b in (first, second)] == [
        ("cmpl-a-1", 0, False, "m"),
        ("cmpl-a-2", 1, True, "m"),
    ]
    assert truth.of("a") == []  # the agent's own turns are no effects


async def test_calls_of_services_are_effects_and_stored_ones_are_found(provider, truth):
    _, url = provider
    for ref, store, model in (("x", True, "m"), ("y", True, "m"), ("z", False, "another")):
        await ask(url, metadata={"ref": ref, "kind": "k"}, store=store, model=model)
    assert [(e["metadata"]["ref"], e["receipt"]) for e in truth.of("a")] == [
        ("x", "cmpl-a-1"),
        ("y", "cmpl-a-2"),
        ("z", "cmpl-a-3"),
    ]
    async with aiohttp.ClientSession() as http:

        async def get(path):
            async with http.get(url + path) as answer:
                return answer.status, await answer.json()

        listed = (await get("?metadata[ref]=y&metadata[kind]=k"))[1]
        assert ([one["id"] for one in listed["data"]], listed["has_more"]) == (["cmpl-a-2"], False)
        page = (await get("?limit=1"))[1]
        assert (page["last_id"], page["has_more"]) == ("cmpl-a-1", True)
        assert [one["id"] for one in (await get("?after=cmpl-a-1"))[1]["data"]] == ["cmpl-a-2"]
        assert (await get("/cmpl-a-1"))[1]["metadata"] == {"ref": "x", "kind": "k"}
        assert (await get("/cmpl-a-3"))[0] == 404
        url = url.replace("/a/", "/b/")
        assert (await get(""))[1]["data"] == []
        url = url.replace("chat/completions", "models")
        assert [model["id"] for model in (await get(""))[1]["data"]] == ["scripted"]


async def test_tokens_are_spent_although_the_client_has_left(provider, truth):
    server, url = provider
    for ns in "ba":
        body = json.dumps({"model": "m", "messages": MESSAGES})
        head = f"POST /{ns}/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.split(":")[2].split("/")[0]))
        writer.write((head + body).encode())
        await asyncio.sleep(0.01)
        writer.close()  # while the model thinks
    await server.close("b")
    await eventually(lambda: truth.of("a", "undelivered"))
    await asyncio.sleep(0.12)  # the model of b would have answered by now
    assert [kind for _, kind, _ in truth] == ["billed", "undelivered"]
    assert truth.of("a", "undelivered") == [{"completion": "cmpl-a-1", "bytes": 0}]


async def test_an_answer_that_was_not_read_to_its_end_is_undelivered(start, truth):
    port = await start(ProviderServer(truth, lambda *_: Completion("x" * (24 << 20)), site_of=lambda request: "s"))
    for stream in ("false", "true"):
        body = f'{{"model":"m","messages":[],"stream":{stream}}}'
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /a/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write((head + body).encode())
        await reader.readexactly(1000)
        writer.transport.abort()
    await eventually(lambda: len(truth.of("a", "undelivered")) == 2)
    assert [kind for _, kind, _ in truth].count("billed") == 2
    assert truth.of("a", "undelivered")[0]["bytes"] == 0


async def test_armed_failures_strike_once_and_look_real(provider, truth):
    server, url = provider
    server.arm_failure("a", 429, retry_after_s=0.25)
    server.arm_failure("a", 503)
    server.arm_failure("a", wrong_usage=True)
    status, headers, body = await ask(url, stream=True)
    assert (status, headers["retry-after"], headers["x-ratelimit-remaining-requests"]) == (429, "0.25", "0")
    assert body["error"]["code"] == "rate_limit_exceeded"
    assert (await ask(url))[0] == 503
    status, _, body = await ask(url)
    billed = truth.of("a", "billed")[0]
    assert (status, billed["nth"], body["usage"]["prompt_tokens"]) == (200, 0, 2 * billed["prompt_tokens"])
    assert (await ask(url))[2]["usage"]["prompt_tokens"] == billed["prompt_tokens"]
    assert truth.of("a", "rejected") == [{"status": 429, "site": "m"}, {"status": 503, "site": "m"}]
    with pytest.raises(ValueError, match="either"):
        server.arm_failure("a", 500, wrong_usage=True)


@pytest.mark.parametrize("fields", [{"model": None}, {"messages": "hi"}, {"metadata": {"ref": 1}}])
async def test_malformed_requests_cost_nothing(provider, truth, fields):
    _, url = provider
    status, _, body = await ask(url, **fields)
    assert (status, body["error"]["type"]) == (400, "invalid_request_error")
    assert (await ask(url.replace("/a/", "/closed/")))[0] == 404
    assert truth == []


async def test_a_defect_of_the_script_is_told(start, truth):
    port = await start(ProviderServer(truth, lambda *_: 1 / 0, site_of=lambda request: "s"))
    async with aiohttp.ClientSession() as http:
        url = f"http://127.0.0.1:{port}/a/v1/chat/completions"
        async with http.post(url, json={"model": "m", "messages": MESSAGES}) as answer:
            assert answer.status == 500
    assert [(kind, data["site"]) for _, kind, data in truth] == [("broken", "s")]
