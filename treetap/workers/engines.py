"""Engines for heavy arithmetic: at once in the caller, or in threads of this process beside the event loop.

A worker is an ordered queue: `call(worker, kernel, *args)` runs `kernel(*args)` there. What it has in memory belongs to
whoever calls (`InWorkers`), and ends with it. No protocol file knows which engine it talks to.

A caller says how long a kernel takes, by sizes alone: `us` microseconds in the slowest form of the kernels. One that
takes `SMALL_US` at most runs in the loop, where it is asked for: to hand it to a thread and back costs more than to
wait for it. Between two looks at its sockets a loop runs no more than that; what comes beyond it goes to the threads.

Arguments and results are not copied: a kernel changes no argument but its worker's own part, keeps no array but
read-only ones, and what it returns it changes no more. Kernels in C release the interpreter's lock, and so do GMP's
powers; products of numbers of gmpy2 do not, so that workers take turns at those.

A kernel is a row of units of work, each far shorter than the shortest `silence_s`; `finish_unit` marks the end of one.
A kernel that finishes none for that long hangs. No thread can be ended from outside, so the party ends with it, is
started again by who runs it, and its jobs are resumed.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import gmpy2

from treetap.errors import Interrupted
from treetap.process.together import together
from treetap.usage import FINISHED, LOOKS, finish_unit

T = TypeVar("T")
#: Most microseconds of kernels between two looks of an event loop at its sockets, in the slowest form: AVX-512 takes a
#: fifth of it. To hand a kernel to a thread and back takes 45 µs of processor time where nothing else runs
#: (Sapphire Rapids, `benchmarks/empty_call.py`); threads that wait for the interpreter's lock make it more. Beyond, two
#: cores gain more than hand-overs cost.
SMALL_US = 10_000.0


class Turns:
    """The turns of an event loop: how much work each has had in the loop itself."""

    def __init__(self) -> None:
        self._spent = 0.0

    def take(self, us: float) -> bool:
        """True, and that much is spent of this turn, if it has room for work of `us` microseconds."""
        if self._spent + us > SMALL_US:
            return False
        if not self._spent:
            asyncio.get_running_loop().call_soon(self._begin)
        self._spent += us
        return True

    async def pause(self, us: float) -> None:
        """Begin the next turn, if this one has no room for as much again."""
        if self._spent + us > SMALL_US:
            await asyncio.sleep(0)

    def _begin(self) -> None:
        self._spent = 0.0


class Engine:
    """Workers of computation; these run each kernel at once in the caller: for simulators and small computations."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers

    async def call(self, worker: int, kernel: Callable[..., T], *args: Any, us: float = math.inf) -> T:
        """Run `kernel(*args)` in a worker, after every earlier call to that worker.

        `us`: the microseconds that it takes at most, as sizes tell; by default a thread's.

        Raises:
            Interrupted: the workers have been closed.
            Exception: whatever the kernel raised.
        """
        del us  # all run at once
        if not 0 <= worker < self.workers:
            raise ValueError(f"there is no worker {worker}")
        return kernel(*args)

    def begin(self, worker: int, kernel: Callable[..., Any], *args: Any) -> None:
        """The same without waiting for it, to prepare a later call."""
        del worker
        kernel(*args)

    async def close(self) -> None:
        """End the workers; calls that wait end with Interrupted, and a kernel under way goes on to its end."""


class InWorkers:
    """A part in the memory of each worker of an engine, until `close`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._parts: list[Any] = []

    async def close(self) -> None:
        """Free the workers' memory."""
        self._parts = []

    async def _make(self, kind: Callable[..., Any], *args: Any) -> None:
        """Have `kind(*args)` in every worker."""
        workers = range(self._engine.workers)
        self._parts = await together(*(self._engine.call(worker, kind, *args) for worker in workers))

    def _on(self, worker: int, method: Callable[..., T], *args: Any, us: float = math.inf) -> Coroutine[Any, Any, T]:
        """Call a method of a worker's part."""
        return self._engine.call(worker, method, self._parts[worker], *args, us=us)

    async def _on_all(self, method: Callable[..., T], *args: Any, us: float = math.inf) -> list[T]:
        return await together(*(self._on(worker, method, *args, us=us) for worker in range(self._engine.workers)))

    def _shares(self, items: int, least: int = 1) -> list[tuple[int, int, int]]:
        """Each worker that has a share of some items, its first, and the one behind its last.

        `least`: items of which one worker has the first ones alone.
        """
        workers = max(1, min(self._engine.workers, items // least))
        bounds = pairwise(items * worker // workers for worker in range(workers + 1))
        return [(worker, first, last) for worker, (first, last) in enumerate(bounds) if last > first]


class ThreadEngine(Engine):
    """One thread per worker, for what is not small.

    `silence_s`: seconds without a finished unit of work after which a kernel hangs. `hung` is told of it, once and in
    another thread, by a sentence that names the kernel.
    """

    def __init__(self, workers: int, silence_s: float, hung: Callable[[str], object]) -> None:
        if workers < 1:
            raise ValueError("an engine needs at least one worker")
        super().__init__(workers)
        self._silence_s, self._hung = silence_s, hung
        self._threads = [ThreadPoolExecutor(1, f"compute-{worker}", _release_the_lock) for worker in range(workers)]
        self._at_work: dict[int, Callable[..., Any]] = {}  # by the number of its thread
        self._awaited = set[asyncio.Future[Any]]()
        self._handed = [set[Future[Any]]() for _ in range(workers)]  # calls that threads have not ended
        self._turns = Turns()
        self._closed = False
        threading.Thread(target=self._watch, name="compute-watch", daemon=True).start()

    async def call(self, worker: int, kernel: Callable[..., T], *args: Any, us: float = math.inf) -> T:
        closed = Interrupted(f"compute worker {worker} has been closed")
        if self._closed:
            raise closed
        if not self._handed[worker] and self._turns.take(us):
            result = self._run(kernel, *args)
            await self._turns.pause(us)
            return result
        answer = asyncio.wrap_future(self._hand(worker, kernel, *args))
        self._awaited.add(answer)
        answer.add_done_callback(self._awaited.discard)
        try:
            return await answer
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and not (task and task.cancelling()):
                raise closed from None
            raise

    def begin(self, worker: int, kernel: Callable[..., Any], *args: Any) -> None:
        if not self._closed:
            self._hand(worker, kernel, *args)

    async def close(self) -> None:
        self._closed = True
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)
        for answer in list(self._awaited):
            answer.cancel()

    def _hand(self, worker: int, kernel: Callable[..., T], *args: Any) -> Future[T]:
        call = self._threads[worker].submit(self._run, kernel, *args)
        self._handed[worker].add(call)
        call.add_done_callback(self._handed[worker].discard)
        return call

    def _run(self, kernel: Callable[..., T], *args: Any) -> T:
        """Run a kernel where the watch sees it."""
        me = threading.get_ident()
        self._at_work[me] = kernel
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
        while self._at_work or not self._closed:
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
