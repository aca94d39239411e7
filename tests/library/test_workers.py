"""Workers in threads: order, memory, errors, what closes them, and a kernel that hangs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import time

import gmpy2
import pytest

from tests.library.engines import workers
from tests.worker_kernels import refuse, work_slowly
from treetap.errors import Interrupted, Malformed
from treetap.party.server.main import HUNG
from treetap.workers.engines import SMALL_US, Engine, ThreadEngine

pytestmark = pytest.mark.real_time


def remember(values: list[int], value: int) -> list[int]:
    values.append(value)
    return list(values)


@pytest.mark.parametrize("threads", [0, 1])
async def test_calls_run_in_order(threads: int) -> None:
    """Calls to a worker run in order, those that nobody waits for too."""
    values: list[int] = []
    async with workers(threads) as engine:
        calls = [asyncio.ensure_future(engine.call(0, remember, values, value)) for value in range(5)]
        await asyncio.sleep(0)
        engine.begin(0, remember, values, 5)
        assert await engine.call(0, remember, values, 6) == list(range(7))
        assert await asyncio.gather(*calls) == [list(range(end)) for end in range(1, 6)]


async def test_small_kernels_run_in_the_loop() -> None:
    """No more than `SMALL_US` between two looks at sockets, and after what a thread has for their worker."""
    here, values = threading.get_ident(), list[int]()
    async with workers(2) as engine:
        burst = [engine.call(worker, threading.get_ident, us=SMALL_US / 2) for worker in (0, 1, 0, 1)]
        assert [thread == here for thread in await asyncio.gather(*burst)] == [True, True, False, False]
        row = [await engine.call(0, threading.get_ident, us=SMALL_US) for _ in range(3)]
        assert row == [here] * 3
        assert await engine.call(0, threading.get_ident, us=SMALL_US + 1) != here
        engine.begin(0, time.sleep, 0.05)
        engine.begin(0, remember, values, 1)
        assert await engine.call(0, remember, values, 2, us=0.0) == [1, 2]


async def test_errors_come_back() -> None:
    """A kernel's error arrives as it is, and the worker goes on."""
    async with workers(1) as engine:
        with pytest.raises(Malformed, match="not a ciphertext"):
            await engine.call(0, refuse, {})
        assert await engine.call(0, time.sleep, 0) is None


async def test_the_loop_runs_on() -> None:
    """A long kernel does not stop heartbeats."""
    async with workers(1) as engine:
        call, beats = asyncio.ensure_future(engine.call(0, time.sleep, 0.5)), 0
        while not call.done():
            await asyncio.sleep(0.02)
            beats += 1
    assert beats > 10


async def test_powers_of_gmp_run_beside_each_other() -> None:
    """Each thread lets the interpreter's lock go meanwhile, which gmpy2 does not by itself."""
    async with workers(2) as engine:
        assert [await engine.call(worker, releases) for worker in range(2)] == [True, True]


def releases() -> bool:
    return bool(gmpy2.get_context().allow_release_gil)


async def test_a_call_whose_caller_goes_is_not_begun() -> None:
    """One that waits in the queue; a kernel that has begun goes on."""
    values: list[int] = []
    async with workers(1) as engine:
        first = asyncio.ensure_future(engine.call(0, time.sleep, 0.2))
        second = asyncio.ensure_future(engine.call(0, remember, values, 1))
        await asyncio.sleep(0.05)
        second.cancel()
        await first
        assert await engine.call(0, remember, values, 2) == [2]


async def test_closing_ends_waiting_calls() -> None:
    """Running and queued calls end with Interrupted at once when the engine closes, and no call begins any more."""
    engine = ThreadEngine(1, 20.0, print)
    calls = [asyncio.ensure_future(engine.call(0, time.sleep, 1.0)) for _ in range(3)]
    await asyncio.sleep(0.2)
    start = time.monotonic()
    await engine.close()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["compute worker 0 has been closed"] * 3
    with pytest.raises(Interrupted, match="closed"):
        await engine.call(0, time.sleep, 0)
    engine.begin(0, refuse, {})
    assert time.monotonic() - start < 0.5


async def test_a_kernel_that_hangs_is_named() -> None:
    """One that finishes no unit of work for `silence_s`; one that finishes units may take many times as long."""
    told, stop = list[str](), threading.Event()

    def stuck() -> None:
        stop.wait(20)

    async with workers(2, 0.4, told.append) as engine:
        assert await engine.call(1, work_slowly, {}, 1.5) == "done"
        assert told == []
        calls = [asyncio.ensure_future(engine.call(*call)) for call in ((0, stuck), (1, work_slowly, {}, 1.5))]
        await asyncio.sleep(1.2)
        stop.set()
        await asyncio.gather(*calls)
    (sentence,) = told
    assert sentence.endswith(".stuck has finished no unit of work for 0.4 s")


@pytest.mark.parametrize("us", ["math.inf", "0.0"])
def test_a_party_ends_with_a_kernel_that_hangs(us: str) -> None:
    """By one line that names it and a status of its own, also where it runs in the event loop."""
    script = f"""
    import asyncio, math, time
    from treetap.party.server.main import end_hung
    from treetap.workers.engines import ThreadEngine

    def stuck():
        time.sleep(60)

    async def main():
        await ThreadEngine(1, 0.2, end_hung).call(0, stuck, us={us})

    asyncio.run(main())
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], check=False, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == HUNG
    says = "the kernel __main__.stuck has finished no unit of work for 0.2 s, and this party ends with it: start it "
    assert ended.stderr == f"{says}again and resume its jobs\n"


@pytest.mark.skipif(not hasattr(os, "WUNTRACED"), reason="a process is suspended")
def test_a_suspended_party_finds_no_kernel_that_hangs() -> None:
    """Looks are counted: after ten times `silence_s` asleep, a kernel that works on is let be."""
    script = """
    import asyncio, sys, time
    from treetap.party.server.main import end_hung
    from treetap.usage import finish_unit
    from treetap.workers.engines import ThreadEngine

    def works():
        print("begins", flush=True)
        for _ in range(50):
            time.sleep(0.02)
            finish_unit()

    async def main():
        await ThreadEngine(1, 0.3, end_hung).call(0, works)

    asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as party:
        assert party.stdout is not None
        assert party.stdout.readline() == "begins\n"
        party.send_signal(19)  # SIGSTOP
        time.sleep(3.0)
        party.send_signal(18)  # SIGCONT
        assert party.wait(30) == 0


async def test_wrong_use_is_refused() -> None:
    """No workers, and a worker that does not exist."""
    with pytest.raises(ValueError, match="at least one"):
        ThreadEngine(0, 20.0, print)
    with pytest.raises(ValueError, match="no worker 1"):
        await Engine().call(1, time.sleep, 0)
