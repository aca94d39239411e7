"""Jobs that the journal may forget: those that are over and whose record nothing later needs.

A finished training stays, because predictions with its model need its record. So does a job that can still be resumed,
because its parties hold files that only `cancel` deletes; and a damaged one, because only a person knows what it was:
so is called one of another version of the protocol, which another release can read.
An operator who names finished trainings or damaged jobs gives them up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass

from treetap.coordinator.runtime.job_record import for_a_list
from treetap.coordinator.runtime.journal import Journal
from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.waiting import Waiting
from treetap.errors import BadInput, Conflict, TreetapError
from treetap.process.together import within
from treetap.wire.status_parts import UNDER_WAY
from treetap.wire.v2 import jobs_pb2

log = logging.getLogger(__name__)
DAY_S = 86_400.0
#: Seconds between two looks for jobs that are over for long enough.
LOOK_S = 3600.0


def named(journal: Journal, running: Collection[str], jobs: Collection[str]) -> list[jobs_pb2.JobStatus]:
    """The statuses of these jobs, which an operator gives up.

    Raises:
        UnknownJob: one is not there.
        Conflict: one runs, or can be resumed: its parties hold files.
    """
    statuses = []
    for job in dict.fromkeys(jobs):
        if not journal.has(job):
            raise journal.unknown(job)
        status = journal.status(job)
        if job in running:
            raise Conflict(f"job {job} is running: treetap cancel {job} ends it")
        if status.state != "damaged" and not is_over(status):
            raise Conflict(f"job {job} is {status.state}, and its parties hold files of it: treetap cancel {job} first")
        statuses.append(status)
    return statuses


def old(journal: Journal, running: Collection[str], days: float) -> list[jobs_pb2.JobStatus]:
    """The statuses of jobs that nothing later needs and that ended more than `days` ago.

    Raises:
        BadInput: `days` is negative or no number.
    """
    if not days >= 0:
        raise BadInput(f"days = {days:g}: jobs end 0 or more days ago, or are named")
    before = time.time() - days * DAY_S
    return [
        status
        for status in journal.listed()
        if is_over(status)
        and (status.kind, status.state) != ("train", "finished")
        and status.job not in running
        and journal.ended_at(status.job) < before
    ]


def is_over(status: jobs_pb2.JobStatus) -> bool:
    nothing_kept = status.bad_input or status.kind == "align" or status.released
    return status.state in ("finished", "cancelled") or (status.state == "failed" and nothing_kept)


def cure(status: jobs_pb2.JobStatus) -> str:
    """The commands that free the name of a job that keeps it."""
    other, job = "choose another name", status.job
    if status.state in UNDER_WAY or (status.kind, status.state) == ("train", "finished"):
        return other  # a model needs its training's record
    first = "" if is_over(status) or status.state == "damaged" else f"treetap cancel {job}, then "
    return f"{other}, or give this one up: {first}treetap prune {job}"


async def keep_for(prune: Callable[[], list[str]], days: float) -> None:
    """Prune at regular intervals, until cancelled. `prune`: forgets jobs older than `days` and returns their names."""
    while True:
        try:
            if gone := prune():
                log.info("the journal keeps jobs for %g days; it has forgotten %s", days, ", ".join(gone))
        except TreetapError as failure:
            log.error("jobs that are over stay in the journal: %s", failure)
        await asyncio.sleep(LOOK_S)


@dataclass(frozen=True)
class Statuses:
    """Statuses, of what the journal says and what goes on beside it.

    Attributes:
        running: the task of each job that runs, and `progress`, its live status.
        waiting: jobs that wait for their turn or for people.
        most: returns the most jobs under way at once.
        closing: returns True once the coordinator stops.
    """

    journal: Journal
    running: Mapping[str, asyncio.Task[None]]
    progress: Mapping[str, Progress]
    waiting: Waiting
    most: Callable[[], int]
    closing: Callable[[], bool]

    def of(self, job: str) -> jobs_pb2.JobStatus:
        """The live status of a running job, else the status in the journal; raises `UnknownJob`."""
        if job in self.running:
            return self.progress[job].status
        if not self.journal.has(job):
            raise self.journal.unknown(job)
        return self._with_place(self.journal.status(job))

    def listed(self) -> list[jobs_pb2.JobStatus]:
        """All in the order of their submission, without costs and phases."""
        return [
            for_a_list(self.progress[status.job].status) if status.job in self.running else self._with_place(status)
            for status in self.journal.listed()
        ]

    async def watch(self, job: str) -> AsyncIterator[jobs_pb2.JobStatus]:
        """The status whenever it changes, at most five times a second, until the job no longer runs."""
        while True:
            # A copy: the live status may change to its end while it is sent, and the watcher would miss it.
            status = jobs_pb2.JobStatus()
            status.CopyFrom(self.of(job))
            if status.state == "running":
                del status.history[:]  # which grows with every round: Status has it, and the last status of a job
            if self.closing() and status.kind == "serve" and status.state != "cancelled":
                return  # the job has not ended: it resumes when the coordinator is back
            yield status
            if status.state not in UNDER_WAY or (self.closing() and status.state == "waiting"):
                return
            if status.state == "waiting":
                await within(1.0, self.waiting.moved())
                continue
            if job not in self.running:
                continue
            progress, task = self.progress[job], self.running[job]
            await within(1.0, progress.changed())
            over = progress.status.state not in UNDER_WAY
            await asyncio.wait({task}, timeout=None if over else 0.2)  # the end of a job is sent at once

    async def wait(self, job: str) -> jobs_pb2.JobStatus:
        """Wait until the job neither waits nor runs; returns its status."""
        while job in self.waiting or job in self.running:
            if (task := self.running.get(job)) is not None:
                await asyncio.wait({task})
            else:
                await self.waiting.moved()
        return self.of(job)

    def _with_place(self, status: jobs_pb2.JobStatus) -> jobs_pb2.JobStatus:
        """The same status, which says of a job that waits for what it does."""
        if status.job in self.waiting:
            status.error = self.waiting.sentence(status.job, self.most())
        return status
