"""Memory and processor time of this process and of others.

Signs of life of work in a thread, or on a cluster, and how long none has been shown.

A kernel gives one at the end of each unit of its work, each far shorter than the shortest `silence_s`.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """Largest resident memory in MB of 2^20 bytes; processor seconds, user and system."""

    peak_rss_mb: float
    cpu_seconds: float


def measure() -> Usage:
    """Memory and time that this process has used so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    unit = 1 if sys.platform == "darwin" else 1024
    peak = used.ru_maxrss * unit / 2**20
    # getrusage counts the parent's size before exec too, the high-water mark does not
    return Usage(_high_water(os.getpid()) or peak, used.ru_utime + used.ru_stime)


def measure_process(pid: int) -> Usage:
    """Memory and time that another process has used so far; zero if it has ended. It may be busy."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return Usage(0.0, 0.0)
    user, system = int(fields[11]), int(fields[12])  # proc(5): utime and stime, in clock ticks
    return Usage(_high_water(pid) or 0.0, (user + system) / os.sysconf("SC_CLK_TCK"))


def half_of_memory() -> int:
    """Half of the memory that this process may use, in bytes: the most that one file's content may take up."""
    return memory() // 2


def memory() -> int:
    """The memory that this process may use, in bytes: the machine's, or the limit of its control group."""
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        of_group = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        of_group = ""
    return min(most, int(of_group) if of_group.isdecimal() else most)


def _high_water(pid: int) -> float | None:
    """Largest resident memory in MB, where the system reports it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), None)


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


#: Units of work that each thread of this process has finished, by the thread's number.
FINISHED: Counter[int] = Counter()


def finish_unit() -> None:
    """Mark the end of a unit of work: a sign of life of this thread."""
    FINISHED[threading.get_ident()] += 1


def finished_units() -> int:
    """Those of all threads."""
    return sum(list(FINISHED.values()))  # a copy: a thread that begins may add its number
