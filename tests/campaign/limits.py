"""Bounds of the processor time and the memory that a piece of code under test may use."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
#: CPU seconds that work has to end when it was cancelled, before it is stopped wherever it is.
TO_END_S = 2.0


class TooLong(BaseException):
    """The work has used its processor time, and did not end when it was cancelled."""


class Clock:
    """End of the time of `limited`: the work is cancelled, and stopped if it does not end by that.

    Attributes:
        over: whether the time was over.
    """

    def __init__(self) -> None:
        self.over = False
        self._cancel: Callable[[], object] | None = None

    async def timed(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work; `asyncio.CancelledError` when its time is over."""
        task = asyncio.current_task()
        assert task is not None
        self._cancel = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
        try:
            return await work
        finally:
            self._cancel = None

    def strike(self, *_: object) -> None:
        """The time is over, or that to end is."""
        self.over = True
        cancel, self._cancel = self._cancel, None
        if cancel is None:
            raise TooLong
        cancel()


@contextmanager
def limited(clock: Clock, cpu_s: float, most_bytes: int) -> Iterator[None]:
    """Within the block the clock strikes after `cpu_s` seconds of processor time.

    Raises:
        AssertionError: the process grew by more than `most_bytes` meanwhile.
    """
    before = signal.signal(signal.SIGPROF, clock.strike)
    signal.setitimer(signal.ITIMER_PROF, cpu_s, TO_END_S)
    Path("/proc/self/clear_refs").write_text("5")
    grown_from = _peak_bytes()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    grown = _peak_bytes() - grown_from
    assert grown <= most_bytes, f"the process grew by {grown >> 20} MiB"


def _peak_bytes() -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
