"""Slow functions off the event loop, in threads; a thread that the file system blocks is abandoned.

No process can end a thread that waits in the kernel for a disk or a server that does not answer. Its step ends after
`silence_s`, by name; the thread is a daemon, so that the process leaves at SIGTERM without it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import TypeVar

from treetap.errors import Interrupted
from treetap.process.silence import LOOKS, SilenceWatch

T = TypeVar("T")


class Threads:
    """`Offload` in a thread per function; `silence_s`: seconds without running after which a thread counts as stuck."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s

    async def __call__(self, work: Callable[[], T]) -> T:
        """The result of `work()`.

        Raises:
            Interrupted: the thread waits for the file system, and it has not run for `silence_s`.
            Exception: whatever `work` raises.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()
        number = 0
        context = copy_context()

        def settle(how: Callable[[], None]) -> None:
            if not outcome.done():  # its caller may be gone
                how()

        def run() -> None:
            nonlocal number
            number = threading.get_native_id()
            try:
                found = context.run(work)
            except BaseException as error:  # noqa: BLE001 - it is raised in the caller
                failure = error
                ended = lambda: settle(lambda: outcome.set_exception(failure))  # noqa: E731
            else:
                ended = lambda: settle(lambda: outcome.set_result(found))  # noqa: E731
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(ended)

        threading.Thread(target=run, name="offload", daemon=True).start()
        watch = SilenceWatch(lambda: _run_time(number), loop.time)
        while not (await asyncio.wait({outcome}, timeout=self._silence_s / LOOKS))[0]:
            if watch.silent_s() >= self._silence_s:
                raise Interrupted(
                    f"a file operation has not ended for {self._silence_s:g} s: is the disk, or the server that holds "
                    "the files, there? restart this party when it is"
                )
        return outcome.result()


def _run_time(thread: int) -> str:
    """The system's count of a thread's time on a processor and of its runs; empty for a thread that has ended."""
    with suppress(OSError):
        return Path(f"/proc/self/task/{thread}/schedstat").read_text()
    return ""
