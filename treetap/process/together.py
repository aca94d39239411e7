"""Waiting for several coroutines of which one may fail: for all, or for one after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterable
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
        for _, task in pending:
            task.cancel()
        await asyncio.gather(*(task for _, task in pending), return_exceptions=True)
