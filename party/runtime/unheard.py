"""Work that continues after its caller has gone: a failure that no caller receives is logged."""

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
    """Log the error of a task that no caller waits for any more; an unforeseen one with its traceback."""

    def ended(task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None or _heard.get(task, 0):
            return
        if isinstance(error, TreetapError):
            log.warning("%s failed after its caller had gone: %s: %s", what, type(error).__name__, error)
        else:
            log.error("%s met a defect after its caller had gone", what, exc_info=error)

    task.add_done_callback(ended)
