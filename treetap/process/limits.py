"""Settings that a process makes for itself: many descriptors, little idle memory, none that others can read."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import resource
import sys
from pathlib import Path

log = logging.getLogger(__name__)
#: File descriptors below which a server may be silenced by connections that do nothing.
ENOUGH_DESCRIPTORS = 8192
#: Heaps that the threads of a server share.
HEAPS = 2
#: Seconds between two looks at this process's memory, and bytes that it may have beyond the fewest it had.
TRIM_S, GROWN = 5.0, 64 * 1024 * 1024
_PR_SET_DUMPABLE = 4  # <linux/prctl.h>
_M_ARENA_MAX = -8  # <malloc.h>


def raise_descriptors() -> None:
    """Raise this process's limit of file descriptors to the highest that it may have; a low one is warned of."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError) as failure:  # macOS has a lower limit than it tells
        log.warning("the limit of file descriptors stays as it is: %s", failure)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < ENOUGH_DESCRIPTORS:
        log.warning(
            "this process may open %d files and connections: raise its hard limit to %d or more (ulimit -Hn, "
            "LimitNOFILE=, ulimits: nofile), or connections that do nothing can keep its callers out",
            limit,
            ENOUGH_DESCRIPTORS,
        )


def share_heaps() -> None:
    """Let all threads share few heaps (glibc); before any thread runs.

    By default there may be eight for each processor, each as large as the largest flood of messages once made it.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_M_ARENA_MAX, HEAPS)


async def give_memory_back() -> None:
    """Return freed memory to the system while this process is larger than it was, until it is cancelled (glibc).

    What a flood of connections was freed of lies between what is still used, and glibc keeps it for good.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None or sys.platform != "linux":
        return
    least = _resident()
    while True:
        await asyncio.sleep(TRIM_S)
        if _resident() > least + GROWN:
            await asyncio.to_thread(trim, 0)
        least = min(least, _resident())


def _resident() -> int:
    """Bytes of this process in memory (Linux)."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize()


def keep_memory_private() -> None:
    """Forbid core dumps of this process, which could hold keys, and debuggers of the same user (Linux).

    A limit alone does not stop the system from handing a dump to a program. Processes started by this one inherit the
    limit only.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
            log.warning("the memory of this process may be dumped: %s", os.strerror(ctypes.get_errno()))
