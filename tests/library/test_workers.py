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

from tests import worker_contract
from tests.library.engines import started
from tests.worker_kernels import doze, environment, remember
from treetap.errors import Interrupted, TreetapError
from treetap.workers.engines import InProcessEngine, ProcessEngine

pytestmark = pytest.mark.real_time

#: Of workers that are to be missed soon.
SILENCE_S = 1.0


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("scenario", worker_contract.PEACEFUL + worker_contract.FATAL, ids=lambda each: each.__name__)
async def test_contract(scenario):
    """Worker processes have the properties that every engine's workers have."""
    async with started(2, modules=["treetap.psi"]) as engine:
        await scenario(engine)


@pytest.mark.second_tier
@pytest.mark.parametrize(
    "scenario",
    [worker_contract.a_suspended_worker_is_ended, worker_contract.who_finishes_units_may_take_long],
    ids=lambda each: each.__name__,
)
async def test_silence(scenario):
    """A worker process that hangs is distinguished from one that works."""
    async with started(1, SILENCE_S) as engine:
        await scenario(engine, silence_s=SILENCE_S)


async def test_without_processes_the_answers_are_the_same():
    """Calls run in order on one memory in this process too; it has no figures of workers."""
    await worker_contract.calls_run_in_order(InProcessEngine())
    assert InProcessEngine().usage() == []


def test_every_treetap_error_survives_the_pipe():
    """All classes of the error tree come back as themselves."""
    import pickle

    kinds = [TreetapError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        copy = pickle.loads(pickle.dumps(kind("why")))
        assert (type(copy), str(copy)) == (kind, "why")


async def test_closing_waits_for_no_worker():
    """Suspended in the middle of a long message: the engine ends all the same."""
    engine = ProcessEngine(1, 60.0)
    engine.start()
    await engine.lease().call(0, doze, 0)
    os.kill(engine.pids[0], signal.SIGSTOP)
    call = asyncio.ensure_future(engine.lease().call(0, remember, "a", b"0" * 10_000_000))
    await asyncio.sleep(0.2)
    start = time.monotonic()
    await engine.close()
    with pytest.raises(Interrupted, match="closed"):
        await call
    assert time.monotonic() - start < 5


async def test_closing_ends_waiting_calls():
    """Running and queued calls end with Interrupted when the engine closes, and the workers are gone."""
    engine = ProcessEngine(1, 20.0)
    engine.start()
    pids = engine.pids
    await engine.lease().call(0, doze, 0)
    calls = [asyncio.ensure_future(engine.lease().call(0, doze, 60)) for _ in range(3)]
    await asyncio.sleep(0.2)
    await engine.close()
    outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 2)
    assert [type(outcome) for outcome in outcomes] == [Interrupted] * 3
    with pytest.raises(Interrupted):
        await engine.lease().call(0, doze, 0)
    assert not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
async def test_workers_ignore_interrupts(number):
    """Ctrl-C reaches a whole process group, SIGHUP may; workers leave both to their parent, even while they boot."""

    async with started(1) as engine:
        os.kill(engine._forks._process.pid, number)  # still booting
        os.kill(engine.pids[0], number)
        await engine.lease().call(0, doze, 0)
        os.kill(engine.pids[0], number)
        os.kill(engine._forks._process.pid, number)
        assert await engine.lease().call(0, doze, 0.1) == 0.1


async def test_nothing_secret_in_arguments_or_environment():
    """What a worker was called with names pipes and nothing that a kernel was given."""

    async with started(1) as engine:
        await engine.lease().call(0, remember, "secret", "swordfish-4711")
        assert "swordfish" not in repr(await engine.lease().call(0, environment))


@pytest.mark.second_tier
def test_workers_vanish_when_their_parent_is_killed(tmp_path):
    """After a SIGKILL of the parent no worker survives, not even one inside a long kernel."""
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(
            """
            import asyncio, sys
            sys.path[:0] = sys.argv[1:]
            from tests.worker_kernels import compute
            from treetap.workers.engines import ProcessEngine

            async def main():
                engine = ProcessEngine(2, 20.0)
                engine.start()
                await asyncio.gather(engine.lease().call(0, compute, 0), engine.lease().call(1, compute, 0))
                busy = asyncio.ensure_future(engine.lease().call(0, compute, 60))
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


async def test_wrong_use_is_refused():
    """No workers, a worker that does not exist, a second start."""
    with pytest.raises(ValueError, match="at least one"):
        ProcessEngine(0, 20.0)
    with pytest.raises(ValueError, match="worker 0 only"):
        await InProcessEngine().call(1, doze, 0)

    async with started(1) as engine:
        with pytest.raises(RuntimeError, match="started"):
            engine.start()
