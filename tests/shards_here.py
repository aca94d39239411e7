"""A cluster's workers in this process, as a `ClusterHost` and the `Cluster` of every attempt; they can be lost."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

from treetap.usage import Usage
from treetap.workers.cluster.calls import on


class ShardsHere:
    """Memories of workers, and what each keeps.

    `lost_every`: the number of calls after which a worker is lost; 0: none is. `asked`: workers with names of kernels.
    """

    def __init__(self, workers: int, lost_every: int = 0) -> None:
        self.workers, self.lost_every, self.lost = workers, lost_every, 0
        self.memories: list[dict[str, Any]] = [{} for _ in range(workers)]
        self.kept: list[dict[str, list[bytes]]] = [{} for _ in range(workers)]
        self.asked: list[tuple[int, str]] = []

    def lease(self) -> ShardsHere:
        return self

    def usage(self) -> dict[str, Usage]:
        return {}

    async def run(
        self,
        kernel: Callable[..., Any],
        args: Mapping[int, tuple[Any, ...]],
        *,
        keep: str = "",
        anew: bool = False,
        total: Callable[[list[Any]], Any] | None = None,
    ) -> Any:
        if anew:
            for kept in self.kept:
                kept.pop(keep, None)
        answers = []
        for worker, values in args.items():
            message = pickle.dumps((kernel, values))
            self.asked.append((worker, kernel.__name__ if kernel is not on else values[1].__name__))
            if self.lost_every and not len(self.asked) % self.lost_every:
                self.memories[worker], self.lost = {}, self.lost + 1
                for earlier in self.kept[worker].values():
                    for one in earlier:
                        self._call(worker, one)
            answers.append(self._call(worker, message))
            if keep:
                self.kept[worker].setdefault(keep, []).append(message)
        return None if total is None else total(answers)

    def forget(self, key: str) -> None:
        for worker in range(self.workers):
            for memory in (self.memories[worker], self.kept[worker]):
                for name in [name for name in memory if name.startswith(key)]:
                    del memory[name]

    def _call(self, worker: int, message: bytes) -> Any:
        kernel, values = pickle.loads(message)
        return kernel(self.memories[worker], *values)
