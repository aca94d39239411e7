"""Memory and processor time of a federation's processes and of their workers, as Linux counts them."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from treetap.usage import Usage, measure_process


class Watched:
    """Largest resident memory (VmHWM) and processor seconds of processes and what they start, read every `every_s`.

    Attributes:
        used: by process, "NAME", "NAME fork server" or "NAME worker K".
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
            for process, number in {name: pid, **started_by(name, pid)}.items():
                used = measure_process(number)
                if used.peak_rss_mb:  # zero of one that has just ended
                    self.used[process] = used
        self.by_phase[phase] = {name: each.peak_rss_mb for name, each in self.used.items()}
        self.loads.append(os.getloadavg()[0])

    def _watch(self) -> None:
        while not self._ended.wait(self._every_s):
            self.read()


def started_by(name: str, pid: int) -> dict[str, int]:
    """The process ids of a party's fork server and of its workers, by their names, in the order of their start."""
    servers = [child for child in _children(pid) if b"treetap.process.forking" in _command(child)]
    workers = enumerate(worker for server in servers for worker in _children(server))
    return {
        **{f"{name} fork server": server for server in servers},
        **{f"{name} worker {k}": pid for k, pid in workers},
    }


def _children(pid: int) -> list[int]:
    """Child processes in the order of their start."""
    tasks = Path(f"/proc/{pid}/task")
    try:
        return sorted(int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split())
    except OSError:
        return []


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
