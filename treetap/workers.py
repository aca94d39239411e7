"""Engines for heavy arithmetic: in this process, or in worker processes with memory of their own.

A worker is an ordered queue with a memory of its own. `call(worker, kernel, *args)` runs `kernel(state, *args)` there;
`state` is a dictionary that lives as long as the worker, and kernels are module-level functions. No protocol file knows
which engine it talks to.

Workers are spawned, not forked: a fork would copy keys and sockets. Nothing secret passes through arguments or the
environment, only through the worker's private pipe. A worker ends with its parent, even when the parent is killed.

A spawned process imports the parent's main script again unless that is a package's `__main__`: started as
`python -m package`, an idle worker holds 38 MB (22 MB before its first kernel imports numpy and gmpy2); started from a
script that imports grpc, pyarrow and pydantic at its top, 78 MB.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol, TypeVar

from treetap.errors import Interrupted
from treetap.process.limits import keep_memory_private
from treetap.usage import Usage, measure_process

T = TypeVar("T")
_JOIN_SECONDS = 5.0


class Engine(Protocol):
    """Workers of computation with memory."""

    workers: int

    async def call(self, worker: int, kernel: Callable[..., T], *args: Any) -> T:
        """Run `kernel(state, *args)` in a worker, after every earlier call to that worker.

        Raises:
            Interrupted: the worker died.
            Exception: whatever the kernel raised, as the same type.
        """
        ...

    def usage(self) -> list[Usage]:
        """Memory and time of each worker process so far; empty without processes. Never waits for a busy worker."""
        ...

    async def close(self) -> None:
        """End the workers and forget their memory; calls still under way end with Interrupted."""
        ...


async def call_all(engine: Engine, kernel: Callable[..., Any], *args: Any) -> None:
    """Run `kernel(state, *args)` in every worker."""
    await asyncio.gather(*(engine.call(worker, kernel, *args) for worker in range(engine.workers)))


class InProcessEngine:
    """One worker that runs each kernel at once in the caller: for simulators and for very small computations."""

    workers = 1

    def __init__(self) -> None:
        self._state: dict[str, Any] = {}

    async def call(self, worker: int, kernel: Callable[..., T], *args: Any) -> T:
        if worker != 0:
            raise ValueError(f"an in-process engine has worker 0 only, not {worker}")
        return kernel(self._state, *args)

    def usage(self) -> list[Usage]:
        return []

    async def close(self) -> None:
        self._state.clear()


class ProcessEngine:
    """One spawned process, one pipe and one thread per worker; the event loop never waits on a pipe."""

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise ValueError("an engine needs at least one worker")
        self.workers = workers
        self._processes: list[_Process] = []

    def start(self) -> None:
        """Spawn the workers; call it before the process opens sockets or starts a server."""
        if self._processes:
            raise RuntimeError("the engine has been started")
        # A Ctrl-C while a child boots must not kill it: a blocked signal stays blocked across the spawn.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._processes = [_Process(worker) for worker in range(self.workers)]
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    async def call(self, worker: int, kernel: Callable[..., T], *args: Any) -> T:
        if not 0 <= worker < len(self._processes):
            raise ValueError(f"the engine has {len(self._processes)} started workers, there is no worker {worker}")
        process = self._processes[worker]
        loop = asyncio.get_running_loop()
        try:
            outcome = loop.run_in_executor(process.thread, process.exchange, kernel, args)
        except RuntimeError as error:  # the executor was shut down
            raise Interrupted(f"compute worker {worker} has been closed") from error
        failed, value = await outcome
        if failed:
            raise value
        answer: T = value
        return answer

    def usage(self) -> list[Usage]:
        return [measure_process(pid) for pid in self.pids]  # not through the workers, which may be busy

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers, by worker."""
        return [each.process.pid or 0 for each in self._processes]

    async def close(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(each.close) for each in self._processes))


class _Process:
    """Parent's end of one worker."""

    def __init__(self, worker: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.worker = worker
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=_serve, args=(theirs, worker), name=f"worker-{worker}", daemon=True
        )
        self.process.start()
        theirs.close()  # with our copy gone, the pipe ends when the worker does
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"worker-{worker}")

    def exchange(self, kernel: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bool, Any]:
        """Send one call and wait for its answer (failed?, value or exception); runs in the worker's own thread."""
        message = pickle.dumps((kernel, args), protocol=pickle.HIGHEST_PROTOCOL)  # its errors are the caller's
        try:
            self.pipe.send_bytes(message)
            answer: tuple[bool, Any] = pickle.loads(self.pipe.recv_bytes())  # noqa: S301 - our own child's pipe
        except (EOFError, OSError) as error:
            raise Interrupted(
                f"compute worker {self.worker} (process {self.process.pid}) died: restart this party, "
                "with fewer workers if the system ran out of memory"
            ) from error
        return answer

    def close(self) -> None:
        # Workers keep nothing that outlives them, so ending them at once is safe and never waits for a long kernel.
        self.process.terminate()
        self.process.join(_JOIN_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.thread.shutdown(wait=True)  # calls still queued meet the broken pipe and end with Interrupted
        self.pipe.close()


def _serve(pipe: Connection, worker: int) -> None:
    """A worker's life: answer calls in order until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when a worker ends
    keep_memory_private()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    state: dict[str, Any] = {}
    while True:
        try:
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            kernel, args = pickle.loads(message)  # noqa: S301 - our own parent's pipe
            answer = pickle.dumps((False, kernel(state, *args)), protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001 - it is raised again in the parent
            answer = _pickled_error(error, worker)
        pipe.send_bytes(answer)


def _pickled_error(error: Exception, worker: int) -> bytes:
    """The exception with its traceback as a note; a RuntimeError where its own type does not survive pickling."""
    note = f"in worker {worker}:\n{traceback.format_exc()}"
    error.add_note(note)
    try:
        data = pickle.dumps((True, error), protocol=pickle.HIGHEST_PROTOCOL)
        pickle.loads(data)  # noqa: S301 - made on the line above
    except Exception:  # noqa: BLE001 - any failure to pickle has the same remedy
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        plain.add_note(note)
        data = pickle.dumps((True, plain), protocol=pickle.HIGHEST_PROTOCOL)
    return data


def _end_with_parent() -> None:
    """Leave at once when the parent is gone, killed or not; a worker in a long kernel would not notice its pipe."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
