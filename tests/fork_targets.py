"""What children of a fork server run for tests."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection


def echo(pipe: Connection, value: object) -> None:
    """Send a value back, and stay until the party is gone."""
    pipe.send((os.getpid(), value))
    pipe.poll(None)


def fail(pipe: Connection) -> None:
    """End by an error."""
    raise LookupError("of a child")
