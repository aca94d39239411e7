"""Memory and processor time of a federation's processes, as Linux counts them."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Self

from treetap.usage import Usage, measure_process


class Watched:
    """Largest resident memory (VmHWM) and processor seconds of processes, read every `every_s`.

    Attributes:
        used: by process.
        by_phase: each process's high-water mark in MiB by the end of each phase, under the name of the phase.
        loads: the machine's load average over a minute, at each reading.
    """

    def __init__(self, pids: dict[str, int], every_s: float = 0.5) -> None:
        self._pids, self._every_s = pids, every_s
        self._phase = "start"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.used: dict[str, Usage] = {}
        self.by_phase: dict[str, dict[str, float]] = {}
        self.loads: list[float] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self.read()

    @property
    def largest_mib(self) -> float:
        """The largest process's peak."""
        return max((each.peak_rss_mb for each in self.used.values()), default=0.0)

    @property
    def cpu_s(self) -> float:
        """Of all processes."""
        return sum(each.cpu_seconds for each in self.used.values())

    @property
    def load(self) -> float:
        """The mean load average; 2 or less are this training's own processes on two cores."""
        return sum(self.loads) / max(1, len(self.loads))

    def enter(self, phase: str) -> bool:
        """Name what the processes do from now on; True if it is new."""
        before, self._phase = self._phase, phase
        return phase != before

    def read(self) -> None:
        """Read all processes once."""
        phase = self._phase
        for name, pid in self._pids.items():
            used = measure_process(pid)
            if used.peak_rss_mb:  # zero of one that has just ended
                self.used[name] = used
        self.by_phase[phase] = {name: each.peak_rss_mb for name, each in self.used.items()}
        self.loads.append(os.getloadavg()[0])

    def _watch(self) -> None:
        while not self._ended.wait(self._every_s):
            self.read()
