"""Endpoints that stand for a real model's in tests, and a run's services in front of one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from harness.world.live.cassette import Header, NoAnswer, create
from harness.world.live.completions import Completion, Declined
from harness.world.live.endpoint import host_of
from harness.world.live.provider import ProviderServer
from harness.world.live.realmodel import ModelSource, RealModel, SpendCapReached
from harness.world.live.spending import Caps

KEY = "sk-test-4f9c1d7e2b8a6035"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
    for name in ("read", "list")
]


def asking(text: str, phase: str = "implementation", **more: Any) -> dict[str, Any]:
    """A request as an orchestrator makes it."""
    return {
        "model": "scripted",
        "messages": [{"role": "user", "content": text}],
        "tools": TOOLS,
        "metadata": {"delegation": "orders", "phase": phase},
        "stream": True,
        "stream_options": {"include_usage": True},
        **more,
    }


def source(url: str, folder: Path, mode: str = "record", caps: Caps = Caps(), key: str = KEY) -> ModelSource:  # noqa: B008
    """Whom to ask, with a cassette and a file of spending in a folder."""
    cassette = folder / "cassette.jsonl.gz"
    if mode == "record" and not cassette.exists():
        create(cassette, Header(model="m-1", host=host_of(url)))
    return ModelSource(
        mode=mode,  # type: ignore[arg-type]
        model="m-1",
        host=host_of(url),
        url=url,
        key=key,
        cassette=str(cassette),
        spending=str(folder / "spending.jsonl"),
        caps=caps,
    )


class Truth(list):
    def __call__(self, ns: str, kind: str, data: Any) -> None:
        self.append((kind, dict(data)))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [data for what, data in self if what == kind]


@contextlib.asynccontextmanager
async def in_front_of(asked: ModelSource) -> AsyncIterator[tuple[str, Truth]]:
    """Our provider with one open trial and a model behind it: its base URL, and the truth that it tells."""
    model, truth, counted = RealModel(asked), Truth(), Counter[str]()

    async def forward(ns: str, request: Any, prompt_tokens: int) -> Completion | Declined:
        try:
            return await model.answer("trial-1", counted, request, prompt_tokens)
        except SpendCapReached as cap:
            truth(ns, "budget", {"cap": str(cap)})
            return Declined(402)
        except NoAnswer as error:
            truth(ns, "missing", {"error": str(error)})
            return Declined(404)

    def nobody(*_: Any) -> Completion:
        raise AssertionError("the script was asked")

    server = ProviderServer(truth, nobody, lambda r: r["metadata"]["phase"], forward=forward)
    port = await server.start()
    await server.open("a")
    try:
        yield f"http://127.0.0.1:{port}/a", truth
    finally:
        await server.stop()
        model.close()


async def told(base: str, request: dict[str, Any]) -> tuple[int, Mapping[str, str], bytes, bool]:
    """Status, headers and bytes as a client gets them, and whether they came to an end."""
    async with aiohttp.ClientSession() as client, client.post(f"{base}/v1/chat/completions", json=request) as answer:
        data = bytearray()
        try:
            async for piece in answer.content.iter_any():
                data += piece
        except aiohttp.ClientPayloadError:
            return answer.status, answer.headers, bytes(data), False
        return answer.status, answer.headers, bytes(data), True


@contextlib.asynccontextmanager
async def raw_endpoint(*answers: bytes | None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """An endpoint that answers each connection with the next of some bytes and hangs up (None: without a word): its
    base URL, and the requests that it got."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        seen.append(head + await reader.readexactly(length))
        writer.write(answers[len(seen) - 1] or b"")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", seen
    finally:
        server.close()
        await server.wait_closed()


def streamed(chunks: Iterable[str], whole: bool = True, length: int | None = None) -> bytes:
    """An HTTP answer that streams events. whole: the body ends in order; otherwise the connection breaks within it."""
    body = "".join(f"data: {chunk}\n\n" for chunk in chunks).encode()
    announced = len(body) if whole else len(body) + 100
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {announced}\r\n\r\n"
    return head.encode() + body


def answered(status: int, body: str, *headers: str) -> bytes:
    """An HTTP answer in one piece."""
    lines = (
        f"HTTP/1.1 {status} X",
        "Content-Type: application/json",
        f"Content-Length: {len(body.encode())}",
        *headers,
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode() + body.encode()


@contextlib.asynccontextmanager
async def silent_endpoint() -> AsyncIterator[str]:
    """An endpoint that takes every request and never answers: its base URL."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        over.set()
        server.close()
        await server.wait_closed()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def independent(latency_ms: int = 0) -> AsyncIterator[str]:
    """LLMock, a server for tests that is none of ours: its base URL without the path of the API. latency_ms: real
    milliseconds before each answer."""
    beside = Path(sys.executable).with_name("llmock")
    program = str(beside) if beside.exists() else shutil.which("llmock")
    assert program, "llmock is not installed; it is one of the development dependencies"
    port = free_port()
    command = [program, "serve", "--port", str(port), "--log-level", "error"]
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, "LLMOCK_LATENCY_MS": str(latency_ms)})
    base = f"http://127.0.0.1:{port}"
    try:
        async with aiohttp.ClientSession() as client, asyncio.timeout(60):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with client.get(f"{base}/_llmock/scenario") as answer:
                        if answer.status == 200:
                            break
                assert process.returncode is None, "llmock did not start"
                await asyncio.sleep(0.1)
        yield base
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
