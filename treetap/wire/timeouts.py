"""Limits of repeating a call to a process that does not answer."""

from __future__ import annotations

import asyncio

#: Seconds for which a broken connection is tried again, from the break on.
RETRY_S = 10.0
#: Breaks that one call survives: a connection that keeps breaking is a failed one.
MOST_BREAKS = 1000
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 1.0


class Reconnects:
    """The breaks of one call and the pauses between its repeats."""

    def __init__(self, retry_s: float = RETRY_S) -> None:
        self._retry_s = retry_s
        self._give_up: float | None = None
        self._wait = _FIRST_WAIT_S
        self._breaks = 0

    def heard(self) -> None:
        """Note an answer of the other side: the next break is a new one."""
        self._give_up, self._wait = None, _FIRST_WAIT_S

    async def again(self) -> bool:
        """After a break: pause and return True, or False where it has lasted too long."""
        now = asyncio.get_running_loop().time()
        if self._give_up is None:
            self._give_up = now + self._retry_s
        self._breaks += 1
        if now + self._wait > self._give_up or self._breaks > MOST_BREAKS:
            return False
        await asyncio.sleep(self._wait)
        self._wait = min(2 * self._wait, _LONGEST_WAIT_S)
        return True
