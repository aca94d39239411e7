"""Workers of computation that are slow, hang or die, as a party in a simulation meets them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from treetap.errors import Interrupted
from treetap.workers.engines import Engine

T = TypeVar("T")


@dataclass
class WorkerFault:
    """Fault at one call, by its number; `for_s`: virtual seconds by which a slow one is late."""

    at: int
    how: Literal["slow", "hang", "die"]
    for_s: float = 0.0
    hit: bool = False


@dataclass
class FaultyEngine:
    """One worker in place; when it dies, or hangs for `silence_s`, it is another with an empty memory."""

    silence_s: float
    calls: int = 0
    generation: int = 1
    faults: list[WorkerFault] = field(default_factory=list)
    _state: dict[str, Any] = field(default_factory=dict)

    def lease(self) -> Engine:
        """See `EngineHost.lease`."""
        return _Lease(self, self.generation)

    async def close(self) -> None:
        """See `EngineHost.close`."""
        self._state.clear()

    @property
    def remembers(self) -> list[str]:
        """Names of what the worker still holds in memory."""
        return list(self._state)

    def run(self, kernel: Callable[..., T], *args: Any) -> T:
        """Run a kernel now."""
        return kernel(self._state, *args)

    async def trouble(self) -> None:
        """Apply the fault that is planned for this call."""
        number, self.calls = self.calls, self.calls + 1
        fault = next((each for each in self.faults if each.at == number and not each.hit), None)
        if fault is None:
            return
        fault.hit = True
        await asyncio.sleep({"slow": fault.for_s, "hang": self.silence_s, "die": 0.0}[fault.how])
        if fault.how != "slow":
            self._state.clear()
            self.generation += 1


class _Lease:
    workers = 1

    def __init__(self, engine: FaultyEngine, generation: int) -> None:
        self._engine, self._generation = engine, generation

    async def call(self, worker: int, kernel: Callable[..., T], *args: Any) -> T:
        """See `Engine.call`."""
        await self._engine.trouble()
        if self._generation != self._engine.generation:
            raise Interrupted(f"compute worker {worker} (process 1) died and was started again")
        return self._engine.run(kernel, *args)

    def forget(self, kernel: Callable[..., Any], *args: Any) -> None:
        """See `Engine.forget`."""
        if self._generation == self._engine.generation:
            self._engine.run(kernel, *args)
