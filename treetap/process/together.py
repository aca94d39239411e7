"""Waiting for several coroutines of which one may fail, for all or for one after the other; and for their end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")
Key = TypeVar("Key")


async def together(*calls: Coroutine[Any, Any, T]) -> list[T]:
    """Await all; if one fails, or the caller is cancelled, the others are cancelled and have ended when this raises."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            if not task.cancelling():  # a second request would cut its clean-up short
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def in_order(
    calls: Iterable[tuple[Key, Coroutine[Any, Any, T]]], ahead: int
) -> AsyncGenerator[tuple[Key, T], None]:
    """Each call's key and result, in order, while at most `ahead` calls are under way, which are read as they begin.

    Those under way are cancelled, and have ended, when this ends early.
    """
    source, pending = iter(calls), deque[tuple[Key, asyncio.Task[T]]]()
    try:
        while True:
            while len(pending) < ahead and (call := next(source, None)) is not None:
                pending.append((call[0], asyncio.ensure_future(call[1])))
            if not pending:
                return
            key, task = pending[0]
            result = await task
            pending.popleft()
            yield key, result
    finally:
        await ended(task for _, task in pending)


async def ended(tasks: Iterable[asyncio.Future[Any]]) -> list[Any]:
    """Cancel all that are under way and wait until they have ended; returns their results and failures, in order."""
    waiting = list(tasks)
    for task in waiting:
        task.cancel()
    return await asyncio.gather(*waiting, return_exceptions=True)


async def within(seconds: float, event: Awaitable[object]) -> None:
    """Wait for an event, no longer than so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event
