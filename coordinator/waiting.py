"""Jobs that wait for their turn, since as many are under way as may be, or for people.

Whose turn is next goes by operator. Of jobs that wait for people, parties are asked at growing intervals whether theirs
have decided. A question is the opening of the job with a mark that it only asks: no session opens, no table is read,
and the journal gets no line of it. The job has no place among those under way. Once no party's people are to decide any
more, it begins another attempt, by which a refusal ends it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from google.protobuf.message import Message

from treetap.coordinator.attempt import Parties
from treetap.coordinator.runtime.job_record import Submitted
from treetap.errors import Interrupted, Overloaded, Pending, TreetapError
from treetap.process.together import ended
from treetap.wire.v2 import setup_pb2, types_pb2

log = logging.getLogger(__name__)

#: Seconds until a job that a party was too busy for is tried again, or whose people are asked about: the first time,
#: and the most.
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


DAY_S = 86_400.0


class Questions:
    """Asks the parties of one coordinator about jobs that wait for people."""

    def __init__(self, parties: Parties) -> None:
        self._parties = parties
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(
        self,
        job: str,
        submitted: Submitted,
        attempt: int,
        tell: Callable[[str], None],
        decided: Callable[[], None],
    ) -> None:
        """Ask until all have decided. `tell`: gets a sentence that names whose people have not; `decided`: ends it."""
        self.end(job)
        task = asyncio.ensure_future(self._ask(job, submitted, attempt, tell))
        self._tasks[job] = task

        def ended(task: asyncio.Task[None]) -> None:
            if self._tasks.get(job) is task:
                del self._tasks[job]
                if not task.cancelled():
                    decided()

        task.add_done_callback(ended)

    def end(self, job: str) -> None:
        """Ask no more about a job."""
        if (task := self._tasks.pop(job, None)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Ask no more about any job."""
        tasks, self._tasks = list(self._tasks.values()), {}
        await ended(tasks)

    async def _ask(self, job: str, submitted: Submitted, attempt: int, tell: Callable[[str], None]) -> None:
        """Return once no people are to decide, as far as is known; an error of ours is the attempt's to tell."""
        pause = FIRST_PAUSE_S
        while True:
            try:
                roster = self._parties.roster(
                    job, attempt, submitted, submitted.members, self._parties.byte_counts(), None
                )
                # The parties whose people have not decided yet, and those that do not answer now.
                roster.log_level = logging.DEBUG  # the question is repeated for days
                step, body = _opening(submitted, roster.peers())
                asked = (roster.ask(party, step, body, asks_only=True) for party in roster.names)
                answers = zip(roster.names, await asyncio.gather(*asked, return_exceptions=True), strict=True)
                undecided = [
                    party for party, answer in answers if isinstance(answer, Pending | Interrupted | Overloaded)
                ]
            except TreetapError as failure:
                log.warning("job %s: %s", job, failure)
                return
            if not undecided:
                return
            tell(f"waiting for approval of {', '.join(undecided)}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)


def _opening(submitted: Submitted, peers: Sequence[types_pb2.Peer]) -> tuple[str, Message]:
    """The step that opens a job, and its content."""
    if submitted.kind == "train":
        body = setup_pb2.Prepare(peers=peers)
        body.MergeFrom(submitted.prepare)
        return "prepare", body
    opening = submitted.preview if submitted.kind == "align" else submitted.opening
    opening.peers.extend(peers)
    return "open_preview" if submitted.kind == "align" else "open_model", opening
