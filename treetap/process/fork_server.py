"""A fork server as its party sees it, and the children that it forks: they start in a hundredth of a second.

The server is a program of its own, started by exec: it has this process's environment and nothing of its memory. It
imports modules and forks on request (`treetap.process.forking` is its side). A request names descriptors alone: what a
child does, and all that it is given, reaches it by its own pipe after the fork.
"""

from __future__ import annotations

import atexit
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from treetap.process.forking import ENDED, FAILED, FORKED, REFUSED
from treetap.process.limits import OF_PARENT

log = logging.getLogger(__name__)
#: Seconds within which a server has started and answers a request.
BOOT_S = 30.0
#: Seconds within which a child that was killed is gone.
GONE_S = 5.0
#: Libraries that a server imports start no thread of their own: linear algebra, and pyarrow's allocator.
ONE_THREAD = {
    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"),
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


class Child:
    """A process that a server forks.

    Attributes:
        pipe: to the child; it ends when the child does.
        refusal: why the server forks none; empty if it does.
    """

    def __init__(self, server: subprocess.Popen[bytes], pipe: Connection, status: Connection) -> None:
        self._server, self.pipe, self._status = server, pipe, status
        self._taking = threading.Lock()
        self._ended = False
        self.pid = 0  #: 0 until the server has forked it
        self.exitcode: int | None = None  #: status, or less than 0: a signal; None as long as it runs, or if unknown
        self.refusal, self._failure = "", ""

    @property
    def answered(self) -> bool:
        """True if the server has forked it, or said why not; never waits."""
        return self.ended() or self.pid > 0

    @property
    def fate(self) -> str:
        """How it ended otherwise than by itself or by a signal: because of the server. Else empty."""
        if not self._ended or self.exitcode is not None:
            return ""
        if self.refusal or self._failure:
            return self.refusal or f"it could not be forked: {self._failure}"
        with suppress(subprocess.TimeoutExpired):
            self._server.wait(1.0)  # its pipes may be gone a moment before it is
        code = self._server.returncode or 0
        how = f"by signal {-code}" if code < 0 else f"with status {code}"
        return f"the fork server ({self._server.pid}) ended {how}"

    def ended(self, patience_s: float = 0.0) -> bool:
        """True if it has ended, or was never forked, by the end of so many seconds."""
        until = time.monotonic() + patience_s
        while not self._ended and self._take(until - time.monotonic()):
            pass
        return self._ended

    def kill(self) -> None:
        """End it at once; one that is not forked yet ends as soon as it is. Never waits."""
        if not self.answered:
            with suppress(OSError), socket.socket(fileno=os.dup(self.pipe.fileno())) as near:  # unless it is closed
                near.shutdown(socket.SHUT_RDWR)
        elif not self._ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it, wait until it is gone, and close the pipe."""
        self.kill()
        if self.answered and not self.ended(GONE_S):
            log.warning("process %d was killed and has not been seen to end", self.pid)
        self.pipe.close()

    def fail(self, why: str) -> None:
        """Note that it will never be forked."""
        with self._taking:
            self._hear(FAILED, why)

    def _take(self, patience_s: float) -> bool:
        """Wait for the server's next word on this child; False if there is none by then."""
        if not wait([self._status], max(0.0, patience_s)):
            return False
        with self._taking:
            if not self._ended and self._status.poll():
                try:
                    kind, _, said = self._status.recv_bytes().decode().partition(" ")
                except (EOFError, OSError):  # the server has ended, and its children with it
                    kind, said = "", ""
                self._hear(kind, said)
        return True

    def _hear(self, kind: str, said: str) -> None:
        if kind == FORKED:
            self.pid = int(said)
            return
        if kind == ENDED:
            self.exitcode = int(said)
        elif kind == REFUSED:
            self.refusal = said
        elif kind == FAILED:
            self._failure = said
        self._ended = True


class ForkServer:
    """A server, from its start to its close; it is started again when it has ended, or does not answer."""

    def __init__(self, modules: Sequence[str]) -> None:
        """`modules`: what it imports before it forks; what it cannot import is left to the child that needs it."""
        self._modules = list(modules)
        self._change = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._asked: list[tuple[float, Child]] = []
        self._silent: list[tuple[subprocess.Popen[bytes], socket.socket]] = []

    @property
    def begun(self) -> bool:
        """True from its start to its close."""
        return self._process is not None

    def begin(self) -> None:
        """Start it unless it runs; its imports are not waited for."""
        with self._change:
            self._running()

    def fork(self, target: Callable[..., None], args: tuple[Any, ...]) -> Child:
        """Have a child run `target(pipe, *args)`, a function of a module, and not of a script that is run.

        Its start is not waited for.
        """
        messages = [pickle.dumps(message) for message in (sys.path, (target, args))]
        near, far = Pipe()
        status, theirs = Pipe(duplex=False)
        with far, theirs, self._change:
            process, control = self._running()
            child = Child(process, near, status)
            try:
                socket.send_fds(control, [b"f"], [theirs.fileno(), far.fileno()])
            except ConnectionError:  # the server has ended just now, which the child's pipes say
                pass
            except OSError as failure:  # too many descriptors are under way
                child.fail(failure.strerror or str(failure))
            self._asked.append((time.monotonic(), child))
        with suppress(OSError):  # there is no child
            for message in messages:
                child.pipe.send_bytes(message)
        return child

    def close(self) -> None:
        """End it, with those of its children that still run."""
        with self._change:
            for process, control in self._silent:
                _end(process, control)
            self._silent = []
            if self._process is not None:
                self._stop()
            atexit.unregister(self.close)

    def _running(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        """The server's process and the socket to it; a new one where it has ended or hangs."""
        self._asked = [(since, child) for since, child in self._asked if not child.answered]
        late = bool(self._asked) and time.monotonic() - self._asked[0][0] > BOOT_S
        if self._process is not None and self._control is not None:
            if self._process.poll() is not None:
                log.warning("the fork server (%d) has ended: another one is started", self._process.pid)
                self._stop()
            elif late:  # children of it run on, which would end with it
                why = f"the fork server ({self._process.pid}) has not answered for {BOOT_S:g} s"
                log.warning("%s: another one is started", why)
                for _, child in self._asked:
                    child.fail(why)
                self._silent.append((self._process, self._control))
                self._process, self._control, self._asked = None, None, []
        if self._process is None or self._control is None:
            self._process, self._control = _started(self._modules)
            atexit.register(self.close)
        return self._process, self._control

    def _stop(self) -> None:
        assert self._process is not None
        assert self._control is not None
        _end(self._process, self._control)
        self._process = self._control = None
        self._asked = []


def _end(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    """Kill a server, and with it its children."""
    process.kill()
    process.wait()
    control.close()


def _started(modules: list[str]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A server that imports from where this process does, and its control socket."""
    path = [entry or os.getcwd() for entry in sys.path]
    near, far = socket.socketpair()
    code = (
        f"import sys; sys.path[:] = {path!r}; from treetap.process.forking import serve; "
        f"serve({far.fileno()}, {modules!r})"
    )
    # A Ctrl-C while it boots must not kill it: a blocked signal stays blocked across the exec.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, OF_PARENT)
    try:
        with far:
            process = subprocess.Popen(  # noqa: S603 - this interpreter
                [sys.executable, *subprocess._args_from_interpreter_flags(), "-c", code],  # type: ignore[attr-defined]
                stdin=subprocess.DEVNULL,
                env={**os.environ, **ONE_THREAD},
                pass_fds=[far.fileno()],
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return process, near
