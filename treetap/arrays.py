"""Types of arrays, by what they hold."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: Flags.
Bools = npt.NDArray[np.bool_]
#: Figures.
Floats = npt.NDArray[np.float64]
#: Numbers of records, classes, columns and nodes, and counts.
Ints = npt.NDArray[np.int64]
#: Figures of 32 bits.
Singles = npt.NDArray[np.float32]
