"""The fault proxy and the real Toxiproxy, driven alike by the usual client over real sockets.

The half against the real server is skipped when it is not on PATH.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator

import pytest
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from harness.world.live.toxiproxy import launch_real, real_server_on_path
from tests.live.toxibench import STREAMS, Client, Proxying, connected, running, seconds, struck, until

pytestmark = pytest.mark.live


@pytest.fixture(params=["embedded", "real"])
async def proxying(request: pytest.FixtureRequest) -> AsyncIterator[Proxying]:
    if request.param == "real" and real_server_on_path() is None:
        pytest.skip("toxiproxy-server is not on PATH")
    async with running(request.param) as started:
        yield started


# -- the control API


async def test_the_client_manages_proxies_and_toxics(proxying: Proxying) -> None:
    call, client = proxying.call, proxying.client
    assert b"version" in await call(client.version)
    proxy = await proxying.proxy("one")
    assert proxy.enabled
    assert int(proxy.listen.removeprefix("127.0.0.1:")) > 0
    with pytest.raises(ProxyExists):
        await proxying.proxy("one")
    await call(proxy.add_toxic, type="latency", attributes={"latency": 5, "jitter": 1}, toxicity=0.5)
    await call(proxy.add_toxic, type="reset_peer", name="r", stream="upstream")
    toxics = await call(proxy.toxics)
    assert list(toxics) == ["r", "latency_downstream"]  # upstream first
    slow = toxics["latency_downstream"]
    assert (slow.stream, slow.toxicity, slow.attributes) == ("downstream", 0.5, {"latency": 5, "jitter": 1})
    with pytest.raises(ProxyExists):
        await call(proxy.add_toxic, type="reset_peer", name="r")
    with pytest.raises(InvalidToxic, match="invalid toxic type"):
        await call(proxy.add_toxic, type="gremlin")
    await call(proxy.destroy_toxic, "r")
    with pytest.raises(NotFound, match="toxic not found"):
        await call(proxy.destroy_toxic, "r")
    await call(client.populate, [{"name": "two", "listen": "127.0.0.1:0", "upstream": "127.0.0.1:9", "enabled": False}])
    assert set(await call(client.proxies)) == {"one", "two"}
    await call(client.reset)
    shown = await call(client.proxies)
    assert all(each.enabled for each in shown.values())
    assert await call(proxy.toxics) == {}
    await call(client.destroy_all)
    assert await call(client.proxies) == {}


ERRORS = [
    ("POST", "/proxies", "", 400, "bad request body: EOF"),
    ("POST", "/proxies", '{"name":', 400, "bad request body: unexpected EOF"),
    ("POST", "/proxies", '{"upstream":"127.0.0.1:9"}', 400, "missing required field: name"),
    ("POST", "/proxies", '{"name":"x"}', 400, "missing required field: upstream"),
    ("POST", "/proxies", '{"name":"p","upstream":"127.0.0.1:9"}', 409, "proxy already exists"),
    (
        *("POST", "/proxies", '{"name":"x","upstream":"u","enabled":"yes"}', 400),
        "bad request body: json: cannot unmarshal string into Go struct field Proxy.enabled of type bool",
    ),
    (
        *("POST", "/proxies", '{"name":"x","upstream":"u","listen":"nowhere"}', 500),
        "listen tcp: address nowhere: missing port in address",
    ),
    ("GET", "/proxies/none", None, 404, "proxy not found"),
    ("DELETE", "/proxies/none", None, 404, "proxy not found"),
    ("POST", "/proxies/none/toxics", "{}", 404, "proxy not found"),
    ("GET", "/proxies/p/toxics/none", None, 404, "toxic not found"),
    ("PATCH", "/proxies/p/toxics/none", "{}", 404, "toxic not found"),
    ("POST", "/proxies/p/toxics", "{}", 400, "invalid toxic type"),
    (
        *("POST", "/proxies/p/toxics", '{"type":"latency","stream":"sideways"}', 400),
        "stream was invalid, can be either upstream or downstream",
    ),
    ("POST", "/proxies/p/toxics", '{"type":"timeout"}', 409, "toxic already exists"),
    (
        *("POST", "/proxies/p/toxics", '{"type":"latency","attributes":{"latency":"5"}}', 400),
        "bad request body: json: cannot unmarshal string into Go struct field LatencyToxic.attributes.latency"
        " of type int64",
    ),
]


async def test_errors_have_the_status_and_the_words_of_toxiproxy(proxying: Proxying) -> None:
    proxy = await proxying.proxy()
    await proxying.call(proxy.add_toxic, type="timeout")
    for method, path, body, status, reason in ERRORS:
        assert await proxying.api(method, path, body) == (status, {"error": reason, "status": status}), (path, body)
    taken = f'{{"name":"x","listen":"{proxy.listen}","upstream":"127.0.0.1:9"}}'
    status, answer = await proxying.api("POST", "/proxies", taken)
    assert (status, answer["error"]) == (500, f"listen tcp {proxy.listen}: bind: address already in use")
    assert (await proxying.api("PUT", "/proxies/p"))[0] == 405
    status, answer = await proxying.api("POST", "/populate", '[{"name":"x"}]')
    assert (status, answer["error"]) == (400, "missing required field: upstream at proxy 1")


async def test_populate_keeps_what_is_alike_and_replaces_the_rest(proxying: Proxying) -> None:
    proxy = await proxying.proxy()
    await proxying.call(proxy.add_toxic, type="latency")
    same = f'{{"name":"p","listen":"{proxy.listen}","upstream":"{proxy.upstream}"}}'
    status, answer = await proxying.api("POST", "/populate", f"[{same}]")
    assert (status, len(answer["proxies"][0]["toxics"])) == (201, 1)
    moved = f'{{"name":"p","listen":"{proxy.listen}","upstream":"127.0.0.1:9"}}'
    status, answer = await proxying.api("POST", "/populate", f"[{moved}]")
    assert (status, answer["proxies"][0]["upstream"], answer["proxies"][0]["toxics"]) == (201, "127.0.0.1:9", [])


async def test_a_toxic_is_updated_and_shown(proxying: Proxying) -> None:
    await proxying.proxy()
    await proxying.api("POST", "/proxies/p/toxics", '{"type":"latency","name":"l","attributes":{"latency":100}}')
    status, shown = await proxying.api("PATCH", "/proxies/p/toxics/l", '{"toxicity":0.25,"attributes":{"jitter":9}}')
    assert status == 200
    assert shown == {
        **{"name": "l", "type": "latency", "stream": "downstream", "toxicity": 0.25},
        **{"attributes": {"latency": 100, "jitter": 9}},
    }
    assert await proxying.api("GET", "/proxies/p/toxics/l") == (200, shown)
    assert (await proxying.api("GET", "/proxies/p"))[1]["toxics"] == [shown]


# -- traffic and toxics


async def test_clean_traffic_passes_both_ways(proxying: Proxying) -> None:
    data = random.Random(1).randbytes(1_000_000)
    async with connected(await proxying.proxy()) as client:
        sending = asyncio.create_task(client.send(data))
        assert await client.receive(len(data)) == data
        await sending


@pytest.mark.parametrize("stream", STREAMS)
async def test_latency_delays(proxying: Proxying, stream: str) -> None:
    proxy = await proxying.proxy()
    await proxying.call(proxy.add_toxic, type="latency", stream=stream, attributes={"latency": 150})
    async with connected(proxy) as client:
        start = seconds()
        await client.send(b"ping")
        assert await client.receive(4) == b"ping"
        assert seconds() - start >= 0.145


@pytest.mark.parametrize("stream", STREAMS)
async def test_bandwidth_limits_the_rate(proxying: Proxying, stream: str) -> None:
    proxy = await proxying.proxy()
    await proxying.call(proxy.add_toxic, type="bandwidth", stream=stream, attributes={"rate": 50})
    async with connected(proxy) as client:
        start = seconds()
        await client.send(bytes(15_000))
        await client.receive(15_000)
        assert seconds() - start >= 0.25  # 15 KB at 50 KB/s


async def test_a_bandwidth_of_nothing_holds_until_it_is_removed(proxying: Proxying) -> None:
    proxy = await proxying.proxy()
    await proxying.call(proxy.add_toxic, type="bandwidth", name="b", stream="upstream", attributes={"rate": 0})
    async with connected(proxy) as client:
        await client.send(b"ping")
        await asyncio.sleep(0.2)
        assert not any(peer.data for peer in proxying.upstream.peers)
        await proxying.call(proxy.destroy_toxic, "b")
        assert await client.receive(4) == b"ping"


@pytest.mark.parametrize("stream", STREAMS)
async def test_timeout_swallows_and_closes(proxying: Proxying, stream: str) -> None:
    proxy = await proxying.proxy()
    await proxying.call(proxy.add_toxic, type="timeout", stream=stream, attributes={"timeout": 200})
    async with connected(proxy) as client:
        start = seconds()
        await client.send(b"ping")
        assert await client.ending() == (b"", "eof")
        assert seconds() - start >= 0.195
    assert proxying.upstream.peers[0].data == (b"" if stream == "upstream" else b"ping")


@pytest.mark.parametrize("stream", STREAMS)
async def test_timeout_of_zero_holds_until_it_is_removed_then_closes(proxying: Proxying, stream: str) -> None:
    proxy = await proxying.proxy()
    await proxying.call(proxy.add_toxic, type="timeout", name="t", stream=stream)
    async with connected(proxy) as client:
        await client.send(b"ping")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.read(1), 0.3)
        await proxying.call(proxy.destroy_toxic, "t")
        assert await client.ending() == (b"", "eof")


@pytest.mark.parametrize("delay", [0, 150])
@pytest.mark.parametrize("stream", STREAMS)
async def test_reset_peer_sends_a_reset_to_both_sides(proxying: Proxying, stream: str, delay: int) -> None:
    proxy = await proxying.proxy()
    await proxying.call(proxy.add_toxic, type="reset_peer", stream=stream, attributes={"timeout": delay})
    async with connected(proxy) as client:
        await until(lambda: proxying.upstream.peers)
        start = seconds()
        await client.send(b"ping")
        assert await client.ending() == (b"", "reset")
        assert seconds() - start >= delay / 1000 - 0.005
    await until(lambda: proxying.upstream.peers[0].ending)
    assert proxying.upstream.peers[0].ending == "reset"


@pytest.mark.parametrize("stream", STREAMS)
async def test_limit_data_cuts_at_the_byte(proxying: Proxying, stream: str) -> None:
    proxy = await proxying.proxy()
    await proxying.call(proxy.add_toxic, type="limit_data", stream=stream, attributes={"bytes": 5})
    async with connected(proxy) as client:
        await client.send(b"0123456789")
        received, _ = await client.ending()
    await until(lambda: proxying.upstream.peers[0].ending)
    if stream == "upstream":
        assert proxying.upstream.peers[0].data == b"01234"
    else:
        assert received == b"01234"


@pytest.mark.parametrize("stream", STREAMS)
async def test_slicer_slices_without_loss(proxying: Proxying, stream: str) -> None:
    data = random.Random(2).randbytes(300)
    proxy = await proxying.proxy()
    attributes = {"average_size": 30, "size_variation": 10, "delay": 2000}
    await proxying.call(proxy.add_toxic, type="slicer", stream=stream, attributes=attributes)
    async with connected(proxy) as client:
        start = seconds()
        await client.send(data)
        assert await client.receive(len(data)) == data
        assert seconds() - start >= 0.01  # at least 7 slices, 2 ms apart
    if stream == "upstream":
        assert len(proxying.upstream.peers[0].reads) > 1


async def test_slow_close_downstream_delays_the_end(proxying: Proxying) -> None:
    proxy = await proxying.proxy()
    await proxying.call(proxy.add_toxic, type="slow_close", attributes={"delay": 200})
    async with connected(proxy) as client:
        await client.send(b"ping")
        await client.receive(4)
        start = seconds()
        proxying.upstream.peers[0].writer.close()
        assert await client.ending() == (b"", "eof")
        assert seconds() - start >= 0.195


async def test_slow_close_upstream_delays_the_end(proxying: Proxying) -> None:
    proxy = await proxying.proxy()
    await proxying.call(proxy.add_toxic, type="slow_close", stream="upstream", attributes={"delay": 200})
    async with connected(proxy) as client:
        await client.send(b"ping")
        await client.receive(4)
        start = seconds()
    await until(lambda: proxying.upstream.peers[0].ending)
    assert seconds() - start >= 0.195


async def test_toxics_form_a_chain(proxying: Proxying) -> None:
    """What limit_data lets through is still delayed by a latency that was added after it."""
    proxy = await proxying.proxy()
    await proxying.call(proxy.add_toxic, type="limit_data", attributes={"bytes": 4})
    await proxying.call(proxy.add_toxic, type="latency", attributes={"latency": 150})
    async with connected(proxy) as client:
        start = seconds()
        await client.send(b"ping pong")
        assert (await client.ending())[0] == b"ping"
        assert seconds() - start >= 0.145


# -- changes under traffic


async def test_disabling_drops_and_refuses_and_enabling_listens_on_the_same_port(proxying: Proxying) -> None:
    proxy = await proxying.proxy()
    async with connected(proxy) as client:
        await client.send(b"ping")
        await client.receive(4)
        await proxying.call(proxy.disable)
        assert (await client.ending())[0] == b""
    with pytest.raises(ConnectionRefusedError):
        async with connected(proxy):
            pass
    await proxying.call(proxy.enable)
    async with connected(proxy) as client:
        await client.send(b"ping")
        assert await client.receive(4) == b"ping"
        await proxying.call(proxy.destroy)
        assert (await client.ending())[0] == b""
    with pytest.raises(ConnectionRefusedError):
        async with connected(proxy):
            pass


async def test_toxics_come_and_go_under_traffic_without_loss(proxying: Proxying) -> None:
    data = random.Random(3).randbytes(600_000)
    proxy = await proxying.proxy()
    toxics = [
        {"type": "latency", "attributes": {"latency": 20, "jitter": 15}},
        {"type": "slicer", "attributes": {"average_size": 2000, "size_variation": 500, "delay": 100}},
        {"type": "bandwidth", "attributes": {"rate": 2000}},
    ]

    async def send_slowly(client: Client) -> None:
        for start in range(0, len(data), 3000):
            await client.send(data[start : start + 3000])
            await asyncio.sleep(0.003)

    async with connected(proxy) as client:
        sending = asyncio.create_task(send_slowly(client))
        receiving = asyncio.create_task(client.receive(len(data)))
        while not sending.done():
            for stream in STREAMS:
                for number, toxic in enumerate(toxics):
                    await proxying.call(proxy.add_toxic, name=f"{stream}{number}", stream=stream, **toxic)
            await asyncio.sleep(0.05)
            for stream in STREAMS:
                for number in (1, 0, 2):
                    await proxying.call(proxy.destroy_toxic, f"{stream}{number}")
        assert await receiving == data
        assert proxying.upstream.peers[0].data == data


async def test_a_changed_toxic_treats_what_it_holds_anew(proxying: Proxying) -> None:
    proxy = await proxying.proxy()
    await proxying.call(proxy.add_toxic, type="latency", name="l", attributes={"latency": 60_000})
    async with connected(proxy) as client:
        await client.send(b"ping")
        await until(lambda: proxying.upstream.peers and proxying.upstream.peers[0].data)
        await asyncio.sleep(0.05)
        await proxying.api("POST", "/proxies/p/toxics/l", '{"attributes":{"latency":0}}')
        assert await client.receive(4) == b"ping"


async def test_a_changed_address_drops_the_connections_and_keeps_the_toxics(proxying: Proxying) -> None:
    proxy = await proxying.proxy()
    await proxying.call(proxy.add_toxic, type="latency")
    async with connected(proxy) as client:
        await client.send(b"ping")
        await client.receive(4)
        status, shown = await proxying.api("PATCH", "/proxies/p", '{"upstream":"127.0.0.1:9"}')
        assert (await client.ending())[0] == b""
    assert (status, shown["upstream"], shown["listen"], shown["enabled"]) == (200, "127.0.0.1:9", proxy.listen, True)
    assert len(shown["toxics"]) == 1


async def test_an_upstream_that_is_not_there_closes_the_client(proxying: Proxying) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        proxying.upstream.port = unused.getsockname()[1]
        async with connected(await proxying.proxy()) as client:
            assert (await client.ending())[0] == b""


@pytest.mark.parametrize("toxicity", [0, 1])
async def test_toxicity_of_none_and_all(proxying: Proxying, toxicity: int) -> None:
    kind = "embedded" if proxying.server else "real"
    assert await struck(kind, 1, toxicity=toxicity, connections=6) == [bool(toxicity)] * 6


async def test_the_real_server_is_started_or_its_absence_is_told() -> None:
    if real_server_on_path() is None:
        with pytest.raises(FileNotFoundError, match="toxiproxy-server"):
            await launch_real(1, 1)
    else:
        with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
            await launch_real(taken.getsockname()[1], 1)
