"""Units of work within a kernel, each far shorter than the shortest `silence_s`; the end of one is a sign of life."""

from __future__ import annotations

import ctypes
from typing import Any


class Units:
    """The number of units that this process has finished; a worker shares it with its parent."""

    finished: Any = ctypes.c_uint64(0)


def finish_unit() -> None:
    """Mark the end of a unit of work: a sign of life of this worker."""
    Units.finished.value += 1
