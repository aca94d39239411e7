"""Limits that a process sets for itself."""

from __future__ import annotations

import subprocess
import sys
from multiprocessing.connection import Connection

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")


def _run(*lines: str) -> subprocess.CompletedProcess[str]:
    """Python code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=30, check=True
    )


@pytest.mark.parametrize(("hard", "warned"), [(8192, False), (1024, True)])
def test_as_many_descriptors_as_there_may_be(hard: int, warned: bool) -> None:
    """The soft limit becomes the hard one; of a low one the log tells what to raise."""
    found = _run(
        "import resource",
        "from treetap.process.limits import raise_descriptors",
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard}))",
        "raise_descriptors()",
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])",
    )
    assert int(found.stdout) == hard
    assert ("may open 1024 files and connections: raise its hard limit to 8192" in found.stderr) == warned


def test_copies_of_messages_do_not_begin_with_new_memory() -> None:
    """A server's heap keeps what a message of a megabyte has freed: the next one causes no page faults."""
    lines = (
        "import resource",
        "from treetap.process import limits",
        "KEEPS",
        "def faults():",
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt",
        "def copies(count):",
        "    for _ in range(count):",
        "        first = bytes(1 << 20)",
        "        second = bytearray(first)",
        "        del first, second",
        "copies(2)",
        "before = faults()",
        "copies(50)",
        "print(faults() - before)",
    )
    kept, as_it_is = (
        int(_run(*(line.replace("KEEPS", way) for line in lines)).stdout) for way in ("limits.share_heaps()", "pass")
    )
    assert kept < 50 < as_it_is


def test_batches_do_not_begin_with_new_memory() -> None:
    """The heap keeps what a batch of 8 MB has freed, and 64 MB of what many have."""
    found = _run(
        "import resource",
        "import numpy as np",
        "from treetap.process import limits",
        "statm = open('/proc/self/statm', 'rb', buffering=0)",
        "def faults():",
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt",
        "limits.share_heaps()",
        "np.ones(1 << 20) + 1",
        "before = faults(), limits._resident(statm)",
        "for _ in range(20):",
        "    np.ones(1 << 20) + 1",
        "print(faults() - before[0])",
        "held = [np.ones(1 << 20) for _ in range(40)]",
        "print(limits._resident(statm) - before[1])",
        "del held",
        "print(limits._resident(statm) - before[1])",
    )
    again, most, kept = map(int, found.stdout.split())
    assert again < 200
    assert most > 250_000_000
    assert kept <= 64 * 2**20


def test_arrow_uses_the_shared_heaps() -> None:
    """Unless the operator has named another allocator."""
    lines = ("from treetap.process import limits", "limits.share_heaps()", "import pyarrow")
    told = "print(pyarrow.default_memory_pool().backend_name)"
    assert _run(*lines, told).stdout == "system\n"
    own = ("import os", "os.environ['ARROW_DEFAULT_MEMORY_POOL'] = 'mimalloc'")
    assert _run(*own, *lines, told).stdout == "mimalloc\n"


def test_garbage_is_looked_for_rarely_and_is_found() -> None:
    """What was there before is never looked through again; a cycle made afterwards is freed in the end."""
    found = _run(
        "import gc, weakref",
        "from treetap.process import limits",
        "class Ring: pass",
        "limits.collect_rarely()",
        "print(gc.get_freeze_count() > 1000, gc.get_threshold()[0])",
        "ring = Ring()",
        "ring.own, seen = ring, weakref.ref(ring)",
        "del ring",
        "kept = [[] for _ in range(49_000)]",
        "print(seen() is None)",
        "kept += [[] for _ in range(2_000)]",
        "print(seen() is None)",
    )
    assert found.stdout.split() == ["True", "50000", "False", "True"]


def test_what_is_freed_is_given_back() -> None:
    """Also where a twentieth of it, all over the heap, is still used, and where no descriptor is free."""
    found = _run(
        "import asyncio, resource",
        "from treetap.process import limits",
        "statm = open('/proc/self/statm', 'rb', buffering=0)",
        "limits.TRIM_S = 0.01",
        "async def main():",
        "    before = limits._resident(statm)",
        "    task = asyncio.ensure_future(limits.give_memory_back())",
        "    await asyncio.sleep(0.1)",
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 1024))",  # as in a flood: none is free
        "    held = [bytes(2000) for _ in range(80_000)]",
        "    most = limits._resident(statm)",
        "    held = held[::20]",
        "    for _ in range(200):",
        "        await asyncio.sleep(0.01)",
        "        if limits._resident(statm) < before + (most - before) // 3:",
        "            break",
        "    print((most - before) >> 20, (limits._resident(statm) - before) >> 20)",
        "asyncio.run(main())",
    )
    most, left = map(int, found.stdout.split())
    assert left < most // 3
    assert most > 100


def test_no_process_leaves_its_memory_behind() -> None:
    """Neither a command nor what a fork server forks can be dumped, into a file or to a program."""
    found = _run(
        "from treetap.commands.cli import options",
        "from treetap.process.fork_server import ForkServer",
        "from tests.library.test_limits import dumpable, tell",
        "if __name__ == '__main__':",
        "    forks = ForkServer()",
        "    print(forks.fork(tell, ()).pipe.recv())",
        "    forks.close()",
        "    options()",
        "    print(dumpable())",
    )
    assert found.stdout.splitlines() == ["(0, 0)"] * 2


def tell(pipe: Connection) -> None:
    """Answer from a child."""
    pipe.send(dumpable())


def dumpable() -> tuple[int, int]:
    """The limit of this process's core dumps, and whether the kernel would make one at all."""
    import ctypes
    import resource

    return resource.getrlimit(resource.RLIMIT_CORE)[0], ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
