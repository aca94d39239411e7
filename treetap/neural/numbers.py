"""Numbers of embeddings and gradients as bytes, and the number of threads that sum them.

As bytes they are float32 or bfloat16, least significant byte first, row by row. Threads of an operation are part of a
job, because sums over another number of threads round differently. PyTorch (OpenMP) keeps the number for each calling
thread, and a new thread begins with the number that any thread of the process has set last. A backward pass on the CPU
runs in the thread that calls it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from treetap.neural.params import NUMBER_BYTES

_NUMPY: dict[str, np.dtype[Any]] = {"float32": np.dtype("<f4"), "bfloat16": np.dtype("<i2")}
_NATIVE: dict[str, np.dtype[Any]] = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(np.int16)}
_TORCH = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def rounded(values: torch.Tensor, wire_type: str) -> torch.Tensor:
    """The values as their reader has them: float32, rounded to the type of the wire."""
    return values.to(_TORCH[wire_type]).to(torch.float32)


def to_bytes(values: torch.Tensor, wire_type: str) -> bytes:
    """The numbers of a tensor (n, width)."""
    plain = values.detach().to(_TORCH[wire_type]).contiguous()
    if wire_type == "bfloat16":
        plain = plain.view(torch.int16)
    return plain.numpy().astype(_NUMPY[wire_type], copy=False).tobytes()


def from_bytes(content: bytes, rows: int, width: int, wire_type: str) -> torch.Tensor:
    """A tensor (rows, width) of float32.

    Raises:
        ValueError: the bytes are more or fewer, or a number is not finite.
    """
    if len(content) != rows * width * NUMBER_BYTES[wire_type]:
        raise ValueError(f"{len(content)} bytes for {rows} × {width} numbers of {wire_type}")
    plain = torch.from_numpy(np.frombuffer(content, dtype=_NUMPY[wire_type]).astype(_NATIVE[wire_type]))
    if wire_type == "bfloat16":
        plain = plain.view(torch.bfloat16)
    values = plain.to(torch.float32).reshape(rows, width)
    if not bool(torch.isfinite(values).all()):
        raise ValueError("a number that is not finite")
    return values


def pin(threads: int) -> None:
    """Have operations of the calling thread use this number of threads: call it first in each piece of work."""
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
