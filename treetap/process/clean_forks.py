"""Processes forked from a server that was spawned: started in a hundredth of a second, with no memory of this one.

The server has imported what the processes need. Unlike those of `multiprocessing`, they do not import `__main__`, which
may be a script that would begin once more.
"""

from __future__ import annotations

import io
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing import context, forkserver, popen_forkserver, reduction, spawn, util
from multiprocessing.process import BaseProcess
from typing import Any

_MAIN = ("init_main_from_name", "init_main_from_path")


class _Launch(popen_forkserver.Popen):
    """The start of a process by the fork server."""

    def _launch(self, process: Any) -> None:
        about = {key: told for key, told in spawn.get_preparation_data(process.name).items() if key not in _MAIN}
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


class _Process(multiprocessing.context.ForkServerProcess):
    @staticmethod
    def _Popen(process: BaseProcess) -> _Launch:
        return _Launch(process)


def fork_clean(target: Callable[..., None], args: tuple[Any, ...], name: str) -> BaseProcess:
    """Start a process that runs `target(*args)`, which has to call `treetap.process.children.settle` first.

    The server imports the target's module when the first process starts it.
    """
    forkserver.set_forkserver_preload([target.__module__])
    process = _Process(target=target, args=args, name=name, daemon=True)
    process.start()
    return process
