"""Properties of worker processes, as scenarios on a started engine of two workers."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import pytest

from tests.worker_kernels import (
    compute,
    doze,
    imported,
    leave,
    process,
    refuse,
    refuse_strangely,
    remember,
    size_of,
    spin,
    work_slowly,
)
from treetap.errors import Interrupted, Malformed


async def calls_run_in_order(engine: Any) -> None:
    """Calls to a worker run in order on its own memory."""
    mine = engine.lease()
    answers = await asyncio.gather(*(mine.call(0, remember, "order", value) for value in range(5)))
    assert answers == [list(range(end)) for end in range(1, 6)]


async def long_messages_arrive(engine: Any) -> None:
    """What is longer than a pipe holds arrives whole, both ways."""
    content = os.urandom(5_000_000)
    assert await engine.lease().call(0, size_of, content) == len(content)
    assert await engine.lease().call(0, remember, "long", content) == [content]


async def workers_share_no_memory(engine: Any) -> None:
    """The state of one worker is not visible to the other."""
    assert await engine.lease().call(0, remember, "own", 1) == [1]
    assert await engine.lease().call(1, remember, "own", 2) == [2]


async def forgetting_waits_for_no_one(engine: Any) -> None:
    """A kernel that frees memory runs in every worker, after the calls before it and before those after it."""
    mine = engine.lease()
    mine.forget(remember, "forgotten", 1)
    for worker in range(2):
        assert await mine.call(worker, remember, "forgotten", 2) == [1, 2]


async def errors_keep_their_type(engine: Any) -> None:
    """A kernel's error arrives as its own type with the worker's traceback; one that cannot travel keeps its name."""
    with pytest.raises(Malformed) as caught:
        await engine.lease().call(0, refuse)
    assert "in worker 0" in caught.value.__notes__[0]
    assert "not a ciphertext" in caught.value.__notes__[0]
    assert "worker_kernels.py" in caught.value.__notes__[0]
    with pytest.raises(RuntimeError, match="Unpicklable"):
        await engine.lease().call(0, refuse_strangely)
    assert await engine.lease().call(0, doze, 0) == 0


async def a_dead_worker_is_replaced(engine: Any) -> None:
    """A killed worker raises Interrupted promptly; it is there again for the next attempt, and the other works on."""
    mine = engine.lease()
    assert await mine.call(1, remember, "a", 1) == [1]
    pid = await mine.call(1, process)
    call = asyncio.ensure_future(mine.call(1, doze, 60))
    queued = asyncio.ensure_future(mine.call(1, remember, "a", 2))
    await asyncio.sleep(0.5)
    start = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(Interrupted, match=rf"worker 1 \(process {pid}.*\) died and (was|is) started again"):
        await call
    for later in (queued, mine.call(1, remember, "a", 3)):  # what this attempt had there is gone
        with pytest.raises(Interrupted, match=r"worker 1 .* started again"):
            await later
    assert await mine.call(0, doze, 0) == 0
    assert time.monotonic() - start < 5
    assert await engine.lease().call(1, remember, "a", 4) == [4]


async def a_worker_that_dies_at_rest_is_replaced(engine: Any) -> None:
    """It died between calls: the next attempt finds a new one, the present one gets an error."""
    mine = engine.lease()
    await mine.call(0, remember, "b", 1)
    os.kill(await mine.call(0, process), signal.SIGKILL)
    until = time.monotonic() + 20
    while engine.started[0].incarnation.alive():
        assert time.monotonic() < until
        await asyncio.sleep(0.01)
    next_one = engine.lease()
    assert await next_one.call(0, remember, "b", 2) == [2]
    with pytest.raises(Interrupted, match="started again"):
        await mine.call(0, remember, "b", 3)
    mine.forget(refuse)  # of a worker that has forgotten: nothing happens
    assert await next_one.call(0, remember, "b", 4) == [2, 4]


async def a_worker_that_leaves_is_named(engine: Any) -> None:
    """An exit inside a kernel is the same as a kill."""
    with pytest.raises(Interrupted, match="worker 0"):
        await engine.lease().call(0, leave)


async def the_loop_runs_on(engine: Any) -> None:
    """A long kernel does not stop heartbeats."""
    await engine.lease().call(0, doze, 0)
    call = asyncio.ensure_future(engine.lease().call(0, doze, 0.5))
    beats = 0
    while not call.done():
        await asyncio.sleep(0.02)
        beats += 1
    assert beats > 10


async def usage_is_of_each_worker(engine: Any) -> None:
    """Each worker reports its own high-water mark, which grows with what it holds."""
    await asyncio.gather(*(engine.lease().call(worker, remember, "start", b"") for worker in range(2)))
    before = [used.peak_rss_mb for used in engine.usage()]
    await engine.lease().call(1, remember, "bulk", b"x" * 2**26)
    after = [used.peak_rss_mb for used in engine.usage()]
    assert len(after) == 2
    assert after[1] > before[1] + 50
    assert after[0] < before[0] + 10
    await asyncio.gather(*(engine.lease().call(worker, compute, 0.03) for worker in range(2)))
    assert all(used.cpu_seconds > 0 for used in engine.usage())


async def modules_are_imported_at_the_start(engine: Any) -> None:
    """Workers import the modules that the engine names (`treetap.psi`), and no other kernels."""
    assert await engine.lease().call(0, imported, "treetap.psi")
    assert not await engine.lease().call(0, imported, "treetap.additive.sums.kernels")


#: What no worker has to die for, and what ends one.
PEACEFUL = [
    modules_are_imported_at_the_start,
    calls_run_in_order,
    long_messages_arrive,
    workers_share_no_memory,
    forgetting_waits_for_no_one,
    errors_keep_their_type,
    the_loop_runs_on,
    usage_is_of_each_worker,
]
FATAL = [a_dead_worker_is_replaced, a_worker_that_dies_at_rest_is_replaced, a_worker_that_leaves_is_named]


async def a_suspended_worker_is_ended(engine: Any, silence_s: float) -> None:
    """Without a unit for `silence_s` it is killed and named; the end of a role does not wait for it."""
    mine = engine.lease()
    os.kill(await mine.call(0, process), signal.SIGSTOP)
    start = time.monotonic()
    mine.forget(remember, "a", 1)
    left = asyncio.ensure_future(mine.call(0, doze, 0))
    await asyncio.sleep(0)
    left.cancel()  # its caller goes; the next one meets the same worker
    with pytest.raises(Interrupted, match=rf"no unit of work for {silence_s:g} s; it was killed and started again"):
        await mine.call(0, doze, 0)
    assert silence_s <= time.monotonic() - start < silence_s + 3
    assert await engine.lease().call(0, doze, 0) == 0


async def who_finishes_units_may_take_long(engine: Any, silence_s: float) -> None:
    """A kernel of many times `silence_s` that finishes units is let be; one that only seems busy is not."""
    await engine.lease().call(0, doze, 0)
    assert await engine.lease().call(0, work_slowly, 2.5 * silence_s) == "done"
    with pytest.raises(Interrupted, match="no unit of work"):
        await engine.lease().call(0, spin)
