"""The process from which the processes of a run of tests are forked; `tests.forks` starts it.

It imports what they need, and then forks itself for each process that connects: into a fork server of that process's
own. It ends with its standard input.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
from multiprocessing.connection import wait

from tests.heavy_libraries import hide_as_asked
from tests.prepared import preload
from treetap.process import forking


def main() -> None:
    """Print the address, then import, then fork."""
    made = tempfile.TemporaryDirectory(prefix="treetap-forks-")
    with made as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/socket")
        listener.listen()
        print(listener.getsockname(), flush=True)
        hide_as_asked()
        preload()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a server
        while sys.stdin.fileno() not in (ready := wait([listener, sys.stdin.fileno()])):
            assert ready
            client, _ = listener.accept()
            if os.fork() == 0:
                made._finalizer.detach()  # type: ignore[attr-defined] # a child's functions at its exit leave the folder
                listener.close()
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                forking.serve(client.detach(), ())
            client.close()


if __name__ == "__main__":
    main()
