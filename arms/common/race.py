"""Waiting with a limit, on the clock that an arm was handed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def within(work: Awaitable[T], limit_ms: float, sleep_ms: Callable[[float], Awaitable[None]]) -> T | None:
    """The result of `work`, or None when the limit came first; the work is then cancelled and waited for."""
    return await until(work, _sleeping(sleep_ms, limit_ms))


async def until(work: Awaitable[T], limit: Coroutine[Any, Any, None]) -> T | None:
    """The result of `work`, or None when `limit` returned first; whichever lost is cancelled and waited for."""
    task, watch = asyncio.ensure_future(work), asyncio.ensure_future(limit)
    both: set[asyncio.Future[Any]] = {task, watch}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        watch.result()
        return None
    finally:
        for other in both:
            other.cancel()
        for left in await asyncio.gather(task, watch, return_exceptions=True):
            # what is neither an error nor a cancellation is no arm's to swallow
            if isinstance(left, BaseException) and not isinstance(left, Exception | asyncio.CancelledError):
                raise left


async def _sleeping(sleep_ms: Callable[[float], Awaitable[None]], ms: float) -> None:
    await sleep_ms(ms)
