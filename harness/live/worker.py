"""A worker process of the live world: trial specs come in on stdin, results go out on stdout, services stay up.

Messages are msgpack behind a four-byte length. The first is a `Setup`, which can hold a key: it comes this way and not
in the environment, which every process that a trial starts would inherit. End of input is the order to leave, so a
worker never outlives whoever started it.
"""

from __future__ import annotations

import asyncio
import multiprocessing.util
import os
import shutil
import signal
import struct
import sys
import tempfile
import threading
import traceback
from pathlib import Path

import msgspec
from msgspec import Struct

from harness.core.errors import HarnessBug
from harness.core.records import Event, TrialRecord
from harness.live.supervisor import Supervisor
from harness.schedule import TrialSpec
from harness.world.live.realmodel import ModelSource

BROKEN = 70
"""Exit status of a worker that can run no trial any more (sysexits' EX_SOFTWARE): its trials go to another one."""


LAST = -1000
"""Priority of what multiprocessing does at exit; its own files have -100."""


class Reply(Struct, frozen=True, kw_only=True):
    """One finished trial; `trouble` when there is no result."""

    id: str
    record: TrialRecord | None = None
    trace: tuple[Event, ...] = ()
    truth: tuple[Event, ...] = ()
    trouble: str = ""


class Setup(Struct, frozen=True, kw_only=True):
    """What a worker is told before its first trial. model: who answers in place of the scripts, if anybody does."""

    model: ModelSource | None = None


def packed(message: Struct) -> bytes:
    raw = msgspec.msgpack.encode(message)
    return struct.pack(">I", len(raw)) + raw


class Outbox:
    """Writes whole messages, from any thread."""

    def __init__(self, fd: int) -> None:
        self._fd, self._lock = fd, threading.Lock()

    def write(self, data: bytes) -> None:
        with self._lock:
            while data:
                data = data[os.write(self._fd, data) :]


async def _one(supervisor: Supervisor, spec: TrialSpec, outbox: Outbox) -> None:
    try:
        result = await supervisor.run(spec)
        reply = Reply(id=spec.id, record=result.record, trace=tuple(result.trace), truth=tuple(result.truth))
    except (Exception, HarnessBug) as error:
        lines = traceback.format_exception(error)
        reply = Reply(id=spec.id, trouble=f"{type(error).__name__}: {error}\n{''.join(lines[-3:])}")
    await asyncio.to_thread(outbox.write, packed(reply))


async def _message(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack(">I", await reader.readexactly(4))
    return await reader.readexactly(length)


async def _serve(outbox: Outbox, seed: int, external_proxy: bool, folder: Path) -> None:
    reader = asyncio.StreamReader(limit=1 << 26)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb"))
    setup = msgspec.msgpack.decode(await _message(reader), type=Setup)
    supervisor = Supervisor(seed, folder, external_proxy, setup.model)
    await supervisor.start()
    watch = asyncio.create_task(supervisor.broken())
    watch.add_done_callback(lambda task: task.cancelled() or os._exit(BROKEN))
    running: set[asyncio.Task[None]] = set()
    try:
        while True:
            spec = msgspec.msgpack.decode(await _message(reader), type=TrialSpec)
            task = asyncio.create_task(_one(supervisor, spec, outbox))
            running.add(task)
            task.add_done_callback(running.discard)
    except asyncio.IncompleteReadError:
        watch.cancel()
        loop.set_exception_handler(lambda *_: None)  # what is broken off here has nothing to say
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await supervisor.stop()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    outbox = Outbox(os.dup(1))
    os.dup2(2, 1)  # nothing but results goes to the real standard output
    main_module = sys.modules["__main__"]
    main_module.__spec__ = None  # children of the fork server must not import this module again as their main
    if hasattr(main_module, "__file__"):
        del main_module.__file__
    seed, proxy, folder = sys.argv[1:]
    tempfile.tempdir = folder  # the fork server's files lie in it as well; it is removed after them, at the very end
    multiprocessing.util.Finalize(None, shutil.rmtree, args=(folder, True), exitpriority=LAST)
    asyncio.run(_serve(outbox, int(seed), proxy == "external", Path(folder)))


if __name__ == "__main__":
    main()
