"""What this machine can do at the moment: the limits that the speeds of the harness are held against."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
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

    @classmethod
    def of(cls, seconds: list[float]) -> Spread:
        n, ranked = len(seconds), sorted(seconds)
        return cls(n, ranked[(n - 1) // 2], ranked[min(n - 1, int(0.99 * n))])

    def times(self, factor: int) -> Spread:
        return Spread(self.n, factor * self.p50, factor * self.p99)


def repeated(act: Callable[[], object], n: int, warm: int = 3) -> list[float]:
    """Seconds of each of `n` calls, after a few that do not count."""
    seconds = []
    for i in range(-warm, n):
        began = monotonic_s()
        act()
        if i >= 0:
            seconds.append(monotonic_s() - began)
    return seconds


async def awaited(act: Callable[[], Awaitable[object]], n: int, warm: int = 3) -> list[float]:
    """The same for something that is awaited."""
    seconds = []
    for i in range(-warm, n):
        began = monotonic_s()
        await act()
        if i >= 0:
            seconds.append(monotonic_s() - began)
    return seconds


def in_turn(measures: dict[str, Callable[[], list[float]]], rounds: int = 4) -> dict[str, Spread]:
    """Each measurement in turn, a few times over, so that what else runs on the machine weighs on all of them alike."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            found[name] += measure()
    return {name: Spread.of(seconds) for name, seconds in found.items()}


def fresh(folder: Path) -> Path:
    """A new folder within it."""
    return Path(tempfile.mkdtemp(dir=folder))


def fsync(folder: Path, n: int) -> list[float]:
    """4 KiB appended to a file and forced to the disk."""
    fd = os.open(fresh(folder) / "fsync", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    block = b"x" * 4096

    def write() -> None:
        os.write(fd, block)
        os.fsync(fd)

    try:
        return repeated(write, n)
    finally:
        os.close(fd)


def two_commits(folder: Path, n: int) -> list[float]:
    """Two durable commits of a row of 200 bytes to an SQLite file, by nothing but the standard library."""
    connection = sqlite3.connect(fresh(folder) / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)")
    keys = iter(range(1_000_000))

    def commit() -> None:
        key = next(keys)
        for text in ("reserved", "x" * 200):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", (key, text))
            connection.execute("COMMIT")

    try:
        return repeated(commit, n)
    finally:
        connection.close()


def lookup(folder: Path, n: int) -> list[float]:
    """A row read by its key from an SQLite file of as many rows."""
    connection = sqlite3.connect(fresh(folder) / "read.db")
    connection.execute("CREATE TABLE t (k TEXT PRIMARY KEY, v TEXT)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(f"{i:064x}", "x" * 500) for i in range(n + 3)])
    connection.commit()
    keys = iter(range(n + 3))

    def read() -> None:
        connection.execute("SELECT v FROM t WHERE k=?", (f"{next(keys):064x}",)).fetchall()

    try:
        return repeated(read, n)
    finally:
        connection.close()


def interpreter(n: int) -> list[float]:
    """A Python process that is started, does nothing and ends."""
    return repeated(lambda: subprocess.run([sys.executable, "-I", "-c", ""], check=True), n, warm=1)


async def http(n: int) -> list[float]:
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
    began = time.process_time()
    try:
        loop.run_until_complete(wait())
    finally:
        loop.close()
    return (time.process_time() - began) / n
