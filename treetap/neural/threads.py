"""Threads of an operation: part of a job, because sums over another number of threads round differently.

PyTorch (OpenMP) keeps the number for each calling thread, and a new thread begins with the number that any thread of
the process has set last. A backward pass on the CPU runs in the thread that calls it.
"""

from __future__ import annotations

import torch


def pin(threads: int) -> None:
    """Have operations of the calling thread use this number of threads: call it first in each piece of work."""
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
