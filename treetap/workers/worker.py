"""One worker as its party sees it: an ordered queue in front of a memory, which is replaced when it is lost.

The memory lives in a process of this machine, an *incarnation* of the worker. A kernel is a row of units of work, each
far shorter than the shortest `silence_s`; `finish_unit` marks the end of one. A worker that is at work and finishes
neither a call nor a unit for `silence_s` hangs: it is killed and started again, as one that died is, and the call ends
with Interrupted. A worker that was started again has forgotten everything; its `generation` tells.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from treetap.errors import Interrupted
from treetap.process.fork_server import BOOT_S
from treetap.process.signs_of_life import LOOKS, SilenceWatch
from treetap.workers.calls import outcome_of, pickled_call
from treetap.workers.worker_process import WorkerProcess

T = TypeVar("T")


class Worker:
    """A queue, a thread and the present incarnation; the event loop never waits for either."""

    def __init__(self, name: str, silence_s: float, start: Callable[[], WorkerProcess]) -> None:
        """`start`: begins an incarnation, and does not wait until it answers."""
        self._name, self._silence_s, self._start = name, silence_s, start
        self._change = threading.Lock()  # of the incarnation
        self._closed = False
        self._calls = 0  # answered
        self._under_way = 0
        self._watch: asyncio.Task[None] | None = None
        self.generation = 1  #: how many incarnations there have been
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name.replace(" ", "-"))
        self._hung: WorkerProcess | None = None
        self._why = ""  # it was started again
        self.incarnation = start()

    def ready(self) -> int:
        """The generation of a living incarnation: one that was lost meanwhile is replaced."""
        if not self.incarnation.alive():
            self._lost(self.incarnation)
        return self.generation

    async def call(self, generation: int, kernel: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Run a kernel after all earlier calls, if the worker is of this generation by then; see `Engine.call`."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[bool, Any]] = loop.create_future()
        try:
            outcome = self._thread.submit(self._exchange, generation, kernel, args)
        except RuntimeError as error:  # it was shut down
            raise Interrupted(f"{self._name} has been closed") from error
        self._under_way += 1

        def answered(outcome: Future[tuple[bool, Any]]) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._answered, outcome, answer)

        outcome.add_done_callback(answered)  # also of a call whose caller is gone
        if self._watch is None or self._watch.done():
            self._watch = asyncio.ensure_future(self._watch_for_silence())
        try:
            failed, value = await answer
        except asyncio.CancelledError:
            outcome.cancel()  # one that has begun goes on
            raise
        if failed:
            raise value
        return value

    def forget(self, kernel: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Run a kernel after all earlier calls, if the worker is still of this generation; do not wait for it."""
        generation = self.generation
        if not self._closed:
            self._thread.submit(self._exchange, generation, kernel, args)

    def stop_watching(self) -> None:
        """Stop watching for silence; call it before `close`, in the event loop."""
        if self._watch is not None:
            self._watch.cancel()

    def close(self) -> None:
        """End the worker, which keeps nothing that outlives it; calls under way end with Interrupted."""
        with self._change:
            self._closed = True
            self.incarnation.kill()
        self._thread.shutdown(wait=True)
        self.incarnation.end()

    def _answered(self, outcome: Future[tuple[bool, Any]], answer: asyncio.Future[tuple[bool, Any]]) -> None:
        self._under_way -= 1
        self._calls += 1
        if answer.done():  # its caller is gone
            return
        if error := outcome.exception():
            answer.set_exception(error)
        else:
            answer.set_result(outcome.result())

    def _exchange(self, generation: int, kernel: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bool, Any]:
        """Send one call and wait for its answer (failed?, value or exception); runs in the worker's own thread."""
        message = pickled_call(kernel, args)
        if generation != self.ready():
            raise Interrupted(self._why)
        incarnation = self.incarnation
        try:
            return outcome_of(incarnation.exchange(message))
        except (EOFError, OSError) as error:
            raise self._lost(incarnation) from error

    def _lost(self, incarnation: WorkerProcess) -> Interrupted:
        """Replace an incarnation that has ended; returns the error for its calls."""
        if self._closed:
            return Interrupted(f"{self._name} has been closed")
        self._start_again(incarnation)
        return Interrupted(self._why)

    async def _watch_for_silence(self) -> None:
        """Kill the incarnation if it is silent for too long, as long as calls are under way."""
        watch = SilenceWatch(self._signs, asyncio.get_running_loop().time)
        while self._under_way and not self._closed:
            await asyncio.sleep(self._silence_s / LOOKS)
            present = self.incarnation
            if watch.silent_s() >= (self._silence_s if present.units else max(self._silence_s, BOOT_S)):
                self._hung = present
                present.kill()  # the thread that waits for its answer continues

    def _signs(self) -> tuple[int, int, int]:
        return self.generation, self._calls, self.incarnation.units

    def _start_again(self, incarnation: WorkerProcess) -> None:
        """Replace this incarnation, unless that has been done."""
        with self._change:
            if self.incarnation is incarnation and not self._closed:
                who = f"{self._name} ({incarnation.name})"
                if incarnation is self._hung:
                    silent = f"{self._silence_s:g} s"
                    self._why = f"{who} finished no unit of work for {silent}; it was killed and started again"
                else:
                    self._why = f"{who} {incarnation.loss()}"
                incarnation.end()
                self.incarnation = self._start()
                self.generation += 1


class Lease:
    """The workers as they are now; once one was started again, all that this attempt kept there is gone."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self._generations = [worker.ready() for worker in workers]
        self.workers = len(workers)

    async def call(self, worker: int, kernel: Callable[..., T], *args: Any) -> T:
        answer: T = await self._workers[worker].call(self._generations[worker], kernel, args)
        return answer

    def forget(self, kernel: Callable[..., Any], *args: Any) -> None:
        for worker, generation in zip(self._workers, self._generations, strict=True):
            if worker.generation == generation:
                worker.forget(kernel, args)
