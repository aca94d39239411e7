"""Signs of life of a worker process, or of a thread at the file system, and how long none has been shown.

A kernel gives one at the end of each unit of its work, each far shorter than the shortest `silence_s`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

#: How often work is looked at within the time after which it counts as silent.
LOOKS = 8


class SilenceWatch:
    """Measures how long the signs of life of some work have not changed, from its own creation on.

    `signs`: what changes as the work goes on. `clock`: seconds, such as an event loop's `time`.
    """

    def __init__(self, signs: Callable[[], object], clock: Callable[[], float]) -> None:
        self._signs, self._clock = signs, clock
        self._seen, self._since = signs(), clock()

    def silent_s(self) -> float:
        """Compare the signs with those of the last call; returns the seconds since they were seen to change."""
        now, signs = self._clock(), self._signs()
        if signs != self._seen:
            self._seen, self._since = signs, now
        return now - self._since


class Units:
    """The number of units that this process has finished; a worker shares it with its parent."""

    finished: Any = ctypes.c_uint64(0)


def finish_unit() -> None:
    """Mark the end of a unit of work: a sign of life of this worker."""
    Units.finished.value += 1
