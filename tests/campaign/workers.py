"""Workers of computation that are slow or fail, as a party in a simulation meets them."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextlib import suppress
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
class FaultyEngine(Engine):
    """One worker in place; a call ends with Interrupted where it dies, or hangs for `silence_s`."""

    silence_s: float
    calls: int = 0
    faults: list[WorkerFault] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._used: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def remembers(self) -> list[str]:
        """Kinds of what the worker has computed with and somebody still holds."""
        if self._used:
            gc.collect()
        return [type(part).__name__ for part in self._used]

    async def call(self, worker: int, kernel: Callable[..., T], *args: Any, us: float = 0.0) -> T:
        """See `Engine.call`."""
        number, self.calls = self.calls, self.calls + 1
        fault = next((each for each in self.faults if each.at == number and not each.hit), None)
        if fault is not None:
            fault.hit = True
            await asyncio.sleep({"slow": fault.for_s, "hang": self.silence_s, "die": 0.0}[fault.how])
            if fault.how != "slow":
                raise Interrupted(f"compute worker {worker} has been closed")
        if args and getattr(type(args[0]), kernel.__name__, None) is kernel:  # a worker's part
            with suppress(TypeError):  # a secret key cannot be watched
                self._used.add(args[0])
        return await super().call(worker, kernel, *args, us=us)
