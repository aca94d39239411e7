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
        assert _writers(log) == {running.pid("bank")}
        assert b"forkserver" in Path(f"/proc/{running.pid('bank')}/cmdline").read_bytes()
        running.kill("bank")
        until(lambda: not _writers(log), "the party ends")
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
@pytest.mark.usefixtures("as_typed")
def test_a_typed_federation(tmp_path: Path) -> None:
    """The fixture for tests of how processes begin and end."""
    with LocalFederation(tmp_path, {}) as running:
        assert isinstance(running._processes["coordinator"], subprocess.Popen)
