"""What only the embedded fault proxy offers: evidence of harm, seeded draws, half-open connections, a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from harness.world.live.toxics import KINDS
from harness.world.live.toxistage import Chunk, End, Ending, Stage, Toxic
from tests.live.toxibench import STREAMS, Proxying, connected, running, struck, until

pytestmark = pytest.mark.live


@pytest.fixture
async def embedded() -> AsyncIterator[Proxying]:
    async with running("embedded") as started:
        yield started


async def test_a_slicer_that_would_never_end_is_refused(embedded: Proxying) -> None:
    await embedded.proxy()
    status, answer = await embedded.api("POST", "/proxies/p/toxics", '{"type":"slicer"}')
    assert (status, answer["error"]) == (400, "bad request body: average_size must be greater than 0")


# -- traffic and toxics


@pytest.mark.parametrize("stream", STREAMS)
async def test_reset_peer_also_resets_a_live_connection(embedded: Proxying, stream: str) -> None:
    proxy = await embedded.proxy()
    async with connected(proxy) as client:
        await client.send(b"ping")
        await client.receive(4)
        await embedded.call(proxy.add_toxic, type="reset_peer", stream=stream)
        await client.send(b"ping")
        assert await client.ending() == (b"", "reset")
    await until(lambda: embedded.upstream.peers[0].ending == "reset")


async def test_any_order_of_changes_keeps_the_bytes(embedded: Proxying) -> None:
    """Harsher than the client can be: a random change at nearly every turn of the event loop."""
    dice = random.Random(4)
    data = dice.randbytes(400_000)
    await embedded.proxy()
    assert embedded.server is not None
    inner = embedded.server._proxies["p"]
    attributes = {
        "latency": {"latency": 3, "jitter": 3},
        "slicer": {"average_size": 500, "size_variation": 499, "delay": 1},
        "bandwidth": {"rate": 3000},
        "noop": {},
        "slow_close": {"delay": 1},
    }
    async with connected(inner) as client:
        sending = asyncio.create_task(client.send(data))
        receiving = asyncio.create_task(client.receive(len(data)))
        for step in range(1500):
            kind = dice.choice(list(attributes))
            name = f"{kind}{dice.randrange(3)}"
            if name in inner.toxics and dice.random() < 0.6:
                inner.remove_toxics([name])
            else:
                stream = inner.toxics[name].stream if name in inner.toxics else dice.choice(STREAMS)
                inner.set_toxic(Toxic(name, kind, stream, dice.choice([0.3, 1.0]), attributes[kind]))
            await asyncio.sleep(0.0005 if step % 5 == 0 else 0)
        inner.remove_toxics(inner.toxics)
        assert await receiving == data
        await sending
        assert embedded.upstream.peers[0].data == data


async def test_a_receiver_that_does_not_read_stops_the_sender(embedded: Proxying) -> None:
    gate = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.close()

    listener = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1024)
    embedded.upstream.port = listener.sockets[0].getsockname()[1]
    proxy = await embedded.proxy()
    for toxic in (None, "noop", "latency"):
        if toxic:
            await embedded.call(proxy.add_toxic, type=toxic, stream="upstream")
        with socket.create_connection(("127.0.0.1", int(proxy.listen.rsplit(":", 1)[1]))) as sender:
            sender.setblocking(False)
            sent = 0
            for _ in range(200):
                with contextlib.suppress(BlockingIOError):
                    while sent < 64_000_000:
                        sent += sender.send(bytes(65536))
                await asyncio.sleep(0.001)
            assert sent < 40_000_000
    gate.set()
    listener.close()


async def test_a_half_closed_connection_still_answers(embedded: Proxying) -> None:
    async with connected(await embedded.proxy()) as client:
        await client.send(b"ping")
        client.writer.write_eof()
        assert await client.ending() == (b"ping", "eof")


async def test_a_changed_toxicity_reaches_live_connections(embedded: Proxying) -> None:
    proxy = await embedded.proxy()
    await embedded.call(proxy.add_toxic, type="limit_data", name="l", toxicity=0)
    async with connected(proxy) as client:
        await client.send(b"ping")
        await client.receive(4)
        await embedded.api("PATCH", "/proxies/p/toxics/l", '{"toxicity":1}')
        await client.send(b"ping")
        assert (await client.ending())[0] == b""
    assert embedded.harms() == [("cut", "l", 1)]


# -- chance


async def test_draws_depend_on_seed_and_place_alone() -> None:
    first = await struck("embedded", 1, toxicity=0.5)
    assert 4 < sum(first) < 20
    assert await struck("embedded", 1, toxicity=0.5, disturb=True) == first
    assert await struck("embedded", 2, toxicity=0.5) != first
    fewer = await struck("embedded", 1, toxicity=0.2)
    assert all(before for before, after in zip(first, fewer, strict=True) if after)  # a lower toxicity strikes a subset


class Basin:
    """A sink that remembers."""

    full = False

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.ending: End | None = None

    def put(self, chunk: Chunk) -> None:
        self.pieces.append(bytes(chunk.data))

    def finish(self, end: End) -> None:
        self.ending = end


async def test_where_the_slicer_cuts_does_not_depend_on_how_the_bytes_came() -> None:
    data = random.Random(5).randbytes(1000)

    async def cuts(step: int) -> set[int]:
        basin = Basin()
        toxic = Toxic("s", "slicer", "upstream", 1.0, {"average_size": 40, "size_variation": 30, "delay": 0})
        draws = random.Random(6)
        table = [draws.random() for _ in range(1001)]
        stage = Stage(toxic, KINDS["slicer"], lambda what, k: table[k], lambda stage, event: None, basin)
        stage.start(lambda work: asyncio.get_running_loop().create_task(work))
        for start in range(0, len(data), step):
            stage.put(Chunk(data[start : start + step], 0.0))
        stage.finish(End(Ending.FIN))
        await until(lambda: basin.ending)
        assert b"".join(basin.pieces) == data
        ends = [sum(map(len, basin.pieces[: n + 1])) for n in range(len(basin.pieces))]
        return {end for end in ends if end % 333 and end < len(data)}  # without where the bytes came apart anyway

    whole = await cuts(1000)
    assert len(whole) > 10
    assert await cuts(333) == whole


# -- evidence


async def test_a_toxic_that_harmed_nobody_leaves_no_evidence(embedded: Proxying) -> None:
    proxy = await embedded.proxy()
    await embedded.call(proxy.add_toxic, type="reset_peer", toxicity=0)
    await embedded.call(proxy.add_toxic, type="limit_data", attributes={"bytes": 100})
    await embedded.call(proxy.add_toxic, type="timeout", stream="upstream", toxicity=0)
    async with connected(proxy) as client:
        await client.send(b"ping")
        await client.receive(4)
    await asyncio.sleep(0.05)
    assert embedded.events == []


HARMS = [
    ("latency", {"latency": 20}, "delayed", 0, False),
    ("bandwidth", {"rate": 1}, "delayed", 0, False),
    ("slicer", {"average_size": 3, "size_variation": 1, "delay": 0}, "sliced", 0, False),
    ("limit_data", {"bytes": 4}, "cut", 6, True),
    ("timeout", {"timeout": 50}, "held", 10, True),
    ("reset_peer", {"timeout": 0}, "reset", 10, True),
]


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(("kind", "attributes", "event", "dropped", "ends"), HARMS)
async def test_harm_is_reported_once_and_summed_up_at_the_end(
    embedded: Proxying, kind: str, attributes: dict[str, int], event: str, dropped: int, ends: bool, stream: str
) -> None:
    proxy = await embedded.proxy()
    await embedded.call(proxy.add_toxic, type=kind, name="x", stream=stream, attributes=attributes)
    assert embedded.events == []
    for _ in range(2):
        async with connected(proxy) as client:
            await client.send(b"0123456789")
            if ends:
                await client.ending()
            else:
                await client.receive(10)
    await until(lambda: len(embedded.harms(closed=True)) == 2)
    assert embedded.harms() == [(event, "x", 1), (event, "x", 2)]
    for closed in (each for each in embedded.events if each["event"] == "closed"):
        assert (closed["proxy"], closed["toxic"], closed["stream"]) == ("p", "x", stream)
        assert (closed["bytes_forwarded"], closed["bytes_dropped"]) == (10 - dropped, dropped)
    assert embedded.server is not None
    stats = embedded.server.stats("p")
    assert (stats.connections, stats.toxics_applied) == (2, {"x": 2})
    assert stats.resets_sent == (2 if kind == "reset_peer" else 0)
    lost = stats.bytes_dropped_up if stream == "upstream" else stats.bytes_dropped_down
    assert lost == 2 * dropped


async def test_a_request_that_was_given_up_before_its_reset_is_evidence(embedded: Proxying) -> None:
    proxy = await embedded.proxy()
    await embedded.call(proxy.add_toxic, type="reset_peer", name="r", stream="upstream", attributes={"timeout": 60_000})
    async with connected(proxy) as client:
        await client.send(b"ping")
        await asyncio.sleep(0.1)
        await embedded.call(proxy.disable)
    assert [(event["event"], event["bytes_dropped"]) for event in embedded.events] == [
        ("held", 4),
        ("closed", 4),
        ("severed", 4),
    ]


async def test_severing_by_disabling_is_evidence_of_its_own(embedded: Proxying) -> None:
    proxy = await embedded.proxy()
    async with connected(proxy) as client:
        await client.send(b"ping")
        await client.receive(4)
        await embedded.call(proxy.disable)
    assert embedded.events == [
        {
            **{"proxy": "p", "event": "severed", "toxic": None, "stream": None},
            **{"connection": 1, "bytes_forwarded": 8, "bytes_dropped": 0},
        }
    ]


async def test_deleting_a_proxy_is_no_harm(embedded: Proxying) -> None:
    proxy = await embedded.proxy()
    async with connected(proxy) as client:
        await client.send(b"ping")
        await client.receive(4)
        await embedded.call(proxy.destroy)
        assert (await client.ending())[0] == b""
    assert embedded.events == []


async def test_a_listener_of_events_that_fails_does_not_disturb_the_traffic() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    async with running("embedded") as proxying:
        assert proxying.server is not None
        proxying.server._on_event = lambda event: 1 / 0
        proxy = await proxying.proxy()
        await proxying.call(proxy.add_toxic, type="latency", attributes={"latency": 1})
        async with connected(proxy) as client:
            await client.send(b"ping")
            assert await client.receive(4) == b"ping"
    asyncio.get_running_loop().set_exception_handler(None)
    assert [type(context["exception"]) for context in reported] == [ZeroDivisionError] * 2


# -- the end


def sockets_open() -> int:
    gc.collect()
    links = []
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{entry}"))
    return sum(link.startswith("socket:") for link in links)


@pytest.mark.filterwarnings("error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning")
async def test_stop_leaves_no_port_task_or_socket_behind() -> None:
    tasks, sockets = asyncio.all_tasks(), sockets_open()
    async with running("embedded") as proxying, contextlib.AsyncExitStack() as clients:
        assert proxying.server is not None
        proxies = [await proxying.proxy(f"p{number}") for number in range(3)]
        await proxying.call(proxies[1].add_toxic, type="timeout")
        await proxying.call(proxies[2].add_toxic, type="latency", stream="upstream", attributes={"latency": 60_000})
        for proxy in proxies:
            client = await clients.enter_async_context(connected(proxy))
            await client.send(b"ping")
        reader, writer = await asyncio.open_connection("127.0.0.1", int(proxies[0].listen.rsplit(":", 1)[1]))
        await proxying.server.stop()  # also with a connection that is only half made
        await proxying.server.stop()
        assert await reader.read() == b""
        writer.close()
        for port in (proxying.port, *(int(proxy.listen.rsplit(":", 1)[1]) for proxy in proxies)):
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises(KeyError, match="no proxy named"):
            proxying.server.stats("p0")
    await until(lambda: not asyncio.all_tasks() - tasks)
    await until(lambda: sockets_open() <= sockets)


async def test_every_byte_is_forwarded_or_dropped(embedded: Proxying) -> None:
    embedded.upstream.echo = False
    proxy = await embedded.proxy()
    await embedded.call(proxy.add_toxic, type="latency", stream="upstream", attributes={"latency": 60_000})
    for size in (10, 2000):
        async with connected(proxy) as client:
            await client.send(bytes(size))
            await asyncio.sleep(0.05)
    await embedded.call(proxy.disable)
    assert embedded.server is not None
    stats = embedded.server.stats("p")
    assert (stats.bytes_up, stats.bytes_dropped_up) == (0, 2010)
