"""Checks and hooks as an orchestrator sees them: started, watched, stopped, killed, and read when they end.

Why apart from the fork server: this side lives in the process that is killed on purpose, and holds nothing that the
check needs in order to go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal as signals
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from harness.core.clock import monotonic_s
from harness.core.errors import HarnessBug
from harness.core.types import CheckSpec

TAIL_CHARS = 2000
PACKET_BYTES = 1 << 16


class CheckResult(Struct, frozen=True, kw_only=True):
    """How a check ended.

    failing: ids of failed tests (the target itself where none is known). output_tail: at most 2000 characters, without
    addresses of this machine. exit_status: None when a signal ended it. monitor_error: the runner itself broke down,
    so `passed` says nothing. duration_s: real seconds from start to end; cpu_s: core-seconds of it and its children.
    checkpoints: how far the messages of its scenario got, as its processes report it (see `harness.world.checkpoints`).
    came_to: what the check itself found, before a coin turned its verdict or broke its runner; None when it did not get
    so far as to find anything, or a signal ended it. doubt: why the check says of itself that nothing may be built on
    what it found.
    """

    passed: bool
    failing: tuple[str, ...]
    output_tail: str
    exit_status: int | None
    signal: int | None
    duration_s: float
    cpu_s: float
    monitor_error: bool = False
    checkpoints: tuple[list[str], ...] = ()
    came_to: bool | None = None
    doubt: str = ""


class RunningCheck:
    """A check whose process runs, is stopped, or has ended. Made by `CheckRunner`."""

    def __init__(self, pid: int, peer: socket.socket, output_fd: int, result_fd: int, scrub: dict[str, str]) -> None:
        self.pid = pid
        self._peer, self._output_fd, self._result_fd, self._scrub = peer, output_fd, result_fd, scrub
        self._effects = self._output_bytes = 0
        self._began_s = monotonic_s()
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[CheckResult] = self._loop.create_future()
        self._loop.add_reader(peer, self._hear)

    def bump(self) -> None:
        """Count an effect of this check as progress."""
        self._effects += 1

    def progress(self) -> int:
        """Units of observable progress so far: bytes of output and effects."""
        if not self._ended.done():
            self._output_bytes = os.fstat(self._output_fd).st_size
        return self._output_bytes + self._effects

    async def wait(self) -> CheckResult:
        """The result, once the process ended. Cancelling this does nothing to the check.

        Raises HarnessBug when the fork server died.
        """
        return await asyncio.shield(self._ended)

    def kill(self) -> None:
        """SIGKILL to the check and all its children; nothing when it has ended."""
        self._signal(signals.SIGKILL)

    def stop(self) -> None:
        """SIGSTOP to the check and all its children."""
        self._signal(signals.SIGSTOP)

    def cont(self) -> None:
        """SIGCONT to the check and all its children."""
        self._signal(signals.SIGCONT)

    def state(self) -> str:
        """The state letter of /proc/<pid>/stat, "T" when stopped; "" when it is gone."""
        try:
            with open(f"/proc/{self.pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0]
        except OSError:
            return ""

    def _signal(self, signum: signals.Signals) -> None:
        if not self._ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signum)

    def _hear(self) -> None:
        """The fork server says that the process ended, or is gone itself."""
        self.progress()
        self._loop.remove_reader(self._peer)
        packet = b""
        with contextlib.suppress(ConnectionError):
            packet = self._peer.recv(PACKET_BYTES)
        if packet:
            self._ended.set_result(self._result(**json.loads(packet)))
        else:
            self._ended.set_exception(HarnessBug("the check server died"))
            self._ended.exception()  # nobody may be waiting, and that is no reason for a warning
        self._peer.close()
        os.close(self._output_fd)
        os.close(self._result_fd)

    def _result(self, status: int, cpu_s: float) -> CheckResult:
        code = os.waitstatus_to_exitcode(status)
        report = os.pread(self._result_fd, os.fstat(self._result_fd).st_size, 0)
        found: dict[str, Any] = json.loads(report) if report and code >= 0 else {}
        return CheckResult(
            passed=found.get("passed", False),
            failing=tuple(found.get("failing", ())),
            output_tail=self._tail(),
            exit_status=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            duration_s=round(monotonic_s() - self._began_s, 4),
            cpu_s=cpu_s,
            monitor_error=code >= 0 and "passed" not in found,
            checkpoints=tuple(found.get("checkpoints", ())),
            came_to=found.get("came_to"),
            doubt=found.get("doubt", ""),
        )

    def _tail(self) -> str:
        longest = max(map(len, self._scrub), default=0)
        keep = TAIL_CHARS * 4 + longest  # a character has up to four bytes
        start = max(self._output_bytes - keep, 0)
        text = os.pread(self._output_fd, self._output_bytes - start, start).decode(errors="replace")
        for found, name in self._scrub.items():
            text = text.replace(found, name)
        return text[-TAIL_CHARS:]


class CheckRunner:
    """Starts checks and hooks through the fork server at `zygote_socket`.

    tag: names the checks of one trial, so that whoever supervises it can end those that a killed orchestrator left.
    """

    def __init__(self, zygote_socket: str | os.PathLike[str], tag: str = "") -> None:
        self._socket, self._tag = str(zygote_socket), tag

    async def start(
        self,
        spec: CheckSpec,
        cwd: str | os.PathLike[str],
        env: Mapping[str, str],
        coin: Literal["", "flip", "raise"] = "",
        hold: Literal["", "before", "after"] = "",
        pace_ms: float = 0,
    ) -> RunningCheck:
        """Start a check in the workspace `cwd`, with this environment, PATH and a TMPDIR of its own and nothing else.

        coin: flip turns its verdict, raise makes its runner break down. hold: it stops itself (SIGSTOP) before it runs
        or when its work is done. pace_ms: it takes this much longer (real milliseconds), with signs of life.
        Raises HarnessBug when the fork server does not answer.
        """
        return await self._start(spec.kind, spec.target, cwd, env, (), coin, hold, pace_ms)

    async def start_script(
        self, cwd: str | os.PathLike[str], script: str, env: Mapping[str, str], args: Sequence[str] = ()
    ) -> RunningCheck:
        """Start a Python script of the workspace as a process, e.g. a post-write hook."""
        return await self._start("script", script, cwd, env, args, "", "", 0)

    async def run_script(
        self, cwd: str | os.PathLike[str], script: str, env: Mapping[str, str], args: Sequence[str] = ()
    ) -> CheckResult:
        """Run a script to its end. Nobody else holds the process, so cancelling kills it."""
        running = await self.start_script(cwd, script, env, args)
        try:
            return await running.wait()
        except asyncio.CancelledError:
            running.kill()
            raise

    async def end_all(self) -> int:
        """Kill every check of this tag, whoever started it, and return how many there were."""
        with await self._ask({"op": "end", "tag": self._tag}) as peer:
            return (await self._answer(peer))["ended"]

    async def listing(self) -> list[dict[str, Any]]:
        """The checks that run, of all tags: `{pid, tag, target}` each."""
        with await self._ask({"op": "list"}) as peer:
            return (await self._answer(peer))["checks"]

    async def _start(
        self,
        kind: str,
        target: str,
        cwd: str | os.PathLike[str],
        env: Mapping[str, str],
        args: Sequence[str],
        coin: str,
        hold: str,
        pace_ms: float,
    ) -> RunningCheck:
        place = os.path.abspath(cwd)
        full = {"PATH": os.environ.get("PATH", os.defpath), **env}
        request: dict[str, Any] = {
            "op": "start",
            "kind": kind,
            "target": target,
            "cwd": place,
            "env": full,
            "args": list(args),
        }
        request |= {"coin": coin, "hold": hold, "pace_ms": pace_ms, "tag": self._tag}
        fds = [os.memfd_create("check-output"), os.memfd_create("check-result")]
        try:
            peer = await self._ask(request, fds)
            answer = await self._answer(peer)
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        scrub = {answer["tmp"]: "$TMPDIR"} | addresses(place, env)
        return RunningCheck(answer["pid"], peer, fds[0], fds[1], scrub)

    async def _ask(self, request: dict[str, Any], fds: Sequence[int] = ()) -> socket.socket:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            await asyncio.get_running_loop().sock_connect(peer, self._socket)
            socket.send_fds(peer, [json.dumps(request).encode()], fds)
        except OSError as error:
            peer.close()
            raise HarnessBug(f"the check server does not answer: {error}") from error
        return peer

    async def _answer(self, peer: socket.socket) -> dict[str, Any]:
        packet = await asyncio.get_running_loop().sock_recv(peer, PACKET_BYTES)
        if not packet:
            peer.close()
            raise HarnessBug("the check server hung up")
        return json.loads(packet)


def addresses(cwd: str, env: Mapping[str, str]) -> dict[str, str]:
    """What to replace in a check's output: places and addresses of this machine, by what they stand for.

    Two runs of a check then print the same, and no port or ticket gets into what an agent reads.
    """
    replaced = {f"{cwd}/": "", cwd: "."}
    urls = {name: value for name, value in env.items() if "://" in value}
    replaced |= {url: f"${name}" for name, url in sorted(urls.items(), key=lambda item: -len(item[1]))}
    for name, url in sorted(urls.items()):
        if netloc := urlsplit(url).netloc.rpartition("@")[2]:
            replaced.setdefault(netloc, f"${name}")
    return replaced
