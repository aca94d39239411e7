"""Engines that end with a block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from treetap.workers.engines import InProcessEngine, ProcessEngine


@asynccontextmanager
async def started(workers: int, silence_s: float = 20.0, modules: Sequence[str] = ()) -> AsyncIterator[Any]:
    """An engine in this process for no workers, else one with that many processes."""
    engine: Any = InProcessEngine()
    if workers:
        engine = ProcessEngine(workers, silence_s, modules)
        engine.start()
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def workers(number: int) -> AsyncIterator[Any]:
    """A lease of such an engine."""
    async with started(number) as engine:
        yield engine.lease()
