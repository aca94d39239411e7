"""Memory and processor time of the calling process."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """Largest resident memory in MB of 2^20 bytes; processor seconds, user and system."""

    peak_rss_mb: float
    cpu_seconds: float


def measure() -> Usage:
    """What this process has used so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    unit = 1 if sys.platform == "darwin" else 1024
    peak = used.ru_maxrss * unit / 2**20
    status = Path("/proc/self/status")
    if status.is_file():  # getrusage counts the parent's size before exec too, the high-water mark does not
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                peak = int(line.split()[1]) / 1024
    return Usage(peak, used.ru_utime + used.ru_stime)
