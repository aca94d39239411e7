"""Workers: order, memory, errors, death of a worker, death of the parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from treetap.errors import Interrupted, Malformed, TreetapError
from treetap.process.units import finish_unit
from treetap.workers.engines import InProcessEngine, ProcessEngine, await_workers

#: Of workers that are to be missed soon.
SILENCE_S = 1.0


def remember(state, name, value):
    state.setdefault(name, []).append(value)
    return list(state[name])


def refuse(state):
    raise Malformed("not a ciphertext")


class Unpicklable(Exception):
    def __init__(self, first, second):
        super().__init__(first)


def refuse_strangely(state):
    raise Unpicklable(1, 2)


def leave(state):
    os._exit(9)


def doze(state, seconds):
    time.sleep(seconds)
    return seconds


def work_slowly(state, seconds):
    for _ in range(int(10 * seconds)):
        time.sleep(0.1)
        finish_unit()
    return "done"


def spin(state):
    while True:
        pass


def environment(state):
    return sys.argv, dict(os.environ), Path("/proc/self/cmdline").read_bytes()


def with_workers(workers, scenario, silence_s=20.0):
    async def run():
        engine = ProcessEngine(workers, silence_s)
        engine.start()
        try:
            await scenario(engine)
        finally:
            await engine.close()

    asyncio.run(run())


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_both_engines_give_the_same_answers():
    """Calls to a worker run in order on its own memory, in this process and in workers alike."""

    async def scenario(engine):
        answers = await asyncio.gather(*(engine.call(0, remember, "a", value) for value in range(5)))
        assert answers == [list(range(end)) for end in range(1, 6)]

    asyncio.run(scenario(InProcessEngine()))
    with_workers(1, scenario)


def test_lanes_share_no_memory():
    """The state of one worker is not visible to the other."""

    async def scenario(engine):
        assert await engine.call(0, remember, "a", 1) == [1]
        assert await engine.call(1, remember, "a", 2) == [2]

    with_workers(2, scenario)


def test_errors_keep_their_type_and_the_lane_goes_on():
    """A kernel's error arrives as its own type with the worker's traceback; one that cannot travel keeps its name."""

    async def scenario(engine):
        with pytest.raises(Malformed, match="not a ciphertext") as caught:
            await engine.call(0, refuse)
        assert "in worker 0" in caught.value.__notes__[0]
        with pytest.raises(RuntimeError, match="Unpicklable"):
            await engine.call(0, refuse_strangely)
        assert await engine.call(0, remember, "a", 1) == [1]

    with_workers(1, scenario)


def test_every_treetap_error_survives_the_pipe():
    """All classes of the error tree come back as themselves."""
    import pickle

    kinds = [TreetapError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        copy = pickle.loads(pickle.dumps(kind("why")))
        assert (type(copy), str(copy)) == (kind, "why")


def test_a_dead_worker_is_named_at_once_and_replaced():
    """A killed worker raises Interrupted promptly; it is there again for the next attempt, and the other works on."""

    async def scenario(engine):
        mine = engine.lease()
        assert await mine.call(1, remember, "a", 1) == [1]
        call = asyncio.ensure_future(mine.call(1, doze, 60))
        queued = asyncio.ensure_future(mine.call(1, remember, "a", 2))
        await asyncio.sleep(0.5)
        start = time.monotonic()
        os.kill(engine.pids[1], signal.SIGKILL)
        with pytest.raises(Interrupted, match=r"worker 1 .* died and was started again"):
            await call
        for later in (queued, mine.call(1, remember, "a", 3)):  # what this attempt had there is gone
            with pytest.raises(Interrupted, match=r"worker 1 .* was started again"):
                await later
        assert await mine.call(0, doze, 0) == 0
        assert await engine.lease().call(1, remember, "a", 4) == [4]
        assert time.monotonic() - start < 5

    with_workers(2, scenario)


def test_a_worker_that_dies_at_rest_is_replaced():
    """It died between calls: the next attempt finds a new one, the present one gets an error."""

    async def scenario(engine):
        mine = engine.lease()
        await mine.call(0, remember, "a", 1)
        os.kill(engine.pids[0], signal.SIGKILL)
        while os.waitid(os.P_PID, engine.pids[0], os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            await asyncio.sleep(0.01)
        next_one = engine.lease()
        assert await next_one.call(0, remember, "a", 2) == [2]
        with pytest.raises(Interrupted, match="started again"):
            await mine.call(0, remember, "a", 3)
        mine.forget(refuse)  # of a worker that has forgotten: nothing happens
        assert await next_one.call(0, remember, "a", 4) == [2, 4]

    with_workers(1, scenario)


def test_a_suspended_worker_is_ended():
    """Without a unit for `silence_s` it is killed and named; the end of a role does not wait for it."""

    async def scenario(engine):
        mine = engine.lease()
        await mine.call(0, doze, 0)
        os.kill(engine.pids[0], signal.SIGSTOP)
        start = time.monotonic()
        mine.forget(remember, "a", 1)
        left = asyncio.ensure_future(mine.call(0, doze, 0))
        await asyncio.sleep(0)
        left.cancel()  # its caller goes; the next one meets the same worker
        with pytest.raises(Interrupted, match=r"no unit of work for 1 s; it was killed and started again"):
            await mine.call(0, doze, 0)
        assert SILENCE_S <= time.monotonic() - start < SILENCE_S + 3
        assert await engine.lease().call(0, doze, 0) == 0

    with_workers(1, scenario, SILENCE_S)


def test_who_finishes_units_may_take_long():
    """A kernel of many times `silence_s` that finishes units is let be; one that only seems busy is not."""

    async def scenario(engine):
        await engine.call(0, doze, 0)
        assert await engine.call(0, work_slowly, 2.5 * SILENCE_S) == "done"
        with pytest.raises(Interrupted, match="no unit of work"):
            await engine.call(0, spin)

    with_workers(1, scenario, SILENCE_S)


def test_closing_waits_for_no_worker():
    """Suspended in the middle of a long message: the engine ends all the same."""

    async def run():
        engine = ProcessEngine(1, 60.0)
        engine.start()
        await engine.call(0, doze, 0)
        os.kill(engine.pids[0], signal.SIGSTOP)
        call = asyncio.ensure_future(engine.call(0, remember, "a", b"0" * 10_000_000))
        await asyncio.sleep(0.2)
        start = time.monotonic()
        await engine.close()
        with pytest.raises(Interrupted, match="closed"):
            await call
        assert time.monotonic() - start < 5

    asyncio.run(run())


def test_a_worker_that_leaves_by_itself_is_named_too():
    """An exit inside a kernel is the same as a kill."""

    async def scenario(engine):
        with pytest.raises(Interrupted, match="worker 0"):
            await engine.call(0, leave)

    with_workers(1, scenario)


def test_the_loop_runs_on_while_a_lane_works():
    """A long kernel does not stop heartbeats."""

    async def scenario(engine):
        await engine.call(0, doze, 0)
        call = asyncio.ensure_future(engine.call(0, doze, 0.5))
        beats = 0
        while not call.done():
            await asyncio.sleep(0.02)
            beats += 1
        assert beats > 10

    with_workers(1, scenario)


def test_closing_ends_waiting_calls():
    """Running and queued calls end with Interrupted when the engine closes, and the workers are gone."""

    async def run():
        engine = ProcessEngine(1, 20.0)
        engine.start()
        pids = engine.pids
        await engine.call(0, doze, 0)
        calls = [asyncio.ensure_future(engine.call(0, doze, 60)) for _ in range(3)]
        await asyncio.sleep(0.2)
        await engine.close()
        outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 2)
        assert [type(outcome) for outcome in outcomes] == [Interrupted] * 3
        with pytest.raises(Interrupted):
            await engine.call(0, doze, 0)
        assert not any(alive(pid) for pid in pids)

    asyncio.run(run())


def imported(state, module):
    return module in sys.modules


def test_workers_import_before_their_first_call():
    """Workers import the modules that the engine names, and no other kernels."""

    async def run():
        engine = ProcessEngine(1, 20.0, ["treetap.psi"])
        engine.start()
        try:
            await await_workers(engine)
            assert await engine.call(0, imported, "treetap.psi")
            assert not await engine.call(0, imported, "treetap.additive.sums.kernels")
        finally:
            await engine.close()

    asyncio.run(run())


def test_workers_ignore_interrupts():
    """Ctrl-C reaches the whole process group; workers leave the decision to their parent, even while they boot."""

    async def scenario(engine):
        os.kill(engine.pids[0], signal.SIGINT)  # still booting
        await engine.call(0, doze, 0)
        os.kill(engine.pids[0], signal.SIGINT)
        assert await engine.call(0, doze, 0.1) == 0.1

    with_workers(1, scenario)


def test_nothing_secret_in_arguments_or_environment():
    """What a worker was called with names pipes and nothing that a kernel was given."""

    async def scenario(engine):
        await engine.call(0, remember, "secret", "swordfish-4711")
        assert "swordfish" not in repr(await engine.call(0, environment))

    with_workers(1, scenario)


def test_workers_vanish_when_their_parent_is_killed(tmp_path):
    """After a SIGKILL of the parent no worker survives, not even one inside a long kernel."""
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(
            """
            import asyncio, sys, time
            sys.path[:0] = sys.argv[1:]
            from treetap.workers.engines import ProcessEngine

            def spin(state, seconds):
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    pass

            async def main():
                engine = ProcessEngine(2, 20.0)
                engine.start()
                await asyncio.gather(engine.call(0, spin, 0), engine.call(1, spin, 0))
                busy = asyncio.ensure_future(engine.call(0, spin, 60))
                await asyncio.sleep(0.2)
                print(*engine.pids, flush=True)
                await busy

            if __name__ == "__main__":
                asyncio.run(main())
            """
        )
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, str(script), str(root)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
        parent.kill()
    deadline = time.monotonic() + 5
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)


def test_peak_memory_is_per_worker():
    """Each worker reports its own high-water mark, which grows with what it holds; no worker, no figure."""

    async def scenario(engine):
        await asyncio.gather(*(engine.call(worker, remember, "start", b"") for worker in range(2)))
        before = [used.peak_rss_mb for used in engine.usage()]
        await engine.call(1, remember, "bulk", b"x" * 2**26)
        after = [used.peak_rss_mb for used in engine.usage()]
        assert len(after) == 2
        assert after[1] > before[1] + 50
        assert after[0] < before[0] + 10

    with_workers(2, scenario)
    assert InProcessEngine().usage() == []


def test_wrong_use_is_refused():
    """No workers, a worker that does not exist, a second start."""
    with pytest.raises(ValueError, match="at least one"):
        ProcessEngine(0, 20.0)
    with pytest.raises(ValueError, match="worker 0 only"):
        asyncio.run(InProcessEngine().call(1, doze, 0))

    async def scenario(engine):
        with pytest.raises(ValueError, match="no worker 1"):
            await engine.call(1, doze, 0)
        with pytest.raises(RuntimeError, match="started"):
            engine.start()

    with_workers(1, scenario)
