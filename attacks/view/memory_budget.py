"""Limit on the memory that one transcript takes once it is read: a small file can describe sets of any size."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treetap.errors import BadInput
from treetap.usage import half_of_memory

_SETS = 16  # sets of all records that must fit


class MemoryBudget:
    """Counts the bytes that are kept of a transcript. `limit`: in bytes, by default half of this machine's memory."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = self._left = half_of_memory() if limit is None else limit

    def take(self, size: int) -> None:
        """Count `size` bytes that are kept, below 0 that are released. Raises BadInput above the limit."""
        self._left -= size
        if self._left < 0:
            raise BadInput(f"its records take up more than {self._limit >> 20} MiB, half of this machine's memory")

    def rows(self, total: int) -> npt.NDArray[np.int64]:
        """The positions of all records, (total,). Raises BadInput for more than this machine could read a tree of."""
        if 8 * _SETS * total > self._limit:
            raise BadInput(f"its sets are of {total} records, too many for this machine's memory")
        return np.arange(total, dtype=np.int64)
