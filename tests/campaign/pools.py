"""Processes that carry campaigns out, and a folder for the disks of their schedules."""

from __future__ import annotations

import gc
import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.pool import Pool
from pathlib import Path

from treetap.native import arithmetic


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder in memory, where the system has such a place; it is removed with all that is in it."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@contextmanager
def processes(count: int) -> Iterator[tuple[Pool, Path]]:
    """New processes, and a folder in which their temporary files lie; all are gone after the block."""
    with workplace() as folder:
        pool = multiprocessing.get_context("spawn").Pool(count, _begin, (str(folder),))
        with pool:
            yield pool, folder
        pool.join()  # so that their processor time counts among that of this process's children


def _begin(folder: str) -> None:
    """A process of a pool is ended without its clean-up: what it makes lies in the folder that goes."""
    tempfile.tempdir = folder
    arithmetic.use(arithmetic.choose("auto").name)
    gc.freeze()  # what was imported is garbage never
