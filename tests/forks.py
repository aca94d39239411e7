"""Processes that a fork server makes: commands, and the servers of federations, without their second of imports.

One fork server serves a whole run of tests: the process that controls pytest-xdist starts it and names its address to
all workers; forked processes know it too. A run without workers starts it when it is first used. `tests.prepared` is
what forked processes do.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from multiprocessing import forkserver, reduction, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import IO, Any

CONTEXT: ForkServerContext = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.preloaded"])
_server: Any = forkserver._forkserver


def start_server() -> str:
    """The fork server's address; it is started, and imports while this process goes on, unless there is one."""
    _server.ensure_running()
    return str(_server._forkserver_address)


def use_server(address: str) -> None:
    """Have this process ask the fork server at an address, which another one started."""
    # It is given a descriptor as the sign of a client's life; this server's life is that of who started it.
    _server._forkserver_address = address
    _server._forkserver_alive_fd = os.open(os.devnull, os.O_RDONLY)
    _server.ensure_running = resource_tracker.ensure_running


def fork_federations(address: str) -> None:
    """Have this process fork the processes of all federations that it starts, by the server at an address."""
    from treetap.lab import local_federation

    use_server(address)
    local_federation.begin = begin


def fork_all() -> None:
    """Have this process, which was forked, fork federations' processes and its workers by the server that made it."""
    fork_federations(_server._forkserver_address)
    multiprocessing.current_process().daemon = False  # it may have children
    from treetap.process.fork_server import ForkServer

    for name, way in (("begin", _leave), ("fork", _fork_child), ("close", _leave)):
        setattr(ForkServer, name, way)


def _leave(_server: object) -> None:
    """Begin and end no server: the one of these tests is there."""


def _fork_child(_server: object, target: Callable[..., None], args: tuple[Any, ...]) -> ForkedChild:
    """`ForkServer.fork`, with the environment and the streams of this process."""
    from tests import prepared

    near, far = multiprocessing.Pipe()
    streams = [Descriptor(each) for each in range(3)]
    about = (target, far, args, os.getcwd(), dict(os.environ), streams)
    process = CONTEXT.Process(target=prepared.child, args=about, daemon=True)
    process.start()
    far.close()
    return ForkedChild(process, near)


class ForkedChild:
    """What a party uses of `treetap.process.fork_server.Child`."""

    fate = refusal = ""
    answered = True

    def __init__(self, process: BaseProcess, pipe: Connection) -> None:
        self._process, self.pipe = process, pipe
        self.pid = process.pid or 0

    @property
    def exitcode(self) -> int | None:
        """As `Child.exitcode`."""
        return self._process.exitcode

    def ended(self, patience_s: float = 0.0) -> bool:
        """As `Child.ended`."""
        self._process.join(patience_s)
        return self._process.exitcode is not None

    def kill(self) -> None:
        """As `Child.kill`."""
        self._process.kill()

    def end(self) -> None:
        """As `Child.end`."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def begin(words: Sequence[str], log: IO[bytes]) -> Forked:
    """`local_federation.begin`, forked."""
    return Forked(words, log)


class Forked:
    """A forked server process, with what a federation uses of `subprocess.Popen`."""

    def __init__(self, words: Sequence[str], log: IO[bytes]) -> None:
        from tests import prepared

        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        streams = [Descriptor(each) for each in (theirs_in, theirs_out, log.fileno())]
        about = (list(words), os.getcwd(), dict(os.environ), streams)
        # daemons are ended with this process, should a test leave one
        self._process = CONTEXT.Process(target=prepared.server, args=about, daemon=True)
        self._process.start()
        os.close(theirs_in)
        os.close(theirs_out)
        self.stdin, self.stdout = io.FileIO(ours_in, "wb"), io.FileIO(ours_out, "rb")
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status, or less than 0: the signal that ended it; None as long as it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The same."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status once it has ended.

        Raises:
            TimeoutExpired: it runs after `timeout` seconds.
        """
        self._process.join(timeout)
        if self._process.exitcode is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("treetap", timeout)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Descriptor:
    """An open descriptor that travels to a forked process, where it is a number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _received, (reduction.DupFd(self._number),)


def _received(travelled: Any) -> int:
    return int(travelled.detach())
