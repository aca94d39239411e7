"""One worker: an ordered queue in front of the memory of a process, which is replaced when it is lost; both ends of it.

The memory lives in a process of this machine, an *incarnation* of the worker. A kernel is a row of units of work, each
far shorter than the shortest `silence_s`; `finish_unit` marks the end of one. A worker that is at work and finishes
neither a call nor a unit for `silence_s` hangs: it is killed and started again, as one that died is, and the call ends
with Interrupted. A worker that was started again has forgotten everything; its `generation` tells.
"""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import os
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from treetap.errors import BadInput, Interrupted
from treetap.process.fork_server import BOOT_S, ForkServer
from treetap.usage import LOOKS, SilenceWatch, Units, finish_unit
from treetap.workers.calls import answer, outcome_of, pickled_call, write_answer

T = TypeVar("T")
#: Bytes of a message, which come before it.
_SIZE = struct.Struct("<Q")
#: Bytes that wait in a worker's pipe, if the system allows: each time that it is full or empty, its ends take turns.
_WAITING = 1024 * 1024


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
        # replace this incarnation, unless that has been done
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


class WorkerProcess:
    """Parent's end of one process: an incarnation of a worker, from its start to its end."""

    def __init__(self, forks: ForkServer, prepare: Callable[[], None], remedy: str, worker: int) -> None:
        """Have it forked. `prepare` is called there before the first kernel; `remedy`: against its death."""
        self._remedy = remedy
        # one counter in memory, or in a temporary file
        if hasattr(os, "memfd_create"):
            file = os.memfd_create("units")
        else:
            with tempfile.TemporaryFile() as temporary:
                file = os.dup(temporary.fileno())
        os.ftruncate(file, ctypes.sizeof(ctypes.c_uint64))
        try:
            self._units = _count_in(file)
            self._child = forks.fork(_serve, (worker, prepare), [file])
        finally:
            os.close(file)

    @property
    def pid(self) -> int:
        """Its process id, for which this waits; raises as `Child.pid` does."""
        return self._child.pid

    @property
    def known_pid(self) -> int:
        """Its process id; 0 until it has been forked."""
        return self._child.known_pid if self._child.answered else 0

    @property
    def name(self) -> str:
        """Kind and place: a process by its number."""
        return f"process {self.known_pid or 'that is not forked yet'}"

    @property
    def units(self) -> int:
        """Units of work that it has finished."""
        return self._units.value

    def alive(self) -> bool:
        """True if the next call may go there; one that is refused lives on: every call is answered with the reason."""
        return not self._child.ended() or bool(self._child.refusal)

    def exchange(self, message: bytes) -> bytes:
        """Send a call and wait for its answer; in the worker's own thread.

        Raises:
            EOFError, OSError: it has been lost.
        """
        try:
            with _socket_of(self._child.pipe) as near:
                _send(near, message)
                return _receive(near)
        except (EOFError, OSError):
            if self._child.ended(1.0) and self._child.refusal:
                return write_answer((True, BadInput(self._child.refusal)))
            raise

    def loss(self) -> str:
        """The end of a sentence that begins with the worker, once it has been lost: how, and what comes next."""
        self._child.ended(1.0)  # its pipe may be gone a moment before it is
        if self._child.fate:
            return f"was lost and is started again: {self._child.fate}"
        return f"died and was started again; {self._remedy}"

    def kill(self) -> None:
        """Have it end at once, also in the middle of a call, which ends with an error of `exchange`; never waits."""
        self._child.kill()

    def end(self) -> None:
        """Kill it, wait until it is gone, and release what this process has of it."""
        self._child.end()


def _count_in(file: int) -> ctypes.c_uint64:
    """The counter of such a file."""
    return ctypes.c_uint64.from_buffer(mmap.mmap(file, ctypes.sizeof(ctypes.c_uint64)))


def _serve(pipe: Connection, file: int, worker: int, prepare: Callable[[], None]) -> None:
    """A worker's life: answer calls in order until the pipe ends; all with the error if `prepare` has one."""
    Units.finished = _count_in(file)
    os.close(file)
    state: dict[str, Any] = {}
    lacking: Exception | None = None
    try:
        prepare()
    except Exception as error:  # noqa: BLE001 - every call is answered with it
        lacking = error
    with _socket_of(pipe) as near:
        while True:
            finish_unit()
            try:
                message = _receive(near)
            except (EOFError, OSError):
                return
            _send(near, answer(state, message, lacking, f"worker {worker}"))


@contextmanager
def _socket_of(pipe: Connection) -> Iterator[socket.socket]:
    """A pipe's end as a socket, which takes and gives a long message in one call; the pipe stays open."""
    near = socket.socket(fileno=pipe.fileno())
    try:
        with suppress(OSError):
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _WAITING)
        yield near
    finally:
        near.detach()


def _send(near: socket.socket, message: bytes) -> None:
    head = _SIZE.pack(len(message))
    sent = near.sendmsg([head, message])
    if sent < len(head) + len(message):  # a signal came
        near.sendall(head[sent:])
        near.sendall(memoryview(message)[max(0, sent - len(head)) :])


def _receive(near: socket.socket) -> bytes:
    """The next message; EOFError where there is none any more."""
    (size,) = _SIZE.unpack(_read(near, _SIZE.size))
    return _read(near, size)


def _read(near: socket.socket, size: int) -> bytes:
    data = near.recv(size, socket.MSG_WAITALL)
    while len(data) < size:  # a signal came, or the end
        part = near.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
