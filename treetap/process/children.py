"""Child processes of this one that are spawned: deaf to Ctrl-C; gone when their parent is."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

from treetap.process.limits import OF_PARENT, keep_memory_private, leave_to_parent

SPAWN = multiprocessing.get_context("spawn")


def spawn(target: Callable[..., None], args: tuple[Any, ...], name: str) -> BaseProcess:
    """Start a process that runs `target(*args)`, which has to call `settle` first."""
    process: BaseProcess = SPAWN.Process(target=target, args=args, name=name, daemon=True)
    # A Ctrl-C while a child boots must not kill it: a blocked signal stays blocked across the spawn.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, OF_PARENT)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return process


def settle() -> None:
    """Make this process a child that its parent ends: it ignores Ctrl-C and SIGHUP, is not dumped, and ends with it."""
    leave_to_parent()
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
