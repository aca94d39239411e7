"""Engines for heavy arithmetic: at once in the caller, or in threads of this process beside the event loop.

A worker is an ordered queue with a memory of its own. `call(worker, kernel, *args)` runs `kernel(state, *args)` there;
`state` is a dictionary that lives as long as the lease, and kernels are functions. No protocol file knows which engine
it talks to.

Arguments and results are not copied: a kernel changes no argument and keeps no array but read-only ones, and what it
returns it changes no more. Kernels in C release the interpreter's lock, and so do GMP's powers; products of
numbers of gmpy2 do not, so that workers take turns at those.

A kernel is a row of units of work, each far shorter than the shortest `silence_s`; `finish_unit` marks the end of one.
A kernel that finishes none for that long hangs. No thread can be ended from outside, so the party ends with it, is
started again by who runs it, and its jobs are resumed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import gmpy2

from treetap.errors import Interrupted
from treetap.process.together import together
from treetap.usage import FINISHED, LOOKS, finish_unit

T = TypeVar("T")


class Engine(Protocol):
    """Workers of computation with memory, as one attempt at a job uses them."""

    workers: int

    async def call(self, worker: int, kernel: Callable[..., T], *args: Any) -> T:
        """Run `kernel(state, *args)` in a worker, after every earlier call of this attempt to that worker.

        Raises:
            Interrupted: the workers have been closed.
            Exception: whatever the kernel raised.
        """
        ...

    def forget(self, kernel: Callable[..., Any], *args: Any) -> None:
        """Have every worker run `kernel(state, *args)`, which frees memory or prepares a later call; do not wait."""
        ...


class EngineHost(Protocol):
    """A party's workers, for all its jobs."""

    def lease(self) -> Engine:
        """The workers for one attempt, with memories that end with it."""
        ...

    async def close(self) -> None:
        """End the workers; calls that wait end with Interrupted, and a kernel under way goes on to its end."""
        ...


def make(state: dict[str, Any], name: str, kind: Callable[..., Any], *args: Any) -> None:
    """A kernel: have `kind(*args)` in a worker's memory by this name."""
    state[name] = kind(*args)


def on(state: dict[str, Any], name: str, method: Callable[..., T], *args: Any) -> T:
    """A kernel: call a method of what a worker's memory has by this name."""
    return method(state[name], *args)


def drop(state: dict[str, Any], name: str) -> None:
    """A kernel: have nothing in a worker's memory by this name any more."""
    state.pop(name, None)


class InWorkers:
    """What the workers of an engine have in memory by one name, until `close`."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._name = engine, name

    async def close(self) -> None:
        """Free the workers' memory."""
        self._engine.forget(drop, self._name)

    async def _make(self, kind: Callable[..., Any], *args: Any) -> None:
        """Have `kind(*args)` in every worker."""
        await call_all(self._engine, make, self._name, kind, *args)

    def _on(self, worker: int, method: Callable[..., T], *args: Any) -> Coroutine[Any, Any, T]:
        """Call a method of what a worker has."""
        return self._engine.call(worker, on, self._name, method, *args)

    async def _on_all(self, method: Callable[..., T], *args: Any) -> list[T]:
        return await together(*(self._on(worker, method, *args) for worker in range(self._engine.workers)))

    def _shares(self, items: int) -> list[tuple[int, int, int]]:
        """Each worker that has a share of some items, its first, and the one behind its last."""
        workers = self._engine.workers
        bounds = pairwise(items * worker // workers for worker in range(workers + 1))
        return [(worker, first, last) for worker, (first, last) in enumerate(bounds) if last > first]


async def call_all(engine: Engine, kernel: Callable[..., Any], *args: Any) -> None:
    """Run `kernel(state, *args)` in every worker."""
    await together(*(engine.call(worker, kernel, *args) for worker in range(engine.workers)))


class InProcessEngine:
    """One worker that runs each kernel at once in the caller: for simulators and for very small computations."""

    workers = 1

    def __init__(self) -> None:
        self._state: dict[str, Any] = {}

    async def call(self, worker: int, kernel: Callable[..., T], *args: Any) -> T:
        if worker != 0:
            raise ValueError(f"an in-process engine has worker 0 only, not {worker}")
        return kernel(self._state, *args)

    def forget(self, kernel: Callable[..., Any], *args: Any) -> None:
        kernel(self._state, *args)

    def lease(self) -> Engine:
        return self

    async def close(self) -> None:
        self._state.clear()


class ThreadEngine:
    """One thread per worker, for all leases. `silence_s`: seconds without a finished unit after which a kernel hangs.

    `hung` is told of it, once and in another thread, by a sentence that names the kernel.
    """

    def __init__(self, workers: int, silence_s: float, hung: Callable[[str], object]) -> None:
        if workers < 1:
            raise ValueError("an engine needs at least one worker")
        self.workers, self.closed, self._silence_s, self._hung = workers, False, silence_s, hung
        self._threads = [ThreadPoolExecutor(1, f"compute-{worker}", _release_the_lock) for worker in range(workers)]
        self._at_work: dict[int, Callable[..., Any]] = {}  # by the number of its thread
        self._awaited = set[asyncio.Future[Any]]()
        threading.Thread(target=self._watch, name="compute-watch", daemon=True).start()

    def lease(self) -> Lease:
        return Lease(self)

    async def run(self, worker: int, kernel: Callable[..., T], *args: Any) -> T:
        """Run `kernel(*args)` in a worker's thread, after every earlier call to it."""
        if self.closed:
            raise Interrupted(f"compute worker {worker} has been closed")
        answer = asyncio.wrap_future(self.begin(worker, kernel, *args))
        self._awaited.add(answer)
        answer.add_done_callback(self._awaited.discard)
        try:
            return await answer
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.closed and not (task and task.cancelling()):
                raise Interrupted(f"compute worker {worker} has been closed") from None
            raise

    def begin(self, worker: int, kernel: Callable[..., T], *args: Any) -> Future[T]:
        """The same, without waiting."""
        return self._threads[worker].submit(self._at, kernel, *args)

    async def close(self) -> None:
        self.closed = True
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)
        for answer in list(self._awaited):
            answer.cancel()

    def _at(self, kernel: Callable[..., T], *args: Any) -> T:
        """Run a kernel where the watch sees it."""
        me = threading.get_ident()
        self._at_work[me] = args[2] if kernel in (make, on) else kernel
        finish_unit()
        try:
            return kernel(*args)
        finally:
            del self._at_work[me]

    def _watch(self) -> None:
        """Look at kernels under way, as long as there may be some.

        Looks are counted, and not seconds: a process that was suspended finds no kernel silent when it goes on.
        """
        seen: dict[int, tuple[int, int]] = {}  # units that a thread has finished, and looks that found no more
        while self._at_work or not self.closed:
            time.sleep(self._silence_s / LOOKS)
            for thread, kernel in list(self._at_work.items()):
                finished, looks = seen.get(thread, (-1, 0))
                looks = looks + 1 if finished == FINISHED[thread] else 0
                seen[thread] = FINISHED[thread], looks
                if looks == LOOKS:
                    name = f"{kernel.__module__}.{kernel.__qualname__}"
                    self._hung(f"the kernel {name} has finished no unit of work for {self._silence_s:g} s")


def _release_the_lock() -> None:
    """Let GMP's powers run beside other threads: each thread of gmpy2 has settings of its own."""
    gmpy2.get_context().allow_release_gil = True


class Lease:
    """The workers for one attempt, with memories of its own."""

    def __init__(self, engine: ThreadEngine) -> None:
        self._engine, self.workers = engine, engine.workers
        self._memories: list[dict[str, Any]] = [{} for _ in range(engine.workers)]

    async def call(self, worker: int, kernel: Callable[..., T], *args: Any) -> T:
        return await self._engine.run(worker, kernel, self._memories[worker], *args)

    def forget(self, kernel: Callable[..., Any], *args: Any) -> None:
        if not self._engine.closed:
            for worker, memory in enumerate(self._memories):
                self._engine.begin(worker, kernel, memory, *args)
