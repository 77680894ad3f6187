"""Where a toxic works: one direction of one connection, as a stage that bytes pass through.

A stage keeps every byte in its inbox until the moment it is handed on, so that a toxic can be changed or taken out at
any await without losing or reordering a byte.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

INBOX_BYTES = 64 * 1024


class Toxic(Struct, frozen=True):
    """A configured harm.

    stream: "upstream" (client to server) or "downstream", in the client's spelling; toxicity: share of the connections
    that it strikes, in [0, 1]; attributes: whole numbers, named by the kind (see `KINDS`).
    """

    name: str
    type: str
    stream: str
    toxicity: float
    attributes: Mapping[str, int]

    @property
    def direction(self) -> str:
        return self.stream.lower()


class Chunk(NamedTuple):
    """Bytes on their way. at: loop time in seconds at which the proxy read them."""

    data: bytes | memoryview
    at: float


class Ending(Enum):
    FIN = "fin"  # the source closed its direction; the other one stays open
    CUT = "cut"  # both sockets are closed
    RST = "rst"  # both sockets are reset


class End(NamedTuple):
    """The end of a direction. by: the stage that decided it, None when a peer did."""

    how: Ending
    by: Stage | None = None


class Sink(Protocol):
    """What a stage hands its bytes to: the next stage, or the way out of the proxy."""

    @property
    def full(self) -> bool: ...
    def put(self, chunk: Chunk) -> None: ...
    def finish(self, end: End) -> None: ...


class Kind(Struct, frozen=True):
    """A type of toxic.

    go_name and fields (name to Go type) appear in error messages, as Toxiproxy writes them. work: runs until the head
    of the inbox is the end of the stream, or until it killed the connection. inbox_bytes: a stage that holds as much
    stops whoever feeds it.
    """

    go_name: str
    fields: Mapping[str, str]
    work: Callable[[Stage], Awaitable[None]]
    inbox_bytes: int = INBOX_BYTES
    cuts_when_removed: bool = False


class Stage:
    """One toxic at work on one direction of one connection.

    draw(what, k): a number in [0, 1) for the k-th thing of this toxic on this connection; report(stage, event): called
    once, on the first harm. The owner of the chain sets `next` and `feeder` (called when `full` may have changed).
    """

    __slots__ = (
        *(
            "toxic",
            "kind",
            "draw",
            "next",
            "feeder",
            "harmed",
            "passed",
            "dropped",
            "held",
            "closed",
            "killed",
            "armed",
        ),
        *("_report", "_inbox", "_wake", "_task"),
    )

    def __init__(
        self,
        toxic: Toxic,
        kind: Kind,
        draw: Callable[[str, int], float],
        report: Callable[[Stage, str], None],
        sink: Sink,
    ) -> None:
        self.toxic, self.kind, self.draw, self._report, self.next = toxic, kind, draw, report, sink
        self.feeder: Callable[[], None] = lambda: None
        self.harmed = ""  # the first harm, "" while there was none
        self.passed = self.dropped = self.held = 0  # bytes handed on, thrown away, still in the inbox
        self.closed = False  # an end was handed on: nothing follows
        self.killed = False  # it was this stage that ended the connection
        self.armed = False  # the end of the connection is decided though not yet carried out
        self._inbox: deque[Chunk | End] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # -- for the chain around it

    @property
    def full(self) -> bool:
        return self.closed or self.held >= self.kind.inbox_bytes

    def put(self, chunk: Chunk) -> None:
        if self.closed:
            self.dropped += len(chunk.data)
            return
        self._inbox.append(chunk)
        self.held += len(chunk.data)
        self._wake.set()
        if self.full:
            self.feeder()

    def finish(self, end: End) -> None:
        if not self.closed:
            self._inbox.append(end)
            self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    def start(self, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        """Begin, or begin again after the toxic was changed: what is held is treated by the new attributes."""
        self.halt()
        if not self.closed:
            self._task = spawn(self._run())

    def halt(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def release(self) -> None:
        """The toxic was removed: hand on what is held, or end the connection where Toxiproxy does."""
        self.halt()
        if self.closed:
            return
        if self.kind.cuts_when_removed:
            return self.kill(Ending.CUT, "cut")
        if self.armed:
            return self.kill(Ending.RST)
        for item in self._inbox:
            if isinstance(item, Chunk):
                self.passed += len(item.data)
                self.next.put(item)
            else:
                self.next.finish(item)
        self._inbox.clear()
        self.held = 0

    # -- for the toxics below

    async def head(self, *, room: bool = True) -> Chunk | End:
        """The oldest item, once it is there and, with `room`, the next stage takes more. It stays until it is moved."""
        while not self._inbox or (room and self.next.full and isinstance(self._inbox[0], Chunk)):
            self._wake.clear()
            await self._wake.wait()
        return self._inbox[0]

    def forward(self, size: int | None = None) -> None:
        """Hand on the first `size` bytes of the oldest chunk (all of it by default)."""
        chunk = self._take(size)
        self.passed += len(chunk.data)
        self.next.put(chunk)

    def drop(self) -> None:
        self.dropped += len(self._take(None).data)

    def kill(self, how: Ending, event: str = "") -> None:
        """End the connection here and now, as far as this stage goes; what it holds is lost."""
        self.lose_held(self)
        self.closed = self.killed = True
        if event:
            self.harm(event)
        self.feeder()
        self.next.finish(End(how, self))

    def lose_held(self, culprit: Stage) -> None:
        culprit.dropped += self.held
        self.held = 0
        self._inbox.clear()

    def harm(self, event: str) -> None:
        if not self.harmed:
            self.harmed = event
            self._report(self, event)

    def number(self, attribute: str) -> int:
        return self.toxic.attributes[attribute]

    def _take(self, size: int | None) -> Chunk:
        chunk = self._inbox[0]
        assert isinstance(chunk, Chunk)
        was_full = self.full
        if size is None or size >= len(chunk.data):
            self._inbox.popleft()
            taken = chunk
        else:
            view = memoryview(chunk.data)  # a chunk cut into many pieces is not copied each time
            self._inbox[0] = Chunk(view[size:], chunk.at)
            taken = Chunk(view[:size], chunk.at)
        self.held -= len(taken.data)
        if was_full and not self.full:
            self.feeder()
        return taken

    async def _run(self) -> None:
        await self.kind.work(self)
        if not self.closed:  # the work came to the end of the stream: hand it on
            end = self._inbox.popleft()
            assert isinstance(end, End)
            self.closed = True
            self.next.finish(end)
