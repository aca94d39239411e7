"""Detection of silence: a worker process, or a thread at the file system, that shows no sign of life."""

from __future__ import annotations

from collections.abc import Callable

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
