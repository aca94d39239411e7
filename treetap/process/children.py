"""Child processes of this one: spawned, or forked from a server that was; deaf to Ctrl-C; gone when their parent is.

A process that is forked from the server starts in a hundredth of a second, with no memory of this one: the server has
imported what it needs. Unlike those of `multiprocessing`, it does not import `__main__`, which may be a script that
would begin once more.
"""

from __future__ import annotations

import io
import multiprocessing.spawn
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import context, forkserver, popen_forkserver, reduction, util
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

from treetap.process.limits import keep_memory_private

SPAWN = multiprocessing.get_context("spawn")
_MAIN = ("init_main_from_name", "init_main_from_path")


def spawn(target: Callable[..., None], args: tuple[Any, ...], name: str) -> BaseProcess:
    """Start a process that runs `target(*args)`, which has to call `settle` first."""
    process: BaseProcess = SPAWN.Process(target=target, args=args, name=name, daemon=True)
    # A Ctrl-C while a child boots must not kill it: a blocked signal stays blocked across the spawn.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return process


def settle() -> None:
    """Make this process a child that its parent ends: it ignores Ctrl-C, is not dumped, and ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_memory_private()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def end(process: BaseProcess) -> None:
    """Kill a child, and wait until it is gone."""
    process.kill()  # a suspended process would not hear SIGTERM
    process.join()


def _end_with_parent() -> None:
    """Leave at once when the parent is gone, killed or not; a worker in a long kernel would not notice its pipe."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


class _Launch(popen_forkserver.Popen):
    """The start of a process by the fork server."""

    def _launch(self, process: Any) -> None:
        about = {
            key: told
            for key, told in multiprocessing.spawn.get_preparation_data(process.name).items()
            if key not in _MAIN
        }
        content = io.BytesIO()
        context.set_spawning_popen(self)
        try:
            reduction.dump(about, content)
            reduction.dump(process, content)
        finally:
            context.set_spawning_popen(None)
        passed: list[int] = self._fds  # type: ignore[attr-defined]
        self.sentinel, theirs = forkserver.connect_to_new_process(passed)
        life = os.dup(theirs)  # the process ends when this is closed: see `settle`
        self.finalizer = util.Finalize(self, _close, (life, self.sentinel))
        with open(theirs, "wb") as pipe:
            pipe.write(content.getbuffer())
        self.pid = forkserver.read_signed(self.sentinel)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class _Process(context.ForkServerProcess):
    @staticmethod
    def _Popen(process: BaseProcess) -> _Launch:
        return _Launch(process)


def fork_clean(target: Callable[..., None], args: tuple[Any, ...], name: str) -> BaseProcess:
    """Start a process that runs `target(*args)`, which has to call `settle` first.

    The server imports the target's module when the first process starts it.
    """
    forkserver.set_forkserver_preload([target.__module__])
    process = _Process(target=target, args=args, name=name, daemon=True)
    process.start()
    return process
