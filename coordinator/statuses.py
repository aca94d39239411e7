"""Statuses of a coordinator's jobs: of one, of all, and each as it changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

from treetap.coordinator.runtime.job_record import for_a_list
from treetap.coordinator.runtime.journal import Journal
from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.waiting import Waiting
from treetap.wire.status_parts import UNDER_WAY
from treetap.wire.v2 import jobs_pb2


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
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await self.waiting.moved()
                continue
            if job not in self.running:
                continue
            progress, task = self.progress[job], self.running[job]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await progress.changed()
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
