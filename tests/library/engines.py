"""Engines that end with a block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from treetap.workers.engines import InProcessEngine, ThreadEngine


@asynccontextmanager
async def started(
    workers: int, silence_s: float = 20.0, hung: Callable[[str], object] = print
) -> AsyncIterator[ThreadEngine]:
    """An engine with that many threads."""
    engine = ThreadEngine(workers, silence_s, hung)
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def workers(number: int) -> AsyncIterator[Any]:
    """A lease of such an engine; of one without threads for no workers."""
    if not number:
        yield InProcessEngine()
        return
    async with started(number) as engine:
        yield engine.lease()
