"""Memory that a party shares with the process that speaks to the cluster: one row per worker, read without waiting."""

from __future__ import annotations

import ctypes
from typing import Any

from treetap.process.children import SPAWN
from treetap.usage import Usage

#: Bytes of a text.
TEXT = 1000


class Row(ctypes.Structure):
    """The last that is known of a worker.

    `life`: number of its present incarnation, by which what is written about an earlier one is not taken for it.
    `lost`: number of the last incarnation that was lost; `why`: how.
    """

    _fields_ = (
        ("life", ctypes.c_uint64),
        ("lost", ctypes.c_uint64),
        ("units", ctypes.c_uint64),
        ("peak_rss_mb", ctypes.c_double),
        ("cpu_seconds", ctypes.c_double),
        ("why", ctypes.c_char * TEXT),
    )


class Board:
    """The rows, to be handed to a spawned process."""

    def __init__(self, workers: int) -> None:
        self._rows: Any = SPAWN.RawArray(Row, workers)

    def begin(self, worker: int, life: int) -> None:
        """Note that an incarnation begins."""
        row = self._rows[worker]
        row.life, row.units, row.peak_rss_mb, row.cpu_seconds = life, 0, 0.0, 0.0

    def beat(self, worker: int, life: int, units: int, used: Usage) -> None:
        """Note a sign of life, and what the worker has used so far."""
        row = self._rows[worker]
        if row.life == life:
            row.units, row.peak_rss_mb, row.cpu_seconds = units, used.peak_rss_mb, used.cpu_seconds

    def lose(self, worker: int, life: int, why: str) -> None:
        """Note that an incarnation was lost."""
        row = self._rows[worker]
        row.why = why.encode()[: TEXT - 1]
        row.lost = life

    def units(self, worker: int) -> int:
        """Units of work that the present incarnation has finished."""
        return int(self._rows[worker].units)

    def loss(self, worker: int, life: int) -> str | None:
        """Description of how an incarnation was lost; None if it was not."""
        row = self._rows[worker]
        return row.why.decode(errors="ignore") if row.lost == life else None

    def usage(self) -> list[Usage]:
        """Memory and time that each worker has used."""
        return [Usage(row.peak_rss_mb, row.cpu_seconds) for row in self._rows]
