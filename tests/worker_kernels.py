"""Kernels that tests of engines call: workers import them from here, also those on a cluster."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from treetap.errors import Malformed
from treetap.usage import finish_unit

State = dict[str, Any]


def remember(state: State, name: str, value: Any) -> list[Any]:
    state.setdefault(name, []).append(value)
    return list(state[name])


def size_of(state: State, value: bytes) -> int:
    return len(value)


def refuse(state: State) -> None:
    raise Malformed("not a ciphertext")


class Unpicklable(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(first)


def refuse_strangely(state: State) -> None:
    raise Unpicklable(1, 2)


def leave(state: State) -> None:
    os._exit(9)


def doze(state: State, seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def work_slowly(state: State, seconds: float) -> str:
    for _ in range(int(10 * seconds)):
        time.sleep(0.1)
        finish_unit()
    return "done"


def compute(state: State, seconds: float) -> None:
    """Use so much of the processor."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def spin(state: State) -> None:
    while True:
        pass


def environment(state: State) -> tuple[list[str], dict[str, str], bytes]:
    return sys.argv, dict(os.environ), Path("/proc/self/cmdline").read_bytes()


def descriptors(state: State) -> dict[int, str]:
    """What each open descriptor of this worker is, as Linux names it."""
    with os.scandir("/proc/self/fd") as folder:
        numbers = [int(entry.name) for entry in folder]
    opened = {}
    for number in numbers:
        with suppress(OSError):  # that of the folder itself
            opened[number] = os.readlink(f"/proc/self/fd/{number}")
    return opened


def interpreter(state: State) -> tuple[int, str]:
    """The level of `python -O`, and where this kernel comes from."""
    return sys.flags.optimize, interpreter.__module__


def process(state: State) -> int:
    return os.getpid()


def imported(state: State, module: str) -> bool:
    return module in sys.modules
