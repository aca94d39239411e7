"""One worker as its party sees it: an ordered queue in front of a memory, which is replaced when it is lost.

The memory lives in a process of this machine or in an actor of a cluster: an `Incarnation`. A kernel is a row of units
of work, each far shorter than the shortest `silence_s`; `finish_unit` marks the end of one. A worker that is at work
and finishes neither a call nor a unit for `silence_s` hangs: it is killed and started again, as one that died is, and
the call ends with Interrupted. A worker that was started again has forgotten everything; its `generation` tells.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from treetap.errors import BadInput, Defect, Interrupted, Malformed, PlaintextOverflow, TreetapError
from treetap.process.signs_of_life import LOOKS, SilenceWatch
from treetap.workers.calls import outcome_of, pickled_call

T = TypeVar("T")
log = logging.getLogger(__name__)
#: Errors that a kernel raises about its arguments, which come from peers and tables.
_OF_KERNELS: tuple[type[TreetapError], ...] = (Malformed, PlaintextOverflow, BadInput)


class Incarnation(Protocol):
    """A memory of a worker, from its start to its end; the next call starts another one."""

    #: Seconds that it may take until its first unit of work, if that is more than `silence_s`.
    boot_s: float

    @property
    def own(self) -> bool:
        """True if the words of its errors are the party's own."""
        ...

    @property
    def name(self) -> str:
        """Kind and place: a process by its number."""
        ...

    @property
    def units(self) -> int:
        """Units of work that it has finished."""
        ...

    def alive(self) -> bool:
        """True if the next call may go there; never waits."""
        ...

    def exchange(self, message: bytes) -> bytes:
        """Send a call and wait for its answer; in the worker's own thread.

        Raises:
            EOFError, OSError: it has been lost.
        """
        ...

    def loss(self) -> str:
        """The end of a sentence that begins with the worker, once it has been lost: how, and what comes next."""
        ...

    def kill(self) -> None:
        """Have it end at once, also in the middle of a call, which ends with an error of `exchange`; never waits."""
        ...

    def end(self) -> None:
        """Kill it, wait until it is gone, and release what this process has of it."""
        ...


Life = TypeVar("Life", bound=Incarnation)


class Worker(Generic[Life]):
    """A queue, a thread and the present incarnation; the event loop never waits for either."""

    def __init__(self, number: int, silence_s: float, start: Callable[[], Life]) -> None:
        """`start`: begins an incarnation, and does not wait until it answers."""
        self.number, self._silence_s, self._start = number, silence_s, start
        self._change = threading.Lock()  # of the incarnation
        self._closed = False
        self._calls = 0  # answered
        self._under_way = 0
        self._watch: asyncio.Task[None] | None = None
        self.generation = 1  #: how many incarnations there have been
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"worker-{number}")
        self._hung: Life | None = None
        self._why = ""  # it was started again
        self.incarnation = start()

    def ready(self) -> int:
        """The generation of a living incarnation: one that was lost meanwhile is replaced."""
        if not self.incarnation.alive():
            self._lost(self.incarnation)
        return self.generation

    async def call(self, generation: int | None, kernel: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Run a kernel after all earlier calls; see `Engine.call`.

        Args:
            generation: Interrupted if the worker is of another one by then; None: any will do.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[bool, Any]] = loop.create_future()
        try:
            outcome = self._thread.submit(self._exchange, generation, kernel, args)
        except RuntimeError as error:  # it was shut down
            raise Interrupted(f"compute worker {self.number} has been closed") from error
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

    def _exchange(self, generation: int | None, kernel: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bool, Any]:
        """Send one call and wait for its answer (failed?, value or exception); runs in the worker's own thread."""
        message = pickled_call(kernel, args)
        if generation not in (None, self.ready()):
            raise Interrupted(self._why)
        incarnation = self.incarnation
        try:
            failed, value = outcome_of(incarnation.exchange(message))
        except (EOFError, OSError) as error:
            raise self._lost(incarnation) from error
        reworded = failed and isinstance(value, TreetapError) and not incarnation.own
        return failed, self._reworded(value) if reworded else value

    def _reworded(self, said: TreetapError) -> TreetapError:
        """An error from elsewhere without its words, which the party would send on as its own; the log has them.

        Kernels find what they are given wrong, and refuse nothing.
        """
        log.warning("compute worker %d (%s) says %s: %s", self.number, self.incarnation.name, type(said).__name__, said)
        kind = next((kind for kind in _OF_KERNELS if isinstance(said, kind)), Defect)
        failure = kind(f"compute worker {self.number} of the cluster failed ({kind.__name__}): the log has its words")
        for note in getattr(said, "__notes__", ()):
            failure.add_note(str(note))
        return failure

    def _lost(self, incarnation: Life) -> Interrupted:
        """Replace an incarnation that has ended; returns the error for its calls."""
        if self._closed:
            return Interrupted(f"compute worker {self.number} has been closed")
        self._start_again(incarnation)
        return Interrupted(self._why)

    async def _watch_for_silence(self) -> None:
        """Kill the incarnation if it is silent for too long, as long as calls are under way."""
        watch = SilenceWatch(self._signs, asyncio.get_running_loop().time)
        while self._under_way and not self._closed:
            await asyncio.sleep(self._silence_s / LOOKS)
            present = self.incarnation
            if watch.silent_s() >= (self._silence_s if present.units else max(self._silence_s, present.boot_s)):
                self._hung = present
                present.kill()  # the thread that waits for its answer continues

    def _signs(self) -> tuple[int, int, int]:
        return self.generation, self._calls, self.incarnation.units

    def _start_again(self, incarnation: Life) -> None:
        """Replace this incarnation, unless that has been done."""
        with self._change:
            if self.incarnation is incarnation and not self._closed:
                who = f"compute worker {self.number} ({incarnation.name})"
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

    def __init__(self, workers: Sequence[Worker[Any]]) -> None:
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


class Workers(Generic[Life]):
    """All workers of an engine, from its start to its close: what engines whose workers can be lost have in common."""

    def __init__(self, number: int, silence_s: float) -> None:
        """`silence_s`: see the head of this module."""
        if number < 1:
            raise ValueError("an engine needs at least one worker")
        self.workers = number
        self._silence_s = silence_s
        self.started: list[Worker[Life]] = []

    async def call(self, worker: int, kernel: Callable[..., T], *args: Any) -> T:
        """A worker that was started again takes the call."""
        if not 0 <= worker < len(self.started):
            raise ValueError(f"the engine has {len(self.started)} started workers, there is no worker {worker}")
        answer: T = await self.started[worker].call(None, kernel, args)
        return answer

    def forget(self, kernel: Callable[..., Any], *args: Any) -> None:
        for worker in self.started:
            worker.forget(kernel, args)

    async def close(self) -> None:
        for worker in self.started:
            worker.stop_watching()
        await asyncio.gather(*(asyncio.to_thread(worker.close) for worker in self.started))

    def _start(self, begin: Callable[[int], Life]) -> None:
        """Start the workers. `begin`: starts an incarnation of a worker, by its number."""
        if self.started:
            raise RuntimeError("the engine has been started")
        self.started = [Worker(worker, self._silence_s, partial(begin, worker)) for worker in range(self.workers)]
