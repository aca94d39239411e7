"""An engine of several workers within the process of a test."""

from __future__ import annotations

from typing import Any

from treetap.workers.engines import InProcessEngine


class ManyWorkers(InProcessEngine):
    """Workers with memories of their own, which take turns."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        self.workers = workers
        self.of_each = [InProcessEngine() for _ in range(workers)]

    async def call(self, worker: int, kernel: Any, *args: Any) -> Any:
        return await self.of_each[worker].call(0, kernel, *args)

    def forget(self, kernel: Any, *args: Any) -> None:
        for one in self.of_each:
            one.forget(kernel, *args)
