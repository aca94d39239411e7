"""Kernels that tests of engines call: workers import them from here, also those on a cluster."""

from __future__ import annotations

import os
import sys
import time
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


def doze(state: State, seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def work_slowly(state: State, seconds: float) -> str:
    for _ in range(int(10 * seconds)):
        time.sleep(0.1)
        finish_unit()
    return "done"


def process(state: State) -> int:
    return os.getpid()


def imported(state: State, module: str) -> bool:
    return module in sys.modules
