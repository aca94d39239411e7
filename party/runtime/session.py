"""One attempt at one job at one party: its role with the tools, and the callers that it admits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from party.runtime.attempts import check_latest
from party.runtime.context import Role, StepContext
from party.runtime.steps import StepCache
from treetap.errors import Refused, UnknownJob
from treetap.native import arithmetic
from treetap.wire.v2 import control_pb2


@dataclass
class Session:
    """A role with its tools, the parties that may send to it, the submission of its job, and the steps it has done."""

    context: StepContext
    role: Role
    coordinator: str
    members: frozenset[str]
    opening: bytes
    submission: str
    book: StepCache = field(default_factory=StepCache)
    expiry: asyncio.TimerHandle | None = None
    serves: bool = False  #: a model, to clients

    def check_coordinator(self, caller: str) -> None:
        """`Refused` for a coordinator other than the one that opened the session."""
        if caller != self.coordinator:
            raise Refused(f"job {self.context.job} belongs to coordinator {self.coordinator}, not to {caller}")

    def check_attempt(self, attempt: int) -> None:
        """`OutOfOrder` for an attempt before the session's, `UnknownJob` for a later one."""
        job, current = self.context.job, self.context.attempt
        check_latest(job, attempt, current)
        if attempt > current:
            raise UnknownJob(f"attempt {attempt} of job {job} has not been prepared here")

    def progress(self) -> control_pb2.Progress:
        """The progress of the running step."""
        progress = self.context.progress
        return control_pb2.Progress(
            done=progress.done,
            total=progress.total,
            bytes=self.context.costs.byte_counts.bytes_sent,
            arithmetic=arithmetic.in_use(),
        )

    async def close(self, discard: str | None = None) -> None:
        """Stop running steps and drop all state in memory; on disk, delete the files of submission `discard`.

        The files are deleted before the workers stop, which may be busy for a while.
        """
        await self.book.close()
        await self.context.mailbox.close()
        self.context.scratch.close()
        try:
            if discard is not None:
                self.context.store.discard(discard)
        finally:
            await self.role.close()
