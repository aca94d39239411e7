"""A fork server from inside, and the beginning of its children: `treetap.process.fork_server` starts it.

It has one thread, which it counts before each fork; it reads no message but requests, which name descriptors alone, and
draws from no generator. A child begins with generators of its own: those of Python and numpy are seeded again after the
fork, the others ask the system for each value or notice the fork themselves.

A child may get a socket of its own, by which it asks this server in its turn: its children are the server's, and are
killed when it ends.
"""

from __future__ import annotations

import atexit
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

from treetap import logs
from treetap.process.limits import end_with, keep_memory_private, leave_to_parent

#: A server's words on a child: it was forked (its process id), has ended (its status), is refused (why), failed (why).
FORKED, ENDED, REFUSED, FAILED = "forked", "ended", "refused", "failed"
#: Requests: a child, and a child that may ask for others.
PLAIN, ASKING = b"p", b"a"
#: In a child that may ask, its socket to the server; in all other processes None.
above: socket.socket | None = None


def serve(control: int, modules: Sequence[str]) -> NoReturn:
    """A server's life: import, then fork a child for every request until the party closes the control socket."""
    leave_to_parent()  # its children inherit that, and the next
    keep_memory_private()
    logs.pin_libraries()
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
    """The sockets of requests, and the children that run, each with the pipe for words on it and who asked for it."""

    def __init__(self, requests: socket.socket) -> None:
        self._first, self._clients = requests.fileno(), {requests.fileno(): requests}
        self._running: dict[int, tuple[Connection, int]] = {}
        self._woken, self._wakes = os.pipe()
        self._poll = select.poll()

    def run(self) -> None:
        """Answer requests and tell of ends; kill the children of each client that has gone, all with the first."""
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wakes, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        for number in (self._first, self._woken):
            self._poll.register(number, select.POLLIN)
        while self._first in self._clients:
            ready = [number for number, _ in self._poll.poll()]
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._tell_of_ends()
            for client in self._clients.keys() & ready:
                self._hear(client)
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _hear(self, client: int) -> None:
        """Answer a client's request; where it has gone, kill its children."""
        word, descriptors, *_ = socket.recv_fds(self._clients[client], 1, 2)
        if word:
            self._answer(client, *descriptors, asking=word == ASKING)
            return
        self._poll.unregister(client)
        self._clients.pop(client).close()
        for pid, (_, parent) in self._running.items():
            if parent == client:
                os.kill(pid, signal.SIGKILL)

    def _answer(self, client: int, status: int, pipe: int, *, asking: bool) -> None:
        """Fork a child that gets this pipe, and a socket for requests if it is `asking`; tell its status."""
        told, server = Connection(status, readable=False), os.getpid()
        near, far = socket.socketpair()
        unfit = why_unfit()
        try:
            pid = -1 if unfit else os.fork()
        except OSError as failure:
            pid, kind, said = -1, FAILED, failure.strerror or str(failure)
        else:
            kind, said = (REFUSED, unfit) if unfit else (FORKED, str(pid))
        if pid == 0:
            self._forget(told, near)
            if not asking:
                far.close()
            _begin(server, pipe, far if asking else None)
        _tell(told, kind, said)
        if pid > 0:
            self._running[pid] = told, client
        else:
            told.close()
        os.close(pipe)
        far.close()
        self._clients[near.fileno()] = near  # which ends at once unless there is a child that may ask
        self._poll.register(near, select.POLLIN)

    def _forget(self, *more: Connection | socket.socket) -> None:
        """Close, in a new child, what is the server's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self._woken)
        os.close(self._wakes)
        for end in (*more, *self._clients.values(), *(told for told, _ in self._running.values())):
            end.close()

    def _tell_of_ends(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            told, _ = self._running.pop(pid)
            with told:
                _tell(told, ENDED, str(os.waitstatus_to_exitcode(status)))


def _tell(told: Connection, kind: str, said: str) -> None:
    with suppress(OSError):  # the party no longer asks
        told.send_bytes(f"{kind} {said}".encode())


def _begin(server: int, pipe: int, asks: socket.socket | None) -> NoReturn:
    """A child's life: what its pipe says first. Its status is a program's, and it ends as one."""
    global above
    status, above = 1, asks
    try:
        end_with(server)
        # draw again what libraries drew when they were imported; treetap uses neither
        multiprocessing.current_process().authkey = os.urandom(32)
        if (numbers := sys.modules.get("numpy.random")) is not None:
            numbers.seed()  # of its functions, which share one generator
        with Connection(pipe) as connection:
            try:
                about, call = (connection.recv_bytes() for _ in range(2))
            except (EOFError, ConnectionError):  # the party has no use for it any more
                os._exit(0)
            sys.path[:], environment = pickle.loads(about)  # noqa: S301 - the party's
            os.environ.clear()
            os.environ.update(environment)
            target, args = pickle.loads(call)  # noqa: S301
            target(connection, *args)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - it is shown as at the end of a program
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(Exception):
            threading._shutdown()  # type: ignore[attr-defined] # wait for its threads
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
