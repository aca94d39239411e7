"""Settings that a process makes for itself: many descriptors, little idle memory, none that others can read."""

from __future__ import annotations

import ctypes
import gc
import importlib
import logging
import os
import resource
import signal
import sys
from typing import IO

log = logging.getLogger(__name__)
#: File descriptors below which a server may be silenced by connections that do nothing.
ENOUGH_DESCRIPTORS = 8192
#: Heaps that the threads of a server share.
HEAPS = 2
#: Freed bytes at the end of a heap that stay there for the next messages, which are of a megabyte and copied a few
#: times each; blocks below the largest that glibc allows come from heaps.
KEPT, LARGEST_BLOCK = 64 * 1024 * 1024, 32 * 1024 * 1024
#: Seconds between two looks at this process's memory, and bytes that it may have beyond the fewest it had.
TRIM_S, GROWN = 5.0, 64 * 1024 * 1024
#: Bytes that returning memory has to gain; after less the pause doubles, up to this many seconds.
WORTH, LONGEST_PAUSE_S = 16 * 1024 * 1024, 60.0
#: Objects that may be made, less those freed, before the youngest are looked through for garbage.
NEW_OBJECTS = 50_000
#: The same while a command is imported: what imports make stays, and a tenth of a start went into looking through it.
IMPORTED = 200_000
_BEFORE = gc.get_threshold()
#: Seconds after which nothing under way holds what has ended.
LET_GO_S = 1.0
#: Signals to a process that its children leave to it, by which they end too: Ctrl-C, and a party's reading anew.
OF_PARENT = (signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME = 1, 4, 15  # <linux/prctl.h>
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # <malloc.h>


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


def leave_to_parent() -> None:
    """Ignore the signals of `OF_PARENT` in this process and its children: a whole process group may get them."""
    for number in OF_PARENT:
        signal.signal(number, signal.SIG_IGN)


def heed_signals() -> None:
    """Take the signals of `OF_PARENT` as a program that has been started does, in a process of a parent's."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_PARENT)


def name_process(name: str) -> None:
    """Have `ps -e` and `top` show the first 15 bytes of a name for this process (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def hold_hangup() -> bool:
    """Hold SIGHUP back in this thread and those that it starts, until a server listens: unheard, it ends a process.

    Call it first; `serve_until_stopped` lets it go. True if this process was started in a terminal that is still open,
    and not under nohup.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP,))
    return signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and has_terminal()


def has_terminal() -> bool:
    """True if this process was started in a terminal that is still open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def leave_out_pandas() -> None:
    """Have pyarrow go without pandas in this process, which uses none: it imports it wherever it is installed."""
    sys.meta_path.insert(0, _WithoutPandas())


class _WithoutPandas:
    """A finder by which an import of pandas fails as if it were not installed."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("this process goes without pandas", name=name)


def import_numpy() -> None:
    """Import NumPy with one thread for its linear algebra, unless the environment says how many; before another does.

    By default it starts one for each processor, which waits in a loop at first: on two, that doubles the import's
    time, and a server computes with none of them. What is imported afterwards, PyTorch too, finds the environment as
    it was.
    """
    if "OPENBLAS_NUM_THREADS" in os.environ:
        return
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        importlib.import_module("numpy")
    finally:
        del os.environ["OPENBLAS_NUM_THREADS"]


def share_heaps() -> None:
    """Let all threads share few heaps, which keep some of what is freed (glibc); before any thread runs.

    By default there may be eight for each processor, each as large as the largest flood of messages once made it; and
    each copy of a message begins with memory that the system has to clear, which takes longer than the copy. So do
    Arrow's own heaps, with two megabytes for each size of block: it is told to use these.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # which Arrow reads when it is imported
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_M_ARENA_MAX, HEAPS)
        mallopt(_M_MMAP_THRESHOLD, LARGEST_BLOCK)
        mallopt(_M_TRIM_THRESHOLD, KEPT)


def while_importing() -> None:
    """Look for garbage hardly ever, until `imported`."""
    gc.set_threshold(IMPORTED)


def imported() -> None:
    """Look for garbage as before `while_importing`."""
    if gc.get_threshold()[0] == IMPORTED:
        gc.set_threshold(*_BEFORE)


def collect_rarely() -> None:
    """Look for garbage once per many new objects, and not among those that there are now.

    Call it after the imports and before there is a job: of an ended one, what is in a cycle would stay for good. What
    is in no cycle is freed at once as ever.
    """
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)


def collect_ended() -> None:
    """Look for garbage in a moment, in a process that does so rarely: few objects can hold a table and keys."""
    if gc.get_threshold()[0] == NEW_OBJECTS:
        import asyncio  # every command imports this module

        asyncio.get_running_loop().call_later(LET_GO_S, gc.collect)


async def give_memory_back() -> None:
    """Return freed memory to the system while this process is larger than it was, until it is cancelled (glibc).

    What a flood of connections was freed of lies between what is still used, and glibc keeps it for good.
    """
    import asyncio  # every command imports this module

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None or sys.platform != "linux":
        return
    with open("/proc/self/statm", "rb", buffering=0) as statm:  # noqa: ASYNC230 - once: in a flood none is free
        await asyncio.to_thread(trim, 0)  # what is imported for that, too, is imported now
        least, pause = _resident(statm), TRIM_S
        while True:
            await asyncio.sleep(pause)
            before = _resident(statm)
            if before <= least + GROWN:
                least, pause = min(least, before), TRIM_S
                continue
            await asyncio.to_thread(trim, 0)
            gained = before - _resident(statm)
            pause = TRIM_S if gained >= WORTH else min(2 * pause, LONGEST_PAUSE_S)


def _resident(statm: IO[bytes]) -> int:
    """Bytes of this process in memory. `statm`: the open file in which Linux tells them."""
    return int(os.pread(statm.fileno(), 128, 0).split()[1]) * resource.getpagesize()


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


def end_with(parent: int) -> None:
    """Have the system kill this process, stopped or at work, when `parent` ends, which has forked it (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it has ended before
            os._exit(1)
