"""Slow functions off the event loop, in threads; a thread that the file system blocks is abandoned.

A thread that is done waits for further work: a batch of a network has three such functions, each shorter than the start
of a thread. No process can end a thread that waits in the kernel for a disk or a server that does not answer. Its step
ends after `silence_s`, by name; the thread is a daemon, so that the process leaves at SIGTERM without it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from treetap.errors import Interrupted
from treetap.process.signs_of_life import LOOKS, SilenceWatch

T = TypeVar("T")


#: Most threads that wait for work.
MOST_IDLE = 4


class _Thread:
    """A thread that does one function of `work` after another, none of which raises, and ends with None."""

    def __init__(self) -> None:
        self._clock = 0
        self.work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="offload", daemon=True).start()

    def _run(self) -> None:
        if clock_of := getattr(time, "pthread_getcpuclockid", None):
            self._clock = clock_of(threading.get_ident())
        while (work := self.work.get()) is not None:
            work()
            del work  # and with it the data that it holds

    def run_ns(self) -> int:
        """Nanoseconds that it has run on a processor; 0 before it begins, after its end, and always on macOS."""
        with suppress(OSError):
            return time.clock_gettime_ns(self._clock) if self._clock else 0
        return 0


class Threads:
    """`Offload` to threads; `silence_s`: seconds without running after which a thread counts as stuck."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._idle: list[_Thread] = []

    async def __call__(self, work: Callable[[], T], *, whole: bool = False) -> T:
        """The result of `work()`. `whole`: see `Offload`.

        Raises:
            Interrupted: the thread waits for the file system, and it has not run for `silence_s`.
            Exception: whatever `work` raises.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()
        thread = self._idle.pop() if self._idle else _Thread()
        context = copy_context()

        def run() -> None:
            settle: Callable[[], None]
            try:
                settle = partial(outcome.set_result, context.run(work))
            except BaseException as error:  # noqa: BLE001 - it is raised in the caller
                settle = partial(outcome.set_exception, error)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._ended, thread, outcome, settle)

        thread.work.put(run)
        watch = SilenceWatch(thread.run_ns, loop.time)
        cancelled: asyncio.CancelledError | None = None
        while not outcome.done():
            try:
                await asyncio.wait({outcome}, timeout=self._silence_s / LOOKS)
            except asyncio.CancelledError as caught:
                if not whole:
                    outcome.cancel()  # nor does an error of the work have a caller then
                    raise
                cancelled = caught
            if not outcome.done() and watch.silent_s() >= self._silence_s:
                outcome.cancel()
                raise Interrupted(
                    f"a file operation has not ended for {self._silence_s:g} s: is the disk, or the server that holds "
                    "the files, there? restart this party when it is"
                )
        if cancelled is not None:
            outcome.exception()  # its caller is gone
            raise cancelled
        return outcome.result()

    def _ended(self, thread: _Thread, outcome: asyncio.Future[T], settle: Callable[[], None]) -> None:
        """In the loop, after a thread has done its function: keep it for further work or end it; settle the outcome."""
        if len(self._idle) < MOST_IDLE:
            self._idle.append(thread)
        else:
            thread.work.put(None)
        if not outcome.done():  # its caller may be gone
            settle()
