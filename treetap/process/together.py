"""Waiting for several coroutines of which one may fail."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


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
