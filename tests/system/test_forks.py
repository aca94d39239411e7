"""Forked processes of a federation: sessions, statuses and streams as of those that a person types."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.forks import Forked
from tests.system.federations import until
from treetap.errors import BadInput
from treetap.lab.local_federation import LocalFederation


@pytest.mark.skipif(
    os.getuid() != 0, reason="only root sees the open files of processes that keep their memory private"
)
def test_a_forked_federation(tmp_path: Path) -> None:
    """Each process leads a session, is waited for, hears signals, and ends when its standard input closes."""
    with LocalFederation(tmp_path, {"bank": {"workers": 1}}) as running:
        processes: dict[str, Any] = running._processes
        for process in processes.values():
            assert isinstance(process, Forked)
            assert os.getsid(process.pid) == process.pid != os.getpid()
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.01)
        assert running.alive
        log = os.stat(tmp_path / "bank" / "log.txt")
        party_and_worker = _writers(log)
        assert len(party_and_worker) == 2 > len(party_and_worker - {running.pid("bank")})
        assert all(b"forkserver" in Path(f"/proc/{each}/cmdline").read_bytes() for each in party_and_worker)
        running.kill("bank")
        until(lambda: not _writers(log), "the worker ends with its party")
        assert (processes["bank"].returncode, running.alive) == (-signal.SIGKILL, False)
        processes["coordinator"].stdin.close()
        assert processes["coordinator"].wait(10) == 0
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


@pytest.mark.second_tier
@pytest.mark.skipif(os.getuid() != 0, reason="only root sees the open files of these processes")
@pytest.mark.usefixtures("as_typed")
def test_a_typed_party_and_its_fork_server(tmp_path: Path) -> None:
    """A fork server of one thread, without keys, tables, state or sockets of the party; it and its workers end with it.

    Killed, it takes its workers with it, and the party serves on.
    """
    with LocalFederation(tmp_path, {"bank": {"workers": 2}}) as running:
        bank = running.pid("bank")
        [server] = _forked_by(bank)
        workers = _forked_by(server)
        assert len(workers) == 2
        assert len(os.listdir(f"/proc/{server}/task")) == 1
        for pid in (server, *workers):
            opened = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}
            assert not any(str(tmp_path) in name for name in opened - {str(tmp_path / "bank" / "log.txt")})
            sockets = {name for name in opened if name.startswith("socket:")}
            assert len(sockets) == 1  # from the party
        os.kill(server, signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "workers end with their server")
        assert running.alive
        running.kill("bank")
    with LocalFederation(tmp_path / "again", {"bank": {"workers": 1}}) as running:
        [server] = _forked_by(running.pid("bank"))
        [worker] = _forked_by(server)
        os.kill(worker, signal.SIGSTOP)
        running.kill("bank")
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (server, worker)), "both end with the party")


def _forked_by(pid: int) -> list[int]:
    """The processes that a process has started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(child) for task in tasks for child in task.read_text().split())


@pytest.mark.second_tier
@pytest.mark.usefixtures("as_typed")
def test_a_typed_federation(tmp_path: Path) -> None:
    """The fixture for tests of how processes begin and end."""
    with LocalFederation(tmp_path, {}) as running:
        assert isinstance(running._processes["coordinator"], subprocess.Popen)
