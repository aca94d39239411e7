"""Types of arrays of numbers, of any shape; docstrings say which."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint64]
#: Numbers of records.
Rows = Ints
