"""What children of a fork server run for tests."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from treetap.process.fork_server import FORKS


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


def ask(pipe: Connection) -> None:
    """Have a child, and pass on its number, its parent's, and a variable of this process's client; stay."""
    child = FORKS.fork(about, ())
    pipe.send(child.pipe.recv())
    pipe.poll(None)


def about(pipe: Connection) -> None:
    """Send the own number, the parent's, and a variable of the client of whoever asked for this process; stay."""
    pipe.send((os.getpid(), os.getppid(), os.environ.get("OF_THE_CLIENT")))
    pipe.poll(None)


def end(_: Connection, code: str | int | None, told: Path) -> None:
    """Leave as a program does, with a thread that ends after this one, and with a function for the end."""

    def say(word: str) -> None:
        with told.open("a") as file:
            file.write(word)

    atexit.register(say, ", atexit")

    def outlast() -> None:
        threading.main_thread().join()
        say("thread")

    threading.Thread(target=outlast).start()
    sys.exit(code)


def interpreter(pipe: Connection) -> None:
    """Send the own number and the level of `python -O`, and stay."""
    pipe.send((os.getpid(), sys.flags.optimize))
    pipe.poll(None)
