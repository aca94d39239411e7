"""A fork server as its client sees it, and the children that it forks: they start in a hundredth of a second.

The server is a program of its own, started by exec: it has this process's environment and nothing of its memory. It
imports modules and forks on request (`treetap.process.forking` is its side). A request names descriptors alone: what a
child does, and all that it is given, reaches it by its own pipe after the fork. A process that a server has forked, and
that may ask for children, has them from the same server.
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

from treetap.process import forking
from treetap.process.forking import ASKING, ENDED, FAILED, FORKED, PLAIN, REFUSED
from treetap.process.limits import OF_PARENT

log = logging.getLogger(__name__)
#: Seconds within which a server has started and answers a request.
BOOT_S = 30.0
#: Seconds within which a child that was killed is gone.
GONE_S = 5.0
#: Libraries that a server imports start no thread of their own: linear algebra, and pyarrow's allocator, which it does
#: without besides, as `share_heaps` says.
ONE_THREAD = {
    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"),
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}


class Child:
    """A process that a server forks.

    Attributes:
        pipe: to the child; it ends when the child does.
        refusal: why the server forks none; empty if it does.
    """

    def __init__(self, server: subprocess.Popen[bytes] | None, pipe: Connection, status: Connection) -> None:
        self._server, self.pipe, self._status = server, pipe, status
        self._taking = threading.Lock()
        self._ended = False
        self._pid = 0
        self.exitcode: int | None = None  #: status, or less than 0: a signal; None as long as it runs, or if unknown
        self.refusal, self._failure = "", ""

    @property
    def answered(self) -> bool:
        """True if the server has forked it, or said why not; never waits."""
        return self.ended() or self._pid > 0

    @property
    def pid(self) -> int:
        """Its process id, for which the server's word is waited; 0 if it has not been forked within `BOOT_S`."""
        until = time.monotonic() + BOOT_S
        while not self.answered and self._take(until - time.monotonic()):
            pass
        return self._pid

    @property
    def fate(self) -> str:
        """How it ended otherwise than by itself or by a signal: because of the server. Else empty."""
        if not self._ended or self.exitcode is not None:
            return ""
        if self.refusal or self._failure:
            return self.refusal or f"it could not be forked: {self._failure}"
        if self._server is None:
            return "the fork server has ended"
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
        self.send(signal.SIGKILL)

    def send(self, number: int) -> None:
        """Send it a signal that ends it; one that is not forked yet ends as soon as it is. Never waits."""
        if not self.answered:
            with suppress(OSError), socket.socket(fileno=os.dup(self.pipe.fileno())) as near:  # unless it is closed
                near.shutdown(socket.SHUT_RDWR)
        elif not self._ended:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def end(self) -> None:
        """Kill it, wait until it is gone, and close the pipe."""
        self.kill()
        if self.answered and not self.ended(GONE_S):
            log.warning("process %d was killed and has not been seen to end", self._pid)
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
            self._pid = int(said)
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

    def __init__(self) -> None:
        self._modules: list[str] = []
        self._change = threading.Lock()
        self._server: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._asked: list[tuple[float, Child]] = []

    def begin(self, modules: Sequence[str]) -> None:
        """Start it unless it runs; its imports are not waited for.

        `modules`: what it imports before it forks; what it cannot import is left to the child that needs it.
        """
        with self._change:
            self._modules = self._modules or list(modules)
            self._running()

    def fork(self, target: Callable[..., None], args: tuple[Any, ...], *, asking: bool = False) -> Child:
        """Have a child run `target(pipe, *args)`, a function of a module, and not of a script that is run.

        It has this process's environment, and imports from the same places. Its start is not waited for. A server that
        has not begun imports the module of `target`. `asking`: it may ask the server for children of its own, which end
        with it.
        """
        messages = [pickle.dumps(message) for message in ((sys.path, dict(os.environ)), (target, args))]
        near, far = Pipe()
        status, theirs = Pipe(duplex=False)
        with far, theirs, self._change:
            self._modules = self._modules or [target.__module__]
            process, control = self._running()
            child = Child(process, near, status)
            try:
                socket.send_fds(control, [ASKING if asking else PLAIN], [theirs.fileno(), far.fileno()])
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
            if self._server is not None:
                self._stop()
            atexit.unregister(self.close)

    def _running(self) -> tuple[subprocess.Popen[bytes] | None, socket.socket]:
        """The server's process and the socket to it; a new one where it has ended or hangs.

        In a child of a server that may ask, that server, which it does not outlive.
        """
        if forking.above is not None:
            return None, forking.above
        self._asked = [(since, child) for since, child in self._asked if not child.answered]
        if self._server is not None:
            process, fault = self._server[0], ""
            if process.poll() is not None:
                fault = f"the fork server ({process.pid}) has ended"
            elif self._asked and time.monotonic() - self._asked[0][0] > BOOT_S:
                fault = f"the fork server ({process.pid}) has not answered for {BOOT_S:g} s"
                for _, child in self._asked:
                    child.fail(fault)
            if fault:
                log.warning("%s: another one is started", fault)
                self._stop()
        if self._server is None:
            self._server = _started(self._modules)
            atexit.register(self.close)
        return self._server

    def _stop(self) -> None:
        """Kill the server, and with it its children."""
        assert self._server is not None
        process, control = self._server
        process.kill()
        process.wait()
        control.close()
        self._server, self._asked = None, []


#: That of this process.
FORKS = ForkServer()


def _started(modules: list[str]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A server that imports from where this process does, and its control socket."""
    path = [entry or os.getcwd() for entry in sys.path]
    near, far = socket.socketpair()
    code = (
        f"import sys; sys.path[:] = {path!r}; from treetap.process.forking import serve; "
        f"serve({far.fileno()}, {modules!r})"
    )
    # A Ctrl-C while it boots must not kill it: a blocked signal stays blocked across the exec.
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, OF_PARENT)
    try:
        with far:
            process = subprocess.Popen(  # noqa: S603 - this interpreter
                [sys.executable, *(flag for flag in flags if flag != "-B" or sys.dont_write_bytecode), "-c", code],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **ONE_THREAD},
                pass_fds=[far.fileno()],
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return process, near
