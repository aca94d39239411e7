"""An event loop whose clock jumps: minutes of waiting take no time, and a hang is an error instead of a wait."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")
#: Virtual seconds after which signs of life without an end count as a hang.
LONGEST_S = 6 * 3600.0


class Deadlock(AssertionError):
    """Nothing is scheduled and somebody still waits: in a real federation, a hang."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Time passes only when everybody waits, and then at once."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Jump(self))

    def time(self) -> float:
        return self._now

    def pass_time(self, seconds: float | None) -> None:
        if seconds is None:
            raise Deadlock("everybody waits for ever")
        self._now += max(0.0, seconds)
        if self._now > LONGEST_S:
            raise Deadlock(f"nothing has come of it within {LONGEST_S:g} s")


class _Jump(selectors.SelectSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout == 0 and len(self.get_map()) == 1:
            return []  # the loop has work, and listens to nothing but its own wake-up
        ready = super().select(0)
        if not ready:
            self._loop.pass_time(timeout)
        return ready


#: What is to end with the loop that runs, in order.
AT_END: ContextVar[list[Callable[[], Awaitable[None]]] | None] = ContextVar("AT_END", default=None)


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` under virtual time; after `main`, and if that succeeds, what is in `AT_END` is done."""

    async def whole() -> T:
        ends: list[Callable[[], Awaitable[None]]] = []
        AT_END.set(ends)
        found = await main
        for end in ends:
            await end()
        return found

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(whole())
