"""Threads that the file system holds: their step ends by name, and the process leaves without them."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from treetap.errors import Interrupted, Malformed
from treetap.party.server.services import MOST_IDLE, Threads

pytestmark = pytest.mark.real_time


@pytest.mark.second_tier
async def test_results_and_errors_come_back() -> None:
    """The caller gets the result or the error of a function, also after many times `silence_s` of work."""

    threads = Threads(0.2)
    assert await threads(lambda: 7) == 7
    with pytest.raises(Malformed, match="why"):
        await threads(lambda: (_ for _ in ()).throw(Malformed("why")))

    def busy() -> str:
        until = time.monotonic() + 0.8
        while time.monotonic() < until:
            pass
        return "done"

    assert await threads(busy) == "done"


async def test_a_thread_is_used_again_and_holds_nothing() -> None:
    """One function after another runs on one thread; of threads at once a few stay, and no data with them."""

    class Data:
        pass

    def offloaded() -> int:
        return sum(each.name == "offload" for each in threading.enumerate())

    threads, others = Threads(60.0), offloaded()
    assert len({await threads(threading.get_native_id) for _ in range(20)}) == 1
    data = Data()
    kept = weakref.ref(data)
    await threads(lambda held=data: None)
    del data
    await asyncio.sleep(0.05)
    assert kept() is None
    barrier = threading.Barrier(12)
    await asyncio.gather(*(threads(lambda: barrier.wait(10)) for _ in range(12)))
    assert await _ends(lambda: offloaded() == others + MOST_IDLE)


async def _ends(holds: Callable[[], bool]) -> bool:
    """True once it holds, False if it does not within ten seconds."""
    for _ in range(1000):
        if holds():
            return True
        await asyncio.sleep(0.01)
    return False


async def test_an_error_that_comes_after_the_caller_has_gone_is_no_lost_exception() -> None:
    """A step that is cancelled leaves its work behind: what this raises, for files that are gone, has no reader."""
    lost: list[str] = []
    go, done = threading.Event(), threading.Event()

    def late() -> None:
        go.wait(10)
        done.set()
        raise FileNotFoundError

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: lost.append(context["message"]))
    threads = Threads(60.0)
    step = asyncio.ensure_future(threads(late))
    await asyncio.sleep(0.01)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    go.set()
    assert await _ends(done.is_set)
    await threads(lambda: None)
    await asyncio.sleep(0.05)
    gc.collect()
    assert lost == []


@pytest.mark.second_tier
async def test_a_thread_that_waits_for_ever_is_named(tmp_path: Path) -> None:
    """To open a pipe without a writer blocks in the kernel, as a dead disk does."""
    os.mkfifo(tmp_path / "pipe")

    start = time.monotonic()
    with pytest.raises(Interrupted, match=r"a file operation has not ended for 0\.5 s"):
        await Threads(0.5)((tmp_path / "pipe").read_bytes)
    assert 0.5 <= time.monotonic() - start < 10
    os.close(os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK))


@pytest.mark.second_tier
async def test_a_cancelled_caller_waits_for_work_that_is_to_be_whole() -> None:
    """It is cancelled when the work has ended, and not before; work of which nothing is said goes on alone."""
    threads, done = Threads(5.0), list[str]()

    def slow(name: str) -> None:
        time.sleep(0.2)
        done.append(name)

    for whole, expected in ((True, ["True"]), (False, ["True"])):
        task = asyncio.ensure_future(threads(lambda whole=whole: slow(str(whole)), whole=whole))  # type: ignore[misc]
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == expected
    await asyncio.sleep(0.4)
    assert done == ["True", "False"]


def test_the_process_leaves_without_it(tmp_path: Path) -> None:
    """No thread that is stuck keeps a process from ending."""
    os.mkfifo(tmp_path / "pipe")
    script = f"""
    import asyncio
    from pathlib import Path
    from treetap.party.server.services import Threads

    async def main():
        stuck = asyncio.ensure_future(Threads(60.0)(lambda: Path({str(tmp_path / "pipe")!r}).read_bytes()))
        await asyncio.sleep(0.1)
        stuck.cancel()

    asyncio.run(main())
    print("left")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == "left\n"
