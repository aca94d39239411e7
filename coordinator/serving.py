"""Serving a model: blocks of the records that clients request, and attempts that follow each other without a gap.

Once the label holder's tables are to be read again another attempt begins beside the one that serves: every party
opens the model, reads its table and aligns it anew. Then clients are answered by the new attempt; the old one answers
what waits there, and its parties leave it. An attempt beside that fails is left alone, and the old one goes on, also
where it reaches a limit on a partner; one that a party refuses ends the job, for its policy or its people have changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from treetap.coordinator import protocols
from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import LEAVE_S, Roster, answered
from treetap.errors import LimitReached, Pending, Refused, TreetapError
from treetap.process.together import ended, together
from treetap.protocols.prediction import present
from treetap.wire.v2 import jobs_pb2, prediction_pb2, serving_pb2, setup_pb2

log = logging.getLogger(__name__)
#: Seconds between two requests for every party's account, which also shows that the party is present.
LOOK_S = 5.0
#: Seconds of serving after which an attempt counts as one that served, also without any request.
PROVEN_S = 60.0
#: Seconds of serving before which a label holder that has its tables read again does not get another attempt, and of
#: which an attempt beside has failed.
REREAD_S, RETRY_S = 10.0, 60.0


class _Served:
    """One attempt at serving a model. `progress`: the job's while clients ask this attempt; else one that none sees."""

    def __init__(self, roster: Roster, opening: prediction_pb2.OpenModel, progress: Progress | None = None) -> None:
        self._roster, self._opening, self._course = roster, opening, protocols.prediction(opening)
        self.progress = progress or _unseen()
        self._opened: Any = None
        self._block, self._waits = 0, 0
        self._began = self._look = _now()

    async def prepare(self) -> TreetapError | None:
        """All before the first block; an attempt beside another one that fails is left, and returns its error."""
        try:
            self._opened = await self._course.begin(self._roster, self._opening, self.progress)
        except TreetapError as failure:
            if not self._roster.beside:
                raise
            await self._roster.leave(LEAVE_S, alone=True)
            return failure
        self._roster.log_level = logging.DEBUG  # the metrics cover these repeated steps
        self._began = self._look = _now()
        return None

    async def answer(self) -> serving_pb2.AwaitedRequests:
        """Wait for requests, a few seconds at most so that each step keeps its deadline, and score their records.

        The records requested so far are a block. Those that are new are looked up; what is left the protocol scores as
        any other block.
        """
        roster, progress, label_holder = self._roster, self.progress, self._opening.recipient
        waiting = serving_pb2.AwaitRequests()
        asking = [roster.ask_all([label_holder], "await_requests", waiting, self._block, self._waits)]
        if _now() >= self._look or progress.ending:
            asking.append(roster.ask_all(roster.names, "account", setup_pb2.Account()))
            self._look = _now() + LOOK_S
        heard, *accounts = await together(*asking)
        if progress.ending and not accounts:
            accounts = [await roster.ask_all(roster.names, "account", setup_pb2.Account())]
        for answers in accounts:
            progress.accounts({party: answered(party, answer, "accounted") for party, answer in answers.items()})
        awaited: serving_pb2.AwaitedRequests = answered(label_holder, heard[label_holder], "awaited_requests")
        progress.serving(awaited.figures)
        progress.served = progress.served or _now() - self._began >= PROVEN_S
        if progress.ending:
            progress.settled.set()
        if awaited.look_ups:
            # The label holder looks up the new records of a block at the others, and says how many are left.
            looking = roster.ask_all([label_holder], "look_up", round=self._block)
            answering = roster.ask_all(present(self._opening), "answer_look_ups", round=self._block)
            heard, _ = await together(looking, answering)
            left: serving_pb2.FoundRecords = answered(label_holder, heard[label_holder], "found_records")
            awaited.records = left.records
        if awaited.records:
            await self._course.score(roster, self._opening, self._opened, self._block, progress)
            progress.served = True
        more = awaited.records or awaited.look_ups
        self._block, self._waits = (self._block + 1, 0) if more else (self._block, self._waits + 1)
        return awaited

    async def retire(self, following: _Served) -> None:
        """Answer what waits here once clients are answered by another attempt; then its parties leave this one."""
        self.progress = _unseen()
        try:
            ends = False
            while not ends:
                last = following._block + following._waits > 0  # what comes from now on goes there
                ends = not (await self.answer()).records and last
            await self._roster.leave(LEAVE_S)
        except TreetapError as failure:
            log.warning("model %s: the attempt before ends early: %s", self._opening.model, failure)


async def serve(
    roster: Roster, opening: prediction_pb2.OpenModel, progress: Progress, beside: Callable[[], Roster]
) -> None:
    """Score the records that clients request, block after block.

    Serving ends with an error, when it is cancelled, or between two blocks once a party that was away is back.

    `beside`: counts another attempt, and makes its roster.
    """
    served = following = _Served(roster, opening, progress)
    await served.prepare()
    progress.phase("serve")
    preparing: asyncio.Task[TreetapError | None] | None = None
    retiring, not_before = set[asyncio.Task[None]](), _now() + REREAD_S
    try:
        while progress.ending or not progress.back:
            awaited = await served.answer()
            if preparing is None and awaited.reread and not progress.ending and _now() >= not_before:
                log.info("%s has its tables read again: another attempt begins beside this one", opening.recipient)
                following = _Served(beside(), opening)
                preparing = asyncio.ensure_future(following.prepare())
            if preparing is None or not preparing.done():
                continue
            failure, preparing = preparing.result(), None
            not_before = _now() + (RETRY_S if failure else REREAD_S)
            if isinstance(failure, Refused | Pending) and not isinstance(failure, LimitReached):
                raise failure  # by today's policies nobody serves the model
            progress.status.error = (
                "the tables are not read again, and those before stay served: "
                f"{failure}; tried again after {RETRY_S:g} s"
                if failure
                else ""
            )
            if failure:
                log.error("model %s: %s", opening.model, progress.status.error)
                continue
            del progress.status.cells[:]
            progress.status.cells.extend(following.progress.status.cells)
            following.progress = progress
            retiring = {task for task in retiring if not task.done()}
            retiring.add(asyncio.ensure_future(served.retire(following)))
            served = following
    finally:
        await ended([*retiring, *([preparing] if preparing else [])])


def _unseen() -> Progress:
    return Progress(jobs_pb2.JobStatus(kind="serve"))


def _now() -> float:
    return asyncio.get_running_loop().time()
