"""Threads of an operation: part of a job, because sums over another number of threads round differently."""

from __future__ import annotations

import torch


def pin(threads: int) -> None:
    """Have operations of the calling thread use this number of threads: first in each piece of work on a thread."""
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
