"""A fork server: what its children inherit, what it knows and draws, and what comes of the end of each process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

import pytest

from tests import drawing
from tests.fork_targets import echo, fail
from tests.library.engines import started
from tests.memory import forms_of, held_in
from tests.worker_kernels import descriptors, doze, interpreter
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.sums.key_holder import KeyHolder
from treetap.errors import BadInput, Interrupted
from treetap.party.server import main
from treetap.party.server.main import OF_WORKERS
from treetap.process import fork_server, forking
from treetap.process.fork_server import ONE_THREAD, Child, ForkServer
from treetap.trees.slots import Slots
from treetap.workers.engines import ProcessEngine

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parents[3]
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")


@contextmanager
def server(*modules: str) -> Iterator[ForkServer]:
    """A fork server that is closed at the end."""
    forks = ForkServer(modules)
    try:
        yield forks
    finally:
        forks.close()


def pid_of(forks: ForkServer) -> int:
    assert forks._process is not None
    return forks._process.pid


def received(child: Child) -> Any:
    """What a child sends first."""
    assert child.pipe.poll(30), child.fate
    return child.pipe.recv()


async def killed(engine: ProcessEngine, worker: int) -> None:
    """Kill a worker; a lease begins another one."""
    life = engine.started[worker].incarnation
    life.kill()
    while life.alive():
        await asyncio.sleep(0.01)


def gone(*pids: int) -> bool:
    """True once none of these processes runs, within five seconds."""
    until = time.monotonic() + 5
    while any(_runs(pid) for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_every_child_draws_values_of_its_own() -> None:
    """Of 64 children no two draw the same first value from any generator, those that the server imported included."""
    with server(drawing.__name__) as forks:
        children = [forks.fork(drawing.draw, ()) for _ in range(64)]
        drawn = [received(child) for child in children]
    assert len(drawn[0]) == 15
    for name in drawn[0]:
        assert len({values[name] for values in drawn}) == 64, name


def test_the_server_draws_nothing() -> None:
    """Importing what workers need draws nothing and starts no thread; numpy's generators are not even imported.

    Of what libraries ask the system for meanwhile, a child draws its own again.
    """
    code = (
        "import os, sys; asked = []; real = os.urandom",
        "os.urandom = lambda size: asked.append(sys._getframe(1).f_globals['__name__']) or real(size)",
        "from treetap.process import forking",
        "import random",
        f"forking.preload({[*OF_WORKERS, 'treetap.process.apart']!r})",
        "import gmpy2, nacl.bindings, numpy",
        "print(asked, random.getstate()[1][-1], 'numpy.random' in sys.modules, [forking.why_unfit()])",
    )
    said = subprocess.run(
        [sys.executable, "-c", "\n".join(code)],
        env={**os.environ, **ONE_THREAD},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    # 624: Python's generator has been seeded, and has given no value
    assert said.stdout == "['multiprocessing.process'] 624 False ['']\n"


def test_a_party_starts_its_server_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it reads a file that could name a key or a table."""
    begun: list[list[str]] = []
    monkeypatch.setattr(ForkServer, "begin", lambda forks: begun.append(forks._modules))

    def read(path: Path) -> None:
        assert begun == [list(OF_WORKERS)]
        raise BadInput(str(path))

    monkeypatch.setattr(main, "read", read)
    with pytest.raises(BadInput, match=r"party\.toml"):
        main.run(tmp_path / "party.toml", until_stdin_closes=False)


@on_linux
def test_the_server_has_one_thread() -> None:
    """As the system counts, once it has imported and forked; a child that has ended is no zombie."""
    with server(*OF_WORKERS) as forks:
        child = forks.fork(echo, ("first",))
        assert received(child) == (child.pid, "first")
        tasks = Path(f"/proc/{pid_of(forks)}/task")
        assert len([*tasks.iterdir()]) == 1
        assert [int(pid) for pid in (tasks / str(pid_of(forks)) / "children").read_text().split()] == [child.pid]
        child.end()
        assert child.exitcode == -signal.SIGKILL
        assert not Path(f"/proc/{child.pid}").exists()


async def test_a_server_with_threads_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, at the first call of a worker and at every other."""
    (tmp_path / "starts_a_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    async with started(1, 20.0, ["starts_a_thread"]) as engine:
        for _ in range(2):
            with pytest.raises(BadInput, match=r"the fork server \(\d+\) has 2 threads"):
                await engine.lease().call(0, doze, 0)


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="no user but root can read the memory of these processes"
)
async def test_no_key_is_in_the_server() -> None:
    """A search for a key in use finds it in its worker, and not in the server's memory, environment or arguments."""
    key = SecretKey.generate(1024)
    forms = {form for name, number in (("p", key._p), ("q", key._q)) for form in forms_of(name, int(number))}

    async with started(1, 20.0, OF_WORKERS) as engine:
        await KeyHolder(engine.lease(), key, Slots((40, 20)), "standard", "t").start()
        [worker], forks = engine.pids, pid_of(engine._forks)
        await killed(engine, 0)
        await KeyHolder(engine.lease(), key, Slots((40, 20)), "standard", "t").start()
        assert [worker] != engine.pids  # the server has forked after a worker had the key
        assert held_in(engine.pids[0], forms)
        assert not held_in(forks, forms)
        for place in ("environ", "cmdline"):
            content = Path(f"/proc/{forks}/{place}").read_bytes()
            assert content
            assert not any(form in content for form in forms)


@on_linux
async def test_a_worker_inherits_its_own_descriptors_alone() -> None:
    """The streams, its pipe and its counter; no pipe of another worker or of the server, also in one forked later."""
    async with started(3) as engine:
        await asyncio.gather(*(engine.lease().call(worker, doze, 0) for worker in range(3)))
        await killed(engine, 1)
        engine.lease()
        opened = [await engine.lease().call(worker, descriptors) for worker in range(3)]
    pipes = set()
    for numbers in opened:
        assert numbers.pop(0) == "/dev/null"
        for stream in (1, 2):
            assert numbers.pop(stream) == os.readlink(f"/proc/self/fd/{stream}")
        kinds = sorted(target.partition(":")[0] for target in numbers.values())
        assert kinds == ["/memfd", "socket"]
        pipes |= {target for target in numbers.values() if target.startswith("socket")}
    assert len(pipes) == 3


@on_linux
async def test_the_end_of_the_server_is_named() -> None:
    """Its workers end with it; calls say so at once, and the next attempt has workers of another server."""
    async with started(2) as engine:
        mine = engine.lease()
        await asyncio.gather(*(mine.call(worker, doze, 0) for worker in range(2)))
        call, pids, dead = asyncio.ensure_future(mine.call(0, doze, 60)), engine.pids, pid_of(engine._forks)
        await asyncio.sleep(0.1)
        os.kill(pids[1], signal.SIGSTOP)
        start = time.monotonic()
        os.kill(dead, signal.SIGKILL)
        says = rf"worker \d \(process \d+\) was lost and is started again: the fork server \({dead}\) "
        with pytest.raises(Interrupted, match=rf"{says}ended by signal 9"):
            await call
        assert time.monotonic() - start < 5
        assert gone(*pids)
        next_one = engine.lease()
        assert await asyncio.gather(*(next_one.call(worker, doze, 0) for worker in range(2))) == [0, 0]
        assert pid_of(engine._forks) != dead
        with pytest.raises(Interrupted, match=says):
            await mine.call(1, doze, 0)


def test_a_server_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A child that it has not forked in time is given up; whoever asks next has one of another server.

    Its other children run on until the end.
    """
    with server() as forks:
        first = forks.fork(echo, (1,))
        assert received(first) == (first.pid, 1)
        hung = pid_of(forks)
        os.kill(hung, signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(fork_server, "BOOT_S", 0.2)
            waits = forks.fork(echo, (2,))
            with pytest.raises(ChildProcessError, match="has not been forked"):
                _ = waits.pid
        monkeypatch.setattr(forks, "_asked", [(since - fork_server.BOOT_S, child) for since, child in forks._asked])
        assert received(forks.fork(echo, (3,)))[1] == 3
        assert pid_of(forks) != hung
        assert waits.ended(5)
        assert waits.fate == f"it could not be forked: the fork server ({hung}) has not answered for 30 s"
        assert f"({hung}) has not answered for 30 s: another one is started" in caplog.text
        assert not first.ended(0.2)
    assert gone(hung, first.pid)


def test_a_fork_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the system's words; the server goes on."""

    def full() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(forking, "why_unfit", str)
    monkeypatch.setattr(os, "fork", full)
    status, told = Pipe(duplex=False)
    near, far = Pipe()
    requests, _ = socket.socketpair()
    with requests, told, far, subprocess.Popen([sys.executable, "-c", ""]) as process:
        inside = forking._Server(requests)
        inside._answer(os.dup(told.fileno()), os.dup(far.fileno()))
        child = Child(process, near, status)
        assert child.ended(5)
        assert child.fate == "it could not be forked: Resource temporarily unavailable"
        assert not inside._running
        child.end()


def test_a_request_that_cannot_be_sent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptors under way are counted for each user; the next request is another try."""

    def full(*_: object) -> int:
        raise OSError(109, "Too many references: cannot splice")

    with server() as forks:
        with monkeypatch.context() as patch:
            patch.setattr(socket, "send_fds", full)
            child = forks.fork(echo, (1,))
        assert child.ended()
        assert child.fate == "it could not be forked: Too many references: cannot splice"
        child.end()
        assert received(forks.fork(echo, (2,)))[1] == 2


def test_a_child_that_fails_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    """On standard error, as a program does; its status is 1. What a child cannot import is the child's own error."""
    with server("no.such_module") as forks:
        child = forks.fork(fail, ())
        assert child.ended(30)
        assert (child.exitcode, child.fate) == (1, "")
    assert "LookupError: of a child" in capfd.readouterr().err


def test_a_child_that_is_given_up_ends() -> None:
    """Before it is forked, as after."""
    with server() as forks:
        child = forks.fork(echo, (1,))
        child.end()  # most likely the server still boots
        assert received(forks.fork(echo, (2,)))[1] == 2
        assert child.ended(5)


@on_linux
def test_workers_of_a_script_and_its_interpreter(tmp_path: Path) -> None:
    """`python -O` and a path that a script has set hold in workers; after a SIGKILL of the script none is left."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "own_kernels.py").write_text("from tests.worker_kernels import interpreter, compute\n")
    (tmp_path / "script.py").write_text(
        f"import sys; sys.path[:0] = [{str(ROOT)!r}]\n"
        "import asyncio\n"
        "from treetap.workers.engines import ProcessEngine\n"
        "async def main():\n"
        "    engine = ProcessEngine(2, 20.0)\n"
        "    engine.start()\n"
        f"    sys.path.insert(0, {str(tmp_path / 'own')!r})\n"
        "    import own_kernels\n"
        "    said = [await engine.lease().call(worker, own_kernels.interpreter) for worker in range(2)]\n"
        "    print(said, engine._forks._process.pid, *engine.pids, sep='|', flush=True)\n"
        "    await engine.lease().call(1, own_kernels.compute, 60)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-O", str(tmp_path / "script.py")], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as script:
        assert script.stdout is not None
        said, *pids = script.stdout.readline().strip().split("|")
        assert said == str([(1, "tests.worker_kernels")] * 2)
        assert interpreter({})[0] == sys.flags.optimize
        time.sleep(0.1)
        script.kill()
    assert len(pids) == 3
    assert gone(*map(int, pids))
