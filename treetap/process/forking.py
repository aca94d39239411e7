"""A fork server from inside, and the beginning of its children: `treetap.process.fork_server` starts it.

It has one thread, which it counts before each fork; it reads no message but requests, which name descriptors alone, and
draws from no generator. A child begins with generators of its own: those of Python and numpy are seeded again after the
fork, the others ask the system for each value or notice the fork themselves.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import pickle
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from treetap.process.limits import end_with, keep_memory_private, leave_to_parent

#: A server's words on a child: it was forked (its process id), has ended (its status), is refused (why), failed (why).
FORKED, ENDED, REFUSED, FAILED = "forked", "ended", "refused", "failed"


def serve(control: int, modules: Sequence[str]) -> NoReturn:
    """A server's life: import, then fork a child for every request until the party closes the control socket."""
    leave_to_parent()  # its children inherit that, and the next
    keep_memory_private()
    preload(modules)
    with socket.socket(fileno=control) as requests:
        _Server(requests).run()
    os._exit(0)


def preload(modules: Sequence[str]) -> None:
    """Import, and keep what exists by then out of garbage collections, which would copy the pages that all share."""
    gc.disable()  # what imports make stays
    for module in modules:
        with suppress(Exception):  # the child that needs it imports it again, and says what it lacks
            importlib.import_module(module)
    gc.freeze()
    gc.enable()


def why_unfit() -> str:
    """Description of the threads for which this process must not fork; empty if it has one."""
    tasks = Path("/proc/self/task")
    if tasks.is_dir():
        names = []
        for task in tasks.iterdir():
            with suppress(OSError):  # it has just ended
                names.append((task / "comm").read_text(errors="replace").strip())
    else:  # not on Linux
        names = [thread.name for thread in threading.enumerate()]
    if len(names) == 1:
        return ""
    return (
        f"the fork server ({os.getpid()}) has {len(names)} threads ({', '.join(names)}), of which a fork would copy "
        "one: no module that it imports may start a thread (a profiler, a sitecustomize?)"
    )


class _Server:
    """The socket of requests, and the children that run, each with the pipe for words on it."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._running: dict[int, Connection] = {}
        self._woken, self._wakes = os.pipe()

    def run(self) -> None:
        """Answer requests and tell of ends; kill all children once the party has gone."""
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wakes, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._requests, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            ready = [number for number, _ in poll.poll()]
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._tell_of_ends()
            if self._requests.fileno() in ready:
                word, descriptors, *_ = socket.recv_fds(self._requests, 1, 2)
                if not word:
                    break
                self._answer(*descriptors)
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _answer(self, status: int, pipe: int) -> None:
        """Fork a child that gets this pipe, and tell its status."""
        told, server = Connection(status, readable=False), os.getpid()
        unfit = why_unfit()
        try:
            pid = -1 if unfit else os.fork()
        except OSError as failure:
            pid, kind, said = -1, FAILED, failure.strerror or str(failure)
        else:
            kind, said = (REFUSED, unfit) if unfit else (FORKED, str(pid))
        if pid == 0:
            self._forget(told)
            _begin(server, pipe)
        _tell(told, kind, said)
        if pid > 0:
            self._running[pid] = told
        else:
            told.close()
        os.close(pipe)

    def _forget(self, told: Connection) -> None:
        """Close, in a new child, what is the server's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self._woken)
        os.close(self._wakes)
        self._requests.close()
        for pipe in (told, *self._running.values()):
            pipe.close()

    def _tell_of_ends(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self._running.pop(pid) as told:
                _tell(told, ENDED, str(os.waitstatus_to_exitcode(status)))


def _tell(told: Connection, kind: str, said: str) -> None:
    with suppress(OSError):  # the party no longer asks
        told.send_bytes(f"{kind} {said}".encode())


def _begin(server: int, pipe: int) -> NoReturn:
    """A child's life: what its pipe says first."""
    status = 1
    try:
        end_with(server)
        # draw again what libraries drew when they were imported; treetap uses neither
        multiprocessing.current_process().authkey = os.urandom(32)
        if (numbers := sys.modules.get("numpy.random")) is not None:
            numbers.seed()  # of its functions, which share one generator
        with Connection(pipe) as connection:
            try:
                path, call = (connection.recv_bytes() for _ in range(2))
            except (EOFError, ConnectionError):  # the party has no use for it any more
                os._exit(0)
            sys.path[:] = pickle.loads(path)  # noqa: S301 - the party's
            target, args = pickle.loads(call)  # noqa: S301
            target(connection, *args)
        status = 0
    except BaseException:  # noqa: BLE001 - it is shown as at the end of a program
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
