"""A worker in a process of this machine, from both ends: the parent's, and the child's, which does the work."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from treetap.errors import BadInput
from treetap.process.fork_server import BOOT_S, ForkServer
from treetap.process.signs_of_life import Units, finish_unit
from treetap.workers.calls import answer, write_answer


class WorkerProcess:
    """Parent's end of one process: an `Incarnation` of a worker."""

    boot_s, own = BOOT_S, True

    def __init__(self, forks: ForkServer, prepare: Callable[[], None], worker: int) -> None:
        """Have it forked. `prepare` is called there before the first kernel."""
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
        return f"process {self.known_pid or 'that is not forked yet'}"

    @property
    def units(self) -> int:
        return self._units.value

    def alive(self) -> bool:
        """One that is refused lives on: every call is answered with the reason."""
        return not self._child.ended() or bool(self._child.refusal)

    def exchange(self, message: bytes) -> bytes:
        try:
            self._child.pipe.send_bytes(message)
            return self._child.pipe.recv_bytes()
        except (EOFError, OSError):
            if self._child.ended(1.0) and self._child.refusal:
                return write_answer((True, BadInput(self._child.refusal)))
            raise

    def loss(self) -> str:
        self._child.ended(1.0)  # its pipe may be gone a moment before it is
        if self._child.fate:
            return f"was lost and is started again: {self._child.fate}"
        return "died and was started again; if it dies again, run this party with fewer workers"

    def kill(self) -> None:
        self._child.kill()

    def end(self) -> None:
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
    while True:
        finish_unit()
        try:
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        pipe.send_bytes(answer(state, message, lacking, f"worker {worker}"))
