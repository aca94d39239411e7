"""One worker process from both ends: the parent's, which ends it when it hangs, and the child's, which does the work.

A kernel is a row of units of work, each far shorter than the shortest `silence_s`; `finish_unit` marks the end of one.
A worker that is at work and finishes neither a call nor a unit for `silence_s` hangs: it is killed and started again,
as one that died is, and the call ends with Interrupted. A worker that was started again has forgotten everything; its
`generation` tells.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from treetap.errors import Interrupted
from treetap.process.limits import keep_memory_private
from treetap.process.silence import LOOKS, SilenceWatch
from treetap.process.units import Units, finish_unit

#: Seconds that a new process may take until it listens, if that is more than `silence_s`.
BOOT_S = 30.0


class WorkerProcess:
    """Parent's end of one worker: a process, a pipe and a thread; the event loop never waits on the pipe."""

    def __init__(self, worker: int, silence_s: float, prepare: Callable[[], None]) -> None:
        """Start it. `prepare` is called in every new process, before its first kernel."""
        self._worker, self._silence_s, self._prepare = worker, silence_s, prepare
        self._context = multiprocessing.get_context("spawn")
        self._change = threading.Lock()  # of the process
        self._closed = False
        self._calls = 0  # answered
        self._under_way = 0
        self._watch: asyncio.Task[None] | None = None
        self.generation = 0  #: how many times the process has been started
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"worker-{worker}")
        self._hung: BaseProcess | None = None
        self._why = ""  # the process was started again
        self._start()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid or 0

    def ready(self) -> int:
        """The generation of a living process: one that has died meanwhile is started again."""
        if not self._process.is_alive():
            self._lost(self._process)
        return self.generation

    async def call(self, generation: int | None, kernel: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Run a kernel after all earlier calls; see `Engine.call`.

        Args:
            generation: Interrupted if the process is of another one by then; None: any will do.
        """
        loop = asyncio.get_running_loop()
        try:
            outcome = self._thread.submit(self._exchange, generation, kernel, args)
        except RuntimeError as error:  # it was shut down
            raise Interrupted(f"compute worker {self._worker} has been closed") from error
        self._under_way += 1

        def answered(_: Future[Any]) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._answered)

        outcome.add_done_callback(answered)  # also of a call whose caller is gone
        if self._watch is None or self._watch.done():
            self._watch = asyncio.ensure_future(self._watch_for_silence())
        failed, value = await asyncio.wrap_future(outcome)
        if failed:
            raise value
        return value

    def forget(self, kernel: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Run a kernel after all earlier calls, if the process is still of this generation; do not wait for it."""
        generation = self.generation
        if not self._closed:
            self._thread.submit(self._exchange, generation, kernel, args)

    def stop_watching(self) -> None:
        """Stop watching the process for silence; call it before `close`, in the event loop."""
        if self._watch is not None:
            self._watch.cancel()

    def close(self) -> None:
        """End the process, which keeps nothing that outlives it; calls under way end with Interrupted."""
        with self._change:
            self._closed = True
            self._end(self._process)
        self._thread.shutdown(wait=True)
        self._pipe.close()

    def _answered(self) -> None:
        self._under_way -= 1
        self._calls += 1

    def _exchange(self, generation: int | None, kernel: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bool, Any]:
        """Send one call and wait for its answer (failed?, value or exception); runs in the worker's own thread."""
        message = pickle.dumps((kernel, args), protocol=pickle.HIGHEST_PROTOCOL)  # its errors are the caller's
        if generation not in (None, self.ready()):
            raise Interrupted(self._why)
        process = self._process
        try:
            self._pipe.send_bytes(message)
            answer: tuple[bool, Any] = pickle.loads(self._pipe.recv_bytes())  # noqa: S301 - our own child's pipe
        except (EOFError, OSError) as error:
            raise self._lost(process) from error
        return answer

    def _lost(self, process: BaseProcess) -> Interrupted:
        """Start a process again that has ended; returns the error for its calls."""
        if self._closed:
            return Interrupted(f"compute worker {self._worker} has been closed")
        self._start_again(process)
        return Interrupted(self._why)

    async def _watch_for_silence(self) -> None:
        """Kill the process if it is silent for too long, as long as calls are under way."""
        watch = SilenceWatch(self._signs, asyncio.get_running_loop().time)
        while self._under_way and not self._closed:
            await asyncio.sleep(self._silence_s / LOOKS)
            if watch.silent_s() >= (self._silence_s if self._units.value else max(self._silence_s, BOOT_S)):
                self._hung = self._process
                self._process.kill()  # the thread that waits at its pipe continues

    def _signs(self) -> tuple[int, int, int]:
        return self.generation, self._calls, int(self._units.value)

    def _start_again(self, process: BaseProcess) -> None:
        """Replace this process, unless that has been done."""
        with self._change:
            if self._process is process and not self._closed:
                who = f"compute worker {self._worker} (process {process.pid})"
                if process is self._hung:
                    silent = f"{self._silence_s:g} s"
                    self._why = f"{who} finished no unit of work for {silent}; it was killed and started again"
                else:
                    self._why = f"{who} died and was started again; if it dies again, run this party with fewer workers"
                self._end(process)
                self._pipe.close()
                self._start()

    def _start(self) -> None:
        self._pipe, theirs = self._context.Pipe()
        self._units = self._context.RawValue(ctypes.c_uint64, 0)
        self._process: BaseProcess = self._context.Process(
            target=_serve,
            args=(theirs, self._worker, self._units, self._prepare),
            name=f"worker-{self._worker}",
            daemon=True,
        )
        # A Ctrl-C while a child boots must not kill it: a blocked signal stays blocked across the spawn.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        theirs.close()  # with our copy gone, the pipe ends when the worker does
        self.generation += 1

    @staticmethod
    def _end(process: BaseProcess) -> None:
        process.kill()  # a suspended process would not hear SIGTERM
        process.join()


def _serve(pipe: Connection, worker: int, units: Any, prepare: Callable[[], None]) -> None:
    """A worker's life: answer calls in order until the pipe ends; all with the error if `prepare` has one."""
    Units.finished = units
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when a worker ends
    keep_memory_private()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    state: dict[str, Any] = {}
    lacking: Exception | None = None
    try:
        prepare()
    except Exception as error:  # noqa: BLE001 - every call is answered with it
        lacking = error
    while True:
        finish_unit()
        try:
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            if lacking is not None:
                raise lacking
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
