"""A worker in a process of this machine, from both ends: the parent's, and the child's, which does the work."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from treetap.process.children import SPAWN, end, settle, spawn
from treetap.process.units import Units, finish_unit
from treetap.workers.calls import answer


class WorkerProcess:
    """Parent's end of one process: an `Incarnation` of a worker."""

    boot_s, own = 30.0, True

    def __init__(self, prepare: Callable[[], None], worker: int) -> None:
        """Start it. `prepare` is called there before the first kernel."""
        self._pipe, theirs = SPAWN.Pipe()
        self._units = SPAWN.RawValue(ctypes.c_uint64, 0)
        self._process = spawn(_serve, (theirs, worker, self._units, prepare), f"worker-{worker}")
        theirs.close()  # with our copy gone, the pipe ends when the worker does

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    @property
    def name(self) -> str:
        return f"process {self.pid}"

    @property
    def units(self) -> int:
        return int(self._units.value)

    def alive(self) -> bool:
        return self._process.is_alive()

    def exchange(self, message: bytes) -> bytes:
        self._pipe.send_bytes(message)
        return self._pipe.recv_bytes()

    def loss(self) -> str:
        return "died and was started again; if it dies again, run this party with fewer workers"

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        end(self._process)
        self._pipe.close()


def _serve(pipe: Connection, worker: int, units: Any, prepare: Callable[[], None]) -> None:
    """A worker's life: answer calls in order until the pipe ends; all with the error if `prepare` has one."""
    Units.finished = units
    settle()
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
