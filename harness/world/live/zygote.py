"""The fork server of checks: one warm, single-threaded process that turns a request into a real process at once.

Why: a cold pytest costs 0.3 to 0.9 core-seconds, a forked one a tenth of that; and a process that has no threads may
fork safely. It outlives the orchestrators of a trial, which die on purpose, and ends with the process that owns it.

Protocol, on a unix socket of type SOCK_SEQPACKET, one JSON object per packet:
  start  {op, kind, target, cwd, env, args, coin, hold, pace_ms, tag} and two descriptors (output, result)
         -> {pid, tmp} at once -> {status, cpu_s} when it ended (`status` as of wait(2)); the peer may hang up between
  list   {op}      -> {checks: [{pid, tag, target}]}
  end    {op, tag} -> {ended: n}: every check with this tag is killed and gone

Each check leads a process group of its own, which is killed when its leader ends, and has a folder for temporary files
of its own, which is deleted then: nothing outlives a check.
Linux only (pidfd, memfd, PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import importlib.machinery
import importlib.util
import io
import json
import os
import selectors
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from harness.core.errors import HarnessBug

PACKET_BYTES = 1 << 20
SOCKET_PATH_BYTES_MAX = 107
UV_SEED = "uv-seed"


# --- the owner's side ---------------------------------------------------------------------------------------------


class Zygote:
    """A running fork server. Made by `start_zygote`; `socket_path` is what a `CheckRunner` is given."""

    def __init__(self, process: asyncio.subprocess.Process, socket_path: str) -> None:
        self.process, self.socket_path = process, socket_path

    async def stop(self) -> None:
        """End it and every check that still runs."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        await self.process.wait()


async def start_zygote(socket_path: str | os.PathLike[str]) -> Zygote:
    """Start a fork server that listens on `socket_path` and ends when this process ends, however that happens.

    The folder of the socket must exist. Raises HarnessBug when the server does not come up, or when the path has more
    bytes than the address of a unix socket can hold.
    """
    if len(os.fsencode(socket_path)) > SOCKET_PATH_BYTES_MAX:
        raise HarnessBug(f"too long for the address of a socket: {socket_path}")
    command = [sys.executable, "-m", "harness.world.live.zygote", str(socket_path), str(os.getpid())]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONHASHSEED": "0"},  # sets of equal content are printed alike in all checks
        process_group=0,  # a Ctrl-C at the terminal is for the owner alone
    )
    assert process.stdout is not None
    if await process.stdout.readline() != b"ready\n":
        await process.wait()
        raise HarnessBug(f"the check server did not start: exit status {process.returncode}")
    return Zygote(process, str(socket_path))


# --- the server ---------------------------------------------------------------------------------------------------


Become = Callable[[dict[str, Any], int, int], NoReturn]
"""What a forked child does with a request and the descriptors for its output and its result."""


@dataclass(frozen=True)
class _Check:
    pid: int
    pidfd: int
    tag: str
    target: str
    peer: socket.socket


class _Server:
    """The loop of the fork server: a selector and a dictionary of children, no thread."""

    def __init__(self, listener: socket.socket, owner_pidfd: int, scratch: Path, become: Become) -> None:
        self._listener, self._scratch, self._become = listener, scratch, become
        self._selector = selectors.DefaultSelector()
        self._checks: dict[int, _Check] = {}
        self._running = True
        self._watch(listener, self._accept)
        self._watch(owner_pidfd, self._leave)

    def serve(self) -> None:
        """Until the owner ends. Every check is dead when this returns."""
        try:
            while self._running:
                for key, _ in self._selector.select():
                    key.data()
        finally:
            self._end(lambda check: True)

    def _watch(self, file: Any, act: Callable[[], None]) -> None:
        self._selector.register(file, selectors.EVENT_READ, act)

    def _forget(self, file: Any) -> None:
        with contextlib.suppress(KeyError, ValueError):  # forgotten or closed already, earlier in this round
            self._selector.unregister(file)

    def _leave(self) -> None:
        self._running = False

    def _accept(self) -> None:
        peer, _ = self._listener.accept()
        self._watch(peer, lambda: self._serve_peer(peer))

    def _serve_peer(self, peer: socket.socket) -> None:
        try:
            packet, fds, _, _ = socket.recv_fds(peer, PACKET_BYTES, 2)
        except OSError:
            packet, fds = b"", []
        if not packet:
            self._forget(peer)
            if not any(check.peer is peer for check in self._checks.values()):
                peer.close()
            return
        request = json.loads(packet)
        match request["op"]:
            case "start":
                self._start(request, peer, *fds)
            case "list":
                rows = [{"pid": c.pid, "tag": c.tag, "target": c.target} for c in self._checks.values()]
                _send(peer, {"checks": rows})
            case "end":
                _send(peer, {"ended": self._end(lambda check: check.tag == request["tag"])})

    def _start(self, request: dict[str, Any], peer: socket.socket, output_fd: int, result_fd: int) -> None:
        pid = os.fork()
        if pid == 0:
            self._become(request, output_fd, result_fd)
        with contextlib.suppress(OSError):  # the child does the same; whoever comes second may be too late
            os.setpgid(pid, pid)
        os.close(output_fd)
        os.close(result_fd)
        check = _Check(pid, os.pidfd_open(pid), request["tag"], request["target"], peer)
        self._checks[pid] = check
        self._watch(check.pidfd, lambda: self._reap(check))
        _send(peer, {"pid": pid, "tmp": str(self._scratch / str(pid))})

    def _reap(self, check: _Check) -> None:
        """Take leave of a check that ended: kill what is left of its group while its number is still its own."""
        if self._checks.get(check.pid) is not check:
            return  # ended on request, in the same round of the loop in which it ended by itself
        with contextlib.suppress(ProcessLookupError):
            os.killpg(check.pid, signal.SIGKILL)
        _, status, usage = os.wait4(check.pid, 0)
        shutil.rmtree(self._scratch / str(check.pid), ignore_errors=True)
        self._forget(check.pidfd)
        os.close(check.pidfd)
        del self._checks[check.pid]
        _send(check.peer, {"status": status, "cpu_s": round(usage.ru_utime + usage.ru_stime, 4)})
        self._forget(check.peer)
        check.peer.close()

    def _end(self, chosen: Callable[[_Check], bool]) -> int:
        ending = [check for check in self._checks.values() if chosen(check)]
        for check in ending:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(check.pid, signal.SIGKILL)
        for check in ending:
            self._reap(check)
        return len(ending)


def _send(peer: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # an orchestrator that was killed reads no more
        peer.send(json.dumps(message).encode())


def _preload(scratch: Path) -> Become:
    """Import whatever checks use, forget the ways to import us, and return what a forked child does.

    readline: pytest imports it in each session, as a workaround for a fault of libedit.
    """
    sys.dont_write_bytecode = True  # a check must not leave files in the workspace
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    from _pytest.config import builtin_plugins

    from harness.world.live.checkkit import child, external

    for plugin in builtin_plugins:
        importlib.import_module(f"_pytest.{plugin}")
    for module in ("_pytest._argcomplete", "redis", "http.client", "urllib.request", "sqlite3", "readline"):
        with contextlib.suppress(ImportError):  # not every Python has readline
            importlib.import_module(module)
    client = Path(__file__).with_name("sqlhttp.py")
    if client.is_file():  # services under test know it by its own name
        spec = importlib.util.spec_from_file_location("sqlhttp", client)
        assert spec is not None
        assert spec.loader is not None
        sys.modules["sqlhttp"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sqlhttp"])
    from harness.world.preview import visiting

    sys.modules["previewing"] = visiting  # so do suites that look at a system that runs
    _forget_ourselves()

    server_pid = os.getpid()

    def become(request: dict[str, Any], output_fd: int, result_fd: int) -> NoReturn:
        os.setpgid(0, 0)
        external.die_with(server_pid)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, signal.SIG_DFL)
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd > 2 and fd not in (output_fd, result_fd):
                with contextlib.suppress(OSError):  # the descriptor of the listing itself
                    os.close(fd)
        tmp = scratch / str(os.getpid())
        tmp.mkdir()
        own = {"TMPDIR": tmp, "CHECKPOINTS": tmp / "checkpoints.jsonl", "DOUBTS": tmp / "doubts"}
        request["env"] = {name: str(path) for name, path in own.items()} | request["env"]
        if request["kind"] == "install":
            request["env"][external.UV_SEED] = str(scratch / UV_SEED)
        child.live(request, output_fd, result_fd)

    return become


def _forget_ourselves() -> None:
    """What is tested must not be able to import the harness, nor the answers that lie beside it."""
    root = Path(__file__).resolve().parents[3]
    sys.path[:] = [folder for folder in sys.path if folder and Path(folder).resolve() != root]
    plain = (importlib.machinery.BuiltinImporter, importlib.machinery.FrozenImporter, importlib.machinery.PathFinder)
    sys.meta_path[:] = plain  # without the finder of an editable installation
    for name in [name for name in sys.modules if name.partition(".")[0] == "harness"]:
        del sys.modules[name]


def main(socket_path: str, owner_pid: int) -> None:
    """Serve checks on `socket_path` until the process `owner_pid` ends."""
    owner_pidfd = os.pidfd_open(owner_pid)
    if os.getppid() != owner_pid:
        return  # it ended before we could watch it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):  # the children's, too: a line that a check prints is seen at once
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(line_buffering=True, encoding="utf-8", errors="replace")
    from harness.world.live.checkkit.external import seed_uv_cache

    scratch = Path(socket_path + ".d")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    seeding = seed_uv_cache(scratch / UV_SEED)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(socket_path)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(socket_path)
            listener.listen(128)
            become = _preload(scratch)
            gc.collect()
            gc.freeze()  # so that no collection in a child touches, and thereby copies, the pages of these objects
            os.write(1, b"ready\n")
            _Server(listener, owner_pidfd, scratch, become).serve()
    finally:
        seeding.kill()
        seeding.wait()
        shutil.rmtree(scratch, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(socket_path)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
