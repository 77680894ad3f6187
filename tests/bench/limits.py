"""What this machine can do at the moment: the limits that the speeds of the harness are held against."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
from aiohttp import web
from msgspec import Struct

from harness.core.clock import Clock, VirtualLoop, monotonic_s

HOST = "127.0.0.1"


class Spread(Struct, frozen=True):
    """Durations of one thing, in seconds."""

    n: int
    p50: float
    p99: float
    mean: float

    @classmethod
    def of(cls, seconds: list[float]) -> Spread:
        ranked = sorted(seconds)
        last = len(ranked) - 1
        return cls(
            len(ranked), ranked[last // 2], ranked[min(last, int(0.99 * len(ranked)))], sum(ranked) / len(ranked)
        )


def repeated(act: Callable[[], object], n: int, warm: int = 3) -> Spread:
    """Durations of `n` calls, after a few that do not count."""
    seconds = []
    for i in range(-warm, n):
        began = monotonic_s()
        act()
        if i >= 0:
            seconds.append(monotonic_s() - began)
    return Spread.of(seconds)


async def awaited(act: Callable[[], Awaitable[object]], n: int, warm: int = 3) -> Spread:
    """The same for something that is awaited."""
    seconds = []
    for i in range(-warm, n):
        began = monotonic_s()
        await act()
        if i >= 0:
            seconds.append(monotonic_s() - began)
    return Spread.of(seconds)


def fsync(folder: Path, n: int) -> Spread:
    """4 KiB appended to a file and forced to the disk."""
    fd = os.open(folder / "fsync", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    block = b"x" * 4096

    def write() -> None:
        os.write(fd, block)
        os.fsync(fd)

    try:
        return repeated(write, n)
    finally:
        os.close(fd)


def two_commits(folder: Path, n: int) -> Spread:
    """Two durable commits of a row of 500 bytes to an SQLite file, by nothing but the standard library."""
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)")
    keys = iter(range(1_000_000))

    def commit() -> None:
        key = next(keys)
        for text in ("reserved", "x" * 500):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", (key, text))
            connection.execute("COMMIT")

    try:
        return repeated(commit, n)
    finally:
        connection.close()


def interpreter(n: int) -> Spread:
    """A Python process that is started, does nothing and ends."""
    return repeated(lambda: subprocess.run([sys.executable, "-I", "-c", ""], check=True), n, warm=1)


async def http(n: int) -> Spread:
    """A request over the loopback device to a server that does nothing, on a new connection each time."""

    async def nothing(request: web.Request) -> web.Response:
        return web.Response(text="")

    app = web.Application()
    app.add_routes([web.post("/", nothing)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    url = f"http://{HOST}:{runner.addresses[0][1]}/"

    async def ask() -> None:
        async with aiohttp.ClientSession() as client, client.post(url, data=b"{}") as answer:
            await answer.read()

    try:
        return await awaited(ask, n)
    finally:
        await runner.cleanup()


def hop(n: int = 20_000) -> float:
    """Core-seconds of one timer on virtual time: what a simulated trial would cost if nothing happened in it but the
    waiting."""
    clock = Clock()

    async def wait() -> None:
        for _ in range(n):
            await clock.sleep_ms(1)

    loop = VirtualLoop()
    began = monotonic_s()
    try:
        loop.run_until_complete(wait())
    finally:
        loop.close()
    return (monotonic_s() - began) / n


def settled(work: Awaitable[Spread]) -> Spread:
    """Run one of the asynchronous measurements."""

    async def main() -> Spread:
        return await work

    return asyncio.run(main())
