"""Work that goes on after its caller has gone: its failure is logged where nobody hears it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from treetap.errors import TreetapError

log = logging.getLogger(__name__)
#: Task → the number of callers that wait for it, or have got its result or error.
_heard: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()


@contextmanager
def hearing(task: asyncio.Task[Any]) -> Iterator[None]:
    """Within the block a caller waits for the task; the block ends without an error once it has ended."""
    _heard[task] = _heard.get(task, 0) + 1
    try:
        yield
    except BaseException:  # the caller has gone
        _heard[task] -= 1
        raise


def log_unheard(task: asyncio.Task[Any], what: str) -> None:
    """Log the task's error, if it ends with one while nobody waits for it; an unforeseen one with its traceback."""

    def ended(task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None or _heard.get(task, 0):
            return
        if isinstance(error, TreetapError):
            log.warning("%s failed, and nobody waits for it any more: %s: %s", what, type(error).__name__, error)
        else:
            log.error("%s met a defect, and nobody waits for it any more", what, exc_info=error)

    task.add_done_callback(ended)
