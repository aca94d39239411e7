"""A bounded queue of clients' requests, in order of arrival until a round takes them, each with a deadline."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from treetap.errors import NotServed, Overloaded, Silent
from treetap.party.runtime.context import Rows
from treetap.wire.v2.serving_pb2 import RecordPrediction

#: Part of the window, 1 in so many, for which no request comes before a round begins without those expected.
QUIET = 10


@dataclass(eq=False)
class _Request:
    """One request: its records that no round has taken yet, and the predictions received."""

    left: list[int]
    missing: int
    asked_at: float
    answered: asyncio.Future[None]
    found: dict[int, RecordPrediction] = field(default_factory=dict)


class RequestQueue:
    """The requests for one served model.

    A round begins once as many requests wait as can be expected: those that the last round answered, whose clients may
    ask again, and those that it left waiting. A client that asks alone waits for nobody. Who is expected and does not
    come holds the others up until none has come for a tenth of the window.

    Args:
        most: the most records that wait for a round.
        window_s: seconds for which the first request of a round waits at most for the expected others.
        waiting: called with every change of the number of records that wait.
    """

    def __init__(self, most: int, window_s: float, waiting: Callable[[int], None]) -> None:
        self._most, self._window, self._waiting = most, window_s, waiting
        self._queue: deque[_Request] = deque()
        self._open: set[_Request] = set()
        self._block: dict[int, list[_Request]] = {}  # place → its requests, in the running round
        self._records = 0  # number of records that wait
        self._expected = 1  # requests that a round waits for
        self._moved_at = 0.0  # when the last request came or the last round ended
        self._arrived = asyncio.Event()
        self._closed = ""

    async def ask(self, places: Iterable[int], within_s: float) -> dict[int, RecordPrediction]:
        """The predictions of these distinct records, without their ids.

        Raises:
            Overloaded: too many records wait already.
            Silent: no answer within `within_s` seconds.
            NotServed: the model is no longer served.
        """
        left = list(places)
        if self._closed:
            raise NotServed(self._closed)
        if self._records + len(left) > self._most:
            raise Overloaded(f"{self._records} records wait for a prediction already, at most {self._most} may")
        loop = asyncio.get_running_loop()
        request = _Request(left, len(left), loop.time(), loop.create_future())
        self._queue.append(request)
        self._moved_at = request.asked_at
        self._open.add(request)
        self._count(len(left))
        self._arrived.set()
        try:
            async with asyncio.timeout(within_s):
                await request.answered
        except TimeoutError:
            raise Silent(f"no prediction within {within_s:g} s") from None
        finally:
            self._open.discard(request)
            if request.left:
                self._queue.remove(request)
                self._count(-len(request.left))
        return request.found

    async def gather(self, most: int, wait_s: float) -> Rows:
        """Up to `most` records for a round, ascending; empty if no request arrives within `wait_s` seconds.

        If none does, the next request is expected to be alone.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + wait_s
        while True:
            now = loop.time()
            until = end
            if self._queue:
                until = min(self._queue[0].asked_at + self._window, self._moved_at + self._window / QUIET)
            complete = self._records >= most or len(self._queue) >= self._expected
            if self._queue and (complete or now >= until):
                # take the records of the first requests; one of several requests is taken once
                self._block = {}
                while self._queue:
                    first = self._queue[0]
                    while first.left and (first.left[-1] in self._block or len(self._block) < most):
                        self._block.setdefault(first.left.pop(), []).append(first)
                        self._count(-1)
                    if first.left:
                        break
                    self._queue.popleft()
                return np.array(sorted(self._block), dtype=np.int64)
            if not self._queue and now >= end:
                self._expected = 1
                return np.zeros(0, dtype=np.int64)
            self._arrived.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._arrived.wait()
            except TimeoutError:
                continue

    def keep(self, rows: Rows, predictions: Sequence[RecordPrediction]) -> None:
        """Distribute the predictions of the running round, all at once; complete requests are answered."""
        answered = 0
        for place, prediction in zip(rows.tolist(), predictions, strict=True):
            for request in self._block.pop(place, ()):
                request.found[place] = prediction
                request.missing -= 1
                if not request.missing and not request.answered.done():
                    request.answered.set_result(None)
                    answered += 1
        self._expected = max(1, answered + len(self._queue))
        self._moved_at = asyncio.get_running_loop().time()

    def close(self, why: str) -> None:
        """Refuse further requests; those that wait get this error."""
        self._closed = why
        for request in list(self._open):
            if not request.answered.done():
                request.answered.set_exception(NotServed(why))
        self._arrived.set()

    def _count(self, change: int) -> None:
        self._records += change
        self._waiting(change)
