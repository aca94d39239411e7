"""Jobs that wait for their turn, since as many are under way as may be; whose turn is next, by operator."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

#: Seconds until a job that a party was too busy for is tried again: of the first time, and the most.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0


@dataclass
class Place:
    """A job's place.

    Attributes:
        why: a party's word that it is too busy, or whose people are to decide.
        again_at: the loop's time of the next attempt.
        approval: it waits for people, and for no turn.
    """

    job: str
    operator: str
    expiry: asyncio.TimerHandle
    why: str = ""
    again_at: float = 0.0
    approval: bool = False


class Waiting:
    """The jobs in the order in which they came.

    Next is the first job of the operator who has the fewest under way; of several, of whoever's turn is longest ago.
    """

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._turns: dict[str, int] = {}  # operator → number of the last turn
        self._numbers = itertools.count(1)
        self._pauses: dict[str, float] = {}
        self._moved = asyncio.Event()

    def __contains__(self, job: object) -> bool:
        return job in self._places

    def __len__(self) -> int:
        """The number of jobs that wait for their turn."""
        return sum(not place.approval for place in self._places.values())

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def add(self, place: Place) -> None:
        """Put a job behind all others."""
        if place.approval:
            place.again_at = math.inf
        elif place.why:
            pause = self._pauses.get(place.job, FIRST_PAUSE_S)
            self._pauses[place.job] = min(2 * pause, LONGEST_PAUSE_S)
            place.again_at = asyncio.get_running_loop().time() + pause
        self._places[place.job] = place
        self.move()

    def remove(self, job: str, *, turn: bool = False) -> None:
        """Take a job out. `turn`: it is its turn; else it is over."""
        place = self._places.pop(job, None)
        if place is None:
            return
        place.expiry.cancel()
        if turn:
            self._turns[place.operator] = next(self._numbers)
        else:
            self._pauses.pop(job, None)
        self.move()

    def next(self, running: Iterable[str]) -> Place | None:
        """The job whose turn it is; None if none may begin now. `running`: the operator of each job under way."""
        now, busy = asyncio.get_running_loop().time(), Counter(running)
        first: dict[str, Place] = {}
        for place in self._places.values():
            if place.again_at <= now:
                first.setdefault(place.operator, place)
        order = sorted(first.values(), key=lambda place: (busy[place.operator], self._turns.get(place.operator, 0)))
        return order[0] if order else None

    def pause_s(self) -> float | None:
        """The seconds until a job may be tried again that could not be before; None if there is none."""
        later = [place.again_at for place in self._places.values() if place.why and not place.approval]
        return max(0.0, min(later) - asyncio.get_running_loop().time()) if later else None

    def hurry(self) -> None:
        """Let all be tried again at once: a job has ended, and its parties are less busy."""
        for place in self._places.values():
            if not place.approval:
                place.again_at = 0.0

    def decided(self, job: str) -> None:
        """Let a job that waited for people have its turn."""
        place = self._places[job]
        place.approval, place.why, place.again_at = False, "", 0.0
        self.move()

    def tell(self, job: str, why: str) -> None:
        """Say whose people a job waits for."""
        self._places[job].why = why
        self.move()

    def for_people(self, job: str) -> bool:
        """True if a job waits for people."""
        return job in self._places and self._places[job].approval

    def sentence(self, job: str, most: int) -> str:
        place, others = self._places[job], list(self._places)
        before = sum(not self._places[other].approval for other in others[: others.index(job)])
        behind = f"; {before} came before it" if before else ""
        return place.why or f"waits until one of the {most} jobs under way ends (most_jobs = {most}){behind}"

    def close(self) -> None:
        """Forget all: the journal has them."""
        for place in self._places.values():
            place.expiry.cancel()
        self._places.clear()
        self.move()

    async def moved(self) -> None:
        """Wait until a job comes or goes."""
        await self._moved.wait()

    def move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
