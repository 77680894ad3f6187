"""Whatever is killed in the middle of a preview, no process and no listening port of it is left."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from harness.world.files import DiskFiles
from harness.world.live.checks import CheckRunner
from harness.world.live.zygote import start_zygote
from harness.world.preview import chromium
from tests.live.test_preview_check import shop, start

pytestmark = pytest.mark.live

SLOW = "    user = headers.get"
SLEEPS = {
    "requests": "    __import__('time').sleep(600)\n",
    "browser": "    'Mozilla' in headers.get('user-agent', '') and __import__('time').sleep(600)\n",
}
"""At which of the two the gateway of a system falls asleep, so that its preview stands still in the middle."""

LEFT_S = 30.0


def processes(mark: str) -> dict[int, str]:
    """Command lines by number of all processes that this mark shows to be a check's: in their arguments, environment
    or folder. What has ended and nobody has asked about is none."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            ended = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if not ended and (mark in words.decode(errors="replace") or mark in os.readlink(entry / "cwd")):
                found[int(entry.name)] = words.split(b"\0")[0].decode(errors="replace")
        except OSError:
            continue  # it has ended meanwhile
    return found


def ports(pids: Iterable[int]) -> set[int]:
    """Where these processes listen."""
    sockets = set()
    for pid in pids:
        try:
            sockets |= {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()}
        except OSError:
            continue
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


async def in_the_middle(stage: str, mark: str) -> set[int]:
    """Wait until the three components listen, and a browser runs where it is its turn: the ports."""
    async with asyncio.timeout(LEFT_S):
        while True:
            there = processes(mark)
            listening = ports(there)
            if len(listening) == 3 and (stage == "requests" or any("chrom" in name for name in there.values())):
                return listening
            await asyncio.sleep(0.02)


async def all_gone(mark: str, listened: set[int]) -> None:
    async with asyncio.timeout(LEFT_S):
        while processes(mark):
            await asyncio.sleep(0.02)
    for port in listened:
        with socket.socket() as caller:
            assert caller.connect_ex(("127.0.0.1", port)) != 0


def sleepy(root: Path, stage: str) -> None:
    gateway = shop(root)["gateway/service.py"]
    DiskFiles(root).put("gateway/service.py", gateway.replace(SLOW, SLEEPS[stage] + SLOW, 1))


STAGES = ["requests", *(["browser"] if chromium.program() else [])]

ORCHESTRATOR = """
import asyncio, sys
from harness.world.live.checks import CheckRunner
from tests.live.test_preview_check import CHECK

async def main(server, root):
    env = {"SCENARIO": CHECK.scenario, "PYTHONDONTWRITEBYTECODE": "1"}
    running = await CheckRunner(server, tag="orphan").start(CHECK, root, env)
    print(running.pid, flush=True)
    await running.wait()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("way", ["its group", "its leader", "its leader, while it is stopped"])
async def test_a_check_that_is_killed_leaves_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, stage: str, way: str
) -> None:
    sleepy(tmp_path, stage)
    server = await start_zygote(tmp_path_factory.mktemp("z") / "s")
    running = await start(CheckRunner(server.socket_path), tmp_path)
    mark = f"{server.socket_path}.d/{running.pid}"
    listened = await in_the_middle(stage, mark)
    if way == "its group":
        running.kill()
    else:
        if "stopped" in way:
            running.stop()
        os.kill(running.pid, signal.SIGKILL)
    assert (await running.wait()).signal == signal.SIGKILL
    await all_gone(mark, listened)
    await server.stop()


@pytest.mark.parametrize("stage", STAGES)
async def test_nothing_is_left_where_the_fork_server_is_killed(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, stage: str
) -> None:
    sleepy(tmp_path, stage)
    server = await start_zygote(tmp_path_factory.mktemp("z") / "s")
    running = await start(CheckRunner(server.socket_path), tmp_path)
    mark = f"{server.socket_path}.d/{running.pid}"
    listened = await in_the_middle(stage, mark)
    running.stop()
    server.process.kill()
    await server.process.wait()
    await all_gone(mark, listened)


@pytest.mark.parametrize("stage", STAGES)
async def test_nothing_is_left_where_the_orchestrator_is_killed_and_its_checks_are_ended(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, stage: str
) -> None:
    sleepy(tmp_path, stage)
    server = await start_zygote(tmp_path_factory.mktemp("z") / "s")
    command = [sys.executable, "-c", ORCHESTRATOR, server.socket_path, str(tmp_path)]
    orchestrator = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert orchestrator.stdout is not None
    mark = f"{server.socket_path}.d/{int(await orchestrator.stdout.readline())}"
    listened = await in_the_middle(stage, mark)
    orchestrator.kill()
    await orchestrator.wait()
    assert await CheckRunner(server.socket_path, tag="orphan").end_all() == 1
    await all_gone(mark, listened)
    await server.stop()


HOLDER = """
import sys
from pathlib import Path
from harness.world.preview import chromium
from harness.world.preview.systems import Component, booted

with booted({"s": Component(module="s.py")}, {"s.py": "def respond(*asked): return 200, {}, ''"}) as system:
    print(*system.pids().values(), flush=True)
    if sys.argv[1] == "requests":
        sys.stdin.read()
    with chromium.tab(chromium.program()):
        here = Path("/proc/self/task")
        children = [int(n) for task in here.iterdir() for n in (task / "children").read_text().split()]
        print(*children, flush=True)
        sys.stdin.read()
"""


@pytest.mark.parametrize("stage", STAGES)
async def test_what_is_stopped_ends_with_whoever_booted_it(stage: str) -> None:
    """A stopped process reads nothing, so it never sees that the pipe which it lives on was closed."""
    command = [sys.executable, "-c", HOLDER, stage]
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    holder = await asyncio.create_subprocess_exec(*command, **pipes)
    assert holder.stdout is not None
    for _ in range(STAGES.index(stage) + 1):
        children = [int(number) for number in (await holder.stdout.readline()).split()]
    for child in children:
        os.kill(child, signal.SIGSTOP)
    holder.kill()
    await holder.wait()
    async with asyncio.timeout(LEFT_S):
        while any(map(runs, children)):
            await asyncio.sleep(0.02)


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
