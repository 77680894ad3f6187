"""Writes of the ledger that are ready at the same moment share one durable transaction.

Why apart from the ledger: it decides nothing about effects, only how many of them pay for one write to the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from arms.mesh.ledger import Backend, Write


class GroupCommit:
    """Writes that are ready in one turn of the loop share one transaction; nobody goes on before it is durable."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._ready: list[tuple[Sequence[Write], asyncio.Future[bool], Callable[[], None]]] = []

    async def write(self, writes: Sequence[Write], *, alone: bool, then: Callable[[], None]) -> bool:
        """Whether all of them were written. alone: nobody else can be ready, so there is nothing to wait for. A
        reservation whose caller gave up before the commit is left out; a record never is. then: called as soon as they
        are durable, before anything else can happen in this process."""
        if alone:
            written = all(self._backend.write(writes))
            if written:
                then()
            return written
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        if not self._ready:
            loop.call_soon(self._commit)
        self._ready.append((writes, future, then))
        return await future

    def _commit(self) -> None:
        ready = [
            (writes, future, then)
            for writes, future, then in self._ready
            if not (future.cancelled() and writes[0].entry.state == "reserved")
        ]
        self._ready = []
        try:
            written = iter(self._backend.write([w for writes, _, _ in ready for w in writes]))
            results: list[bool | BaseException] = [all([next(written) for _ in writes]) for writes, _, _ in ready]
        except BaseException as error:  # a pretended death must reach those who wait, not the loop
            results = [error] * len(ready)
        for (_, future, then), result in zip(ready, results, strict=True):
            if result is True:
                then()
            if future.done():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
