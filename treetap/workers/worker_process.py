"""A worker in a process of this machine, from both ends: the parent's, and the child's, which does the work."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from treetap.errors import BadInput
from treetap.process.fork_server import ForkServer
from treetap.process.signs_of_life import Units, finish_unit
from treetap.workers.calls import answer, write_answer

#: Bytes of a message, which come before it.
_SIZE = struct.Struct("<Q")
#: Bytes that wait in a worker's pipe, if the system allows: each time that it is full or empty, its ends take turns.
_WAITING = 1024 * 1024


class WorkerProcess:
    """Parent's end of one process: an incarnation of a worker, from its start to its end."""

    def __init__(self, forks: ForkServer, prepare: Callable[[], None], remedy: str, worker: int) -> None:
        """Have it forked. `prepare` is called there before the first kernel; `remedy`: against its death."""
        self._remedy = remedy
        file = _shared_file()
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


def _shared_file() -> int:
    """A file in memory, or a temporary one, for one counter."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("units")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.ftruncate(file, ctypes.sizeof(ctypes.c_uint64))
    return file


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
