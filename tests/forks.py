"""Processes that are forked for tests: commands, and the servers of federations, without their second of imports.

One process imports for a whole run of tests: the process that controls pytest-xdist starts it and names its address to
all workers. A process that uses the address has a fork server there, by which `treetap.process.fork_server` forks.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from treetap.process import forking
from treetap.process.fork_server import ONE_THREAD

_started: list[tuple[str, subprocess.Popen[str]]] = []


def start_server() -> str:
    """The address of the process that imports, and does so while this one goes on; it is started unless there is one.

    It ends with this process.
    """
    if not _started:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.preloaded"],
            cwd=Path(__file__).parents[1],
            env={**os.environ, **ONE_THREAD},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        _started.append((process.stdout.readline().strip(), process))
    return _started[0][0]


def use_server(address: str) -> None:
    """Have this process fork by the process at an address, which another one may have started."""
    forking.above = socket.socket(socket.AF_UNIX)
    forking.above.connect(address)
