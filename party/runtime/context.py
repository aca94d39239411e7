"""One attempt at one job at one party: the tools that every role works with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from party.policy import Policy
from party.runtime.attempts import check_latest
from party.runtime.costs import CostAccount
from party.runtime.job_store import JobStore
from party.runtime.mailbox import Mailbox
from party.runtime.metrics import PartyMetrics
from party.runtime.outbox import Outbox
from party.runtime.scratch import Scratch
from party.runtime.steps import ProgressCounter, Step, StepCache
from party.runtime.transcript_recorder import Recorder
from treetap.errors import Refused, UnknownJob
from treetap.native import arithmetic
from treetap.protocols.messages import JobSizes
from treetap.wire.frame import result
from treetap.wire.v2 import control_pb2, setup_pb2
from treetap.workers.engines import Engine, KeyEngine

T = TypeVar("T")


class Offload(Protocol):
    """Runs a slow function off the event loop; the simulator runs it in place, so that a seed reproduces a run."""

    def __call__(self, work: Callable[[], T], *, whole: bool = False) -> Awaitable[T]:
        """The result of `work()`.

        `whole`: a caller that is cancelled waits for the end of the work first, as it must where that writes files:
        once a session has ended, they are the next one's, or no session's.
        """
        ...


@dataclass
class StepContext:
    """A role's tools; a role never sees sockets, callers or other jobs. `coordinator`: the name of the job's.

    `digest`: of the job, see `treetap.protocols.agreement`.
    `engine`: workers for plans, codes and ciphertexts; `key_engine`: those for secret keys, exponents and plain values.
    """

    party: str
    coordinator: str
    job: str
    attempt: int
    digest: bytes
    mailbox: Mailbox
    outbox: Outbox
    costs: CostAccount
    metrics: PartyMetrics
    recorder: Recorder
    engine: Engine
    key_engine: KeyEngine
    store: JobStore
    scratch: Scratch
    progress: ProgressCounter
    offload: Offload
    policy: Policy


class Role(Protocol):
    """A party's part in a protocol: named steps, sizes of its messages, and an end."""

    @property
    def steps(self) -> Mapping[str, Step]:
        """The coroutine of each step that the coordinator may request, by the step's name."""
        ...

    @property
    def sizes(self) -> JobSizes:
        """The numbers of the job from which the lengths of its messages follow, as far as the role knows them."""
        ...

    async def close(self) -> None:
        """Release keys and worker memory."""
        ...


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


def required(value: T | None) -> T:
    """A value that an earlier step has set, which the step order guarantees."""
    assert value is not None
    return value


def empty_result() -> control_pb2.StepResult:
    """The result of a step that returns no data."""
    return result(setup_pb2.Done())
