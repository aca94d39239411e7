"""Processes of a federation, which are forked: sessions, names, statuses, streams and ends."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.system.federations import until
from treetap.errors import BadInput
from treetap.lab.local_federation import LocalFederation
from treetap.process.fork_server import FORKS


@pytest.mark.skipif(
    os.getuid() != 0, reason="only root sees the open files of processes that keep their memory private"
)
def test_a_forked_federation(tmp_path: Path) -> None:
    """Each process leads a session, is waited for, hears signals, and ends when its standard input closes."""
    with LocalFederation(tmp_path, {"bank": {"workers": 1}}) as running:
        processes = running._processes
        for name, process in processes.items():
            assert os.getsid(process.pid) == process.pid != os.getpid()
            assert Path(f"/proc/{process.pid}/comm").read_text() == f"{name}\n"
            assert not process.ended(0.01)
        assert running.alive
        log = os.stat(tmp_path / "bank" / "log.txt")
        assert _writers(log) == {running.pid("bank")}
        running.kill("bank")
        until(lambda: not _writers(log), "the party ends")
        assert (processes["bank"].exitcode, running.alive) == (-signal.SIGKILL, False)
        processes["coordinator"].pipe.close()
        assert processes["coordinator"].ended(10)
        assert processes["coordinator"].exitcode == 0
        assert "coordinator coordinator stops" in (tmp_path / "coordinator" / "log.txt").read_text()


def _writers(file: os.stat_result) -> set[int]:
    """Processes whose standard error is a file."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.path.samestat(os.stat(process / "fd" / "2"), file):
                found.add(int(process.name))
    return found


def test_bad_input_of_a_forked_process(tmp_path: Path) -> None:
    """Status 2 and the message, which goes to the log."""
    with pytest.raises(BadInput, match=r"bank ended with status 2: .*workers"):
        LocalFederation(tmp_path, {"bank": {"workers": 0}}).__enter__()


@pytest.mark.usefixtures("own_server")
def test_a_server_that_is_killed_takes_the_federation_with_it(tmp_path: Path) -> None:
    """What starts next says so, and is forked from another one."""
    with LocalFederation(tmp_path / "first", {"bank": {}}) as running:
        pids = [process.pid for process in running._processes.values()]
        assert FORKS._server is not None
        server, _ = FORKS._server
        server.kill()
        until(lambda: not running.alive, "the federation ends")
        assert running._processes["bank"].fate == f"the fork server ({server.pid}) ended by signal 9"
        until(lambda: not any(Path(f"/proc/{pid}/fd").exists() for pid in pids), "its processes end")
        with LocalFederation(tmp_path / "second", {"bank": {}}) as other:
            assert other.alive


@pytest.mark.usefixtures("own_server")
def test_a_server_with_threads_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No party is forked from it, and the message says why."""
    (tmp_path / "starts_a_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    FORKS.close()
    monkeypatch.setattr(FORKS, "_modules", ["starts_a_thread"])
    with pytest.raises(BadInput, match=r"^the fork server \(\d+\) has 2 threads"):
        LocalFederation(tmp_path / "federation", {"bank": {}}).__enter__()
    FORKS.close()
