"""Engines that end with a block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from treetap.workers.engines import Engine, ThreadEngine


@asynccontextmanager
async def workers(number: int, silence_s: float = 20.0, hung: Callable[[str], object] = print) -> AsyncIterator[Engine]:
    """An engine of so many threads; one without threads for no workers."""
    engine = ThreadEngine(number, silence_s, hung) if number else Engine()
    try:
        yield engine
    finally:
        await engine.close()
