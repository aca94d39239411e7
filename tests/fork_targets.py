"""What children of a fork server run for tests."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from multiprocessing.connection import Connection


def echo(pipe: Connection, value: object) -> None:
    """Send a value back, and stay until the party is gone."""
    pipe.send((os.getpid(), value))
    pipe.poll(None)


def fail(pipe: Connection) -> None:
    """End by an error."""
    raise LookupError("of a child")


def descriptors(pipe: Connection) -> None:
    """Send what each open descriptor is, as Linux names it, and stay."""
    with os.scandir("/proc/self/fd") as folder:
        numbers = [int(entry.name) for entry in folder]
    opened = {}
    for number in numbers:
        with suppress(OSError):  # that of the folder itself
            opened[number] = os.readlink(f"/proc/self/fd/{number}")
    pipe.send(opened)
    pipe.poll(None)


def interpreter(pipe: Connection) -> None:
    """Send the own number and the level of `python -O`, and stay."""
    pipe.send((os.getpid(), sys.flags.optimize))
    pipe.poll(None)
