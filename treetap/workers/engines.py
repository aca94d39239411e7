"""Engines for heavy arithmetic: in this process, or in worker processes of this machine with memory of their own.

A worker is an ordered queue with a memory of its own. `call(worker, kernel, *args)` runs `kernel(state, *args)` there;
`state` is a dictionary that lives as long as the worker, and kernels are module-level functions. No protocol file knows
which engine it talks to.

Workers are forked from a server that holds nothing (`treetap.process.fork_server`), never from their party, whose keys
and sockets a fork would copy. Nothing secret passes through arguments, the environment or the server, only through the
worker's private pipe. A worker ends with its party, even when that is killed; one that dies or hangs is started again
without a person.

Workers compute with the backend of `treetap.native.arithmetic` that their party used when it made them.

What the server has imported, all share: of the 27 MB that an idle worker holds 2 are its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, TypeVar

from treetap.native import arithmetic
from treetap.process.fork_server import ForkServer
from treetap.process.together import together
from treetap.usage import Usage, measure_process
from treetap.workers.calls import make_ready
from treetap.workers.worker import Lease, Worker, WorkerProcess

T = TypeVar("T")


class Engine(Protocol):
    """Workers of computation with memory, as one attempt at a job uses them."""

    workers: int

    async def call(self, worker: int, kernel: Callable[..., T], *args: Any) -> T:
        """Run `kernel(state, *args)` in a worker, after every earlier call to that worker.

        Raises:
            Interrupted: the worker died or hung, or was started again since this attempt began.
            Exception: whatever the kernel raised, as the same type.
        """
        ...

    def forget(self, kernel: Callable[..., Any], *args: Any) -> None:
        """Have every worker run `kernel(state, *args)`, which frees memory or prepares a later call; do not wait."""
        ...


class EngineHost(Protocol):
    """A party's workers, for all its jobs."""

    def lease(self) -> Engine:
        """The workers for one attempt, which does not outlive their memory."""
        ...

    def usage(self) -> list[Usage]:
        """Memory and time of each worker process so far; empty without processes. Never waits for a busy worker."""
        ...

    async def close(self) -> None:
        """End the workers and forget their memory; calls still under way end with Interrupted."""
        ...


async def await_workers(host: EngineHost) -> None:
    """Wait until every worker answers.

    Raises:
        BadInput: a worker cannot compute with the backend that it is to use.
        Interrupted: a worker died or hung.
    """
    await call_all(host.lease(), _answer)


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

    def usage(self) -> list[Usage]:
        return []

    async def close(self) -> None:
        self._state.clear()


class ProcessEngine:
    """One forked process per worker. `silence_s`: seconds without a finished unit of work after which one hangs."""

    def __init__(
        self,
        workers: int,
        silence_s: float,
        modules: Sequence[str] = (),
        forks: ForkServer | None = None,
        *,
        name: str = "compute worker {}",
        remedy: str = "if it dies again, run this party with fewer workers",
    ) -> None:
        """`modules`: what each worker imports when it starts, so that its first kernel does not wait for it.

        `forks`: a server that has imported them, or is about to; None: one of this engine's own. The engine closes it.
        `name`, `remedy`: of a worker by its number, and against its death, in errors.
        """
        if workers < 1:
            raise ValueError("an engine needs at least one worker")
        self.workers, self._silence_s, self._name, self._remedy = workers, silence_s, name, remedy
        self._modules = tuple(modules)
        self._forks = forks or ForkServer((WorkerProcess.__module__, *self._modules))
        self.started: list[Worker] = []

    def start(self) -> None:
        """Have the workers forked."""
        if self.started:
            raise RuntimeError("the engine has been started")
        prepare = partial(make_ready, arithmetic.in_use(), self._modules)
        begin = partial(WorkerProcess, self._forks, prepare, self._remedy)
        self.started = [
            Worker(self._name.format(worker), self._silence_s, partial(begin, worker)) for worker in range(self.workers)
        ]

    async def close(self) -> None:
        for worker in self.started:
            worker.stop_watching()
        await asyncio.gather(*(asyncio.to_thread(worker.close) for worker in self.started))
        await asyncio.to_thread(self._forks.close)

    def lease(self) -> Lease:
        return Lease(self.started)

    def usage(self) -> list[Usage]:
        # not through the workers, which may be busy; zero of one that is not forked yet
        return [measure_process(worker.incarnation.known_pid) for worker in self.started]

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers, by worker; waits until they are forked."""
        return [worker.incarnation.pid for worker in self.started]


def _answer(_state: dict[str, Any]) -> None:
    """A kernel that does nothing."""
