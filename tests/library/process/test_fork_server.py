"""A fork server: what its children inherit, what it knows and draws, and what comes of the end of each process."""

from __future__ import annotations

import os
import re
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
from tests.fork_targets import ask, descriptors, echo, end, fail
from tests.memory import forms_of, held_in
from treetap.additive.paillier.secret_key import SecretKey
from treetap.lab import servers
from treetap.process import fork_server, forking
from treetap.process.fork_server import ONE_THREAD, Child, ForkServer

pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("own_server")]

ROOT = Path(__file__).parents[3]
#: What servers import.
MODULES = ["treetap.process.apart", "treetap.workers.cluster.engine", *servers.MODULES]
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")


@contextmanager
def server(*modules: str) -> Iterator[ForkServer]:
    """A fork server that is closed at the end."""
    forks = ForkServer()
    forks.begin(["treetap.process.forking", *modules])
    try:
        yield forks
    finally:
        forks.close()


def pid_of(forks: ForkServer) -> int:
    assert forks._server is not None
    return forks._server[0].pid


def received(child: Child) -> Any:
    """What a child sends first."""
    assert child.pipe.poll(30), child.fate
    while not child.answered:  # it may speak before the server says that it was forked
        time.sleep(0.01)
    return child.pipe.recv()


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
    """Importing what children need draws nothing, starts no thread, and does not initialise gRPC.

    numpy's generators are not even imported. Of what libraries ask the system for, a child draws its own again.
    """
    code = (
        "import os, sys; asked = []; real = os.urandom",
        "os.urandom = lambda size: asked.append(sys._getframe(1).f_globals['__name__']) or real(size)",
        "from treetap.process import forking",
        "import random",
        f"forking.preload({MODULES!r})",
        "import gmpy2, nacl.bindings, numpy",
        "print(asked, random.getstate()[1][-1], 'numpy.random' in sys.modules, [forking.why_unfit()])",
        "import grpc; print('imported', file=sys.stderr, flush=True); grpc.insecure_channel('127.0.0.1:1').close()",
    )
    said = subprocess.run(
        [sys.executable, "-c", "\n".join(code)],
        env={**os.environ, **ONE_THREAD, "GRPC_VERBOSITY": "DEBUG", "GRPC_TRACE": "api"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    # 624: Python's generator has been seeded, and has given no value
    assert said.stdout == "['multiprocessing.process'] 624 False ['']\n"
    assert ["grpc_init" in part for part in said.stderr.split("imported")] == [False, True]


@on_linux
def test_the_server_has_one_thread() -> None:
    """As the system counts, once it has imported and forked; a child that has ended is no zombie."""
    with server(*MODULES) as forks:
        child = forks.fork(echo, ("first",))
        pid, said = received(child)
        assert said == "first"
        tasks = Path(f"/proc/{pid_of(forks)}/task")
        assert len([*tasks.iterdir()]) == 1
        assert [int(pid) for pid in (tasks / str(pid_of(forks)) / "children").read_text().split()] == [pid]
        child.end()
        assert child.exitcode == -signal.SIGKILL
        assert not Path(f"/proc/{pid}").exists()


def test_a_server_with_threads_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, at the first child and at every other."""
    (tmp_path / "starts_a_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with server("starts_a_thread") as forks:
        for _ in range(2):
            child = forks.fork(echo, (1,))
            assert child.ended(30)
            assert re.match(r"the fork server \(\d+\) has 2 threads", child.refusal)


@on_linux
def test_a_child_inherits_its_own_descriptors_alone() -> None:
    """The streams and its pipe; no pipe of another child or of the server, also in one forked later."""
    with server() as forks:
        children = [forks.fork(descriptors, ()) for _ in range(3)]
        opened = [received(child) for child in children]
        children[1].end()
        opened.append(received(forks.fork(descriptors, ())))
    pipes = set()
    for numbers in opened:
        assert numbers.pop(0) == "/dev/null"
        for stream in (1, 2):
            assert numbers.pop(stream) == os.readlink(f"/proc/self/fd/{stream}")
        (pipe,) = numbers.values()
        assert pipe.startswith("socket")
        pipes.add(pipe)
    assert len(pipes) == 4


@on_linux
def test_the_end_of_the_server_is_named() -> None:
    """Its children end with it, stopped ones too; the next child is another server's."""
    with server() as forks:
        children = [forks.fork(echo, (number,)) for number in range(2)]
        pids, dead = [received(child)[0] for child in children], pid_of(forks)
        os.kill(pids[1], signal.SIGSTOP)
        os.kill(dead, signal.SIGKILL)
        assert all(child.ended(5) for child in children)
        assert {child.fate for child in children} == {f"the fork server ({dead}) ended by signal 9"}
        assert gone(*pids)
        assert received(forks.fork(echo, (3,)))[1] == 3
        assert pid_of(forks) != dead


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_interrupts_are_left_to_the_party(number: int) -> None:
    """Ctrl-C reaches a whole process group, SIGHUP may; servers and children ignore both, even while they boot."""
    with server() as forks:
        os.kill(pid_of(forks), number)  # still booting
        child = forks.fork(echo, (1,))
        os.kill(received(child)[0], number)
        os.kill(pid_of(forks), number)
        assert received(forks.fork(echo, (2,)))[1] == 2
        assert not child.ended(0.1)


@on_linux
def test_nothing_secret_in_arguments_or_environment() -> None:
    """What a child is given is in no command line and no environment, its own and the server's."""
    with server() as forks:
        child = forks.fork(echo, ("swordfish-4711",))
        pid, _ = received(child)
        for each in (pid, pid_of(forks)):
            for place in ("environ", "cmdline"):
                content = Path(f"/proc/{each}/{place}").read_bytes()
                assert content
                assert b"swordfish" not in content


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="no user but root can read the memory of these processes"
)
def test_no_key_is_in_the_server_or_its_children() -> None:
    """A search for a key in use finds it in this process, and in no memory of theirs."""
    key = SecretKey.generate(1024)
    forms = {form for name, number in (("p", key._p), ("q", key._q)) for form in forms_of(name, int(number))}
    with server(*MODULES) as forks:
        child, _ = received(forks.fork(echo, (1,)))
        assert held_in(os.getpid(), forms)
        assert not any(held_in(pid, forms) for pid in (child, pid_of(forks)))


def test_a_server_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It is killed with its children; one that it has not forked in time says why. The next is another server's."""
    with server() as forks:
        first = forks.fork(echo, (1,))
        pid, _ = received(first)
        hung = pid_of(forks)
        os.kill(hung, signal.SIGSTOP)
        waits = forks.fork(echo, (2,))
        monkeypatch.setattr(forks, "_asked", [(since - fork_server.BOOT_S, child) for since, child in forks._asked])
        assert received(forks.fork(echo, (3,)))[1] == 3
        assert pid_of(forks) != hung
        assert waits.ended(5)
        assert waits.fate == f"it could not be forked: the fork server ({hung}) has not answered for 30 s"
        assert f"({hung}) has not answered for 30 s: another one is started" in caplog.text
        assert gone(hung, pid)


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
        inside._answer(requests.fileno(), os.dup(told.fileno()), os.dup(far.fileno()), asking=True)
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
@pytest.mark.parametrize("way", ["client", "child"])
def test_children_of_children(way: str) -> None:
    """A child that may ask has children of the same server, with its environment; they end with it, and with all."""
    with server() as forks:
        os.environ["OF_THE_CLIENT"] = "known"
        try:
            child = forks.fork(ask, (), asking=True)
        finally:
            del os.environ["OF_THE_CLIENT"]
        pid, parent, known = received(child)
        assert (parent, known) == (pid_of(forks), "known")
        assert _runs(pid)
        if way == "child":
            child.kill()
            assert gone(pid, child.pid)
            assert received(forks.fork(echo, (1,)))[1] == 1
    assert gone(pid, child.pid)


@pytest.mark.parametrize(("code", "status"), [(None, 0), (2, 2), ("a reason", 1)])
def test_a_child_ends_as_a_program(code: object, status: int, tmp_path: Path) -> None:
    """Its status is that of `sys.exit`, and what it registered for its end is done, after its threads."""
    with server() as forks:
        child = forks.fork(end, (code, tmp_path / "order"))
        assert child.ended(30)
        assert child.exitcode == status
    assert (tmp_path / "order").read_text() == "thread, atexit"


@on_linux
def test_children_of_a_script_and_its_interpreter(tmp_path: Path) -> None:
    """`python -O` and a path that a script has set hold in children; after a SIGKILL of the script none is left."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "own_targets.py").write_text("from tests.fork_targets import interpreter\n")
    (tmp_path / "script.py").write_text(
        f"import sys; sys.path[:0] = [{str(ROOT)!r}]\n"
        "from treetap.process.fork_server import ForkServer\n"
        "forks = ForkServer()\n"
        f"sys.path.insert(0, {str(tmp_path / 'own')!r})\n"
        "import own_targets\n"
        "children = [forks.fork(own_targets.interpreter, ()) for _ in range(2)]\n"
        "said = [child.pipe.recv() for child in children]\n"
        "print([level for _, level in said], forks._server[0].pid, *(pid for pid, _ in said), sep='|', flush=True)\n"
        "children[0].pipe.recv()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-O", str(tmp_path / "script.py")], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as script:
        assert script.stdout is not None
        said, *pids = script.stdout.readline().strip().split("|")
        assert said == "[1, 1]"
        time.sleep(0.1)
        script.kill()
    assert len(pids) == 3
    assert gone(*map(int, pids))
