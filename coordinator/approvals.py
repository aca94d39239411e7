"""Jobs that wait for people: parties are asked, at growing intervals, whether theirs have decided.

A question is the opening of the job with a mark that it only asks: no session opens, no table is read, and the journal
gets no line of it. The job has no place among those under way. Once no party's people are to decide any more, it
begins another attempt, by which a refusal ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from google.protobuf.message import Message

from treetap.coordinator.attempt import Parties
from treetap.coordinator.runtime.job_record import Submitted
from treetap.coordinator.runtime.roster import Roster
from treetap.errors import Interrupted, Overloaded, Pending, TreetapError
from treetap.wire.v2 import setup_pb2, types_pb2

log = logging.getLogger(__name__)
#: Seconds between two questions: the first time, and at most.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0
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
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, job: str, submitted: Submitted, attempt: int, tell: Callable[[str], None]) -> None:
        """Return once no people are to decide, as far as is known; an error of ours is the attempt's to tell."""
        pause = FIRST_PAUSE_S
        while True:
            try:
                roster = self._parties.roster(
                    job, attempt, submitted, submitted.members, self._parties.byte_counts(), None
                )
                undecided = await _undecided(roster, submitted)
            except TreetapError as failure:
                log.warning("job %s: %s", job, failure)
                return
            if not undecided:
                return
            tell(f"waiting for approval of {', '.join(undecided)}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)


async def _undecided(roster: Roster, submitted: Submitted) -> list[str]:
    """The parties whose people have not decided yet, and those that do not answer now."""
    roster.log_level = logging.DEBUG  # the question is repeated for days
    step, body = _opening(submitted, roster.peers())
    asked = (roster.ask(party, step, body, asks_only=True) for party in roster.names)
    answers = zip(roster.names, await asyncio.gather(*asked, return_exceptions=True), strict=True)
    return [party for party, answer in answers if isinstance(answer, Pending | Interrupted | Overloaded)]


def _opening(submitted: Submitted, peers: Sequence[types_pb2.Peer]) -> tuple[str, Message]:
    """The step that opens a job, and its content."""
    if submitted.kind == "train":
        body = setup_pb2.Prepare(peers=peers)
        body.MergeFrom(submitted.prepare)
        return "prepare", body
    opening = submitted.preview if submitted.kind == "align" else submitted.opening
    opening.peers.extend(peers)
    return "open_preview" if submitted.kind == "align" else "open_model", opening
