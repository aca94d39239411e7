"""One attempt at one job at one party: the tools that every role works with.

Among them are files of the attempt that no later one needs, unnamed ones of the state folder: the operating system
deletes them when they are closed, at the latest with the process, so that nothing is left to clean up.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, TypeVar

from treetap.party.runtime.step_order import Step
from treetap.protocols.messages import JobSizes
from treetap.wire.frame import result
from treetap.wire.v2 import control_pb2, setup_pb2
from treetap.workers.engines import Engine

if TYPE_CHECKING:  # types of tools that a role is given
    from treetap.lattice.histogram_parameters import HistogramParameters
    from treetap.lattice.histogram_shards import Shards
    from treetap.party.policy import Policy
    from treetap.party.runtime.job_ledger import JobLedger
    from treetap.party.runtime.job_store import JobStore
    from treetap.party.runtime.mailbox import Mailbox
    from treetap.party.runtime.metrics import CostAccount, PartyMetrics
    from treetap.party.runtime.outbox import Outbox
    from treetap.party.runtime.transcript_recorder import Recorder

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

    `digest`: of the job, see `treetap.protocols.agreement`. `progress`: of the running step, which counts itself.
    `trial`: the job is checked and not begun, so that nothing may be drawn or charged for it.
    `engine`: worker processes of this machine; `shards`: makes an attempt's on the party's cluster, if there is one.
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
    shards: Callable[[HistogramParameters, bytes, str], Shards] | None
    store: JobStore
    ledger: JobLedger
    scratch: Scratch
    progress: control_pb2.Progress
    offload: Offload
    policy: Policy
    trial: bool = False


class Untried(Exception):
    """A trial ends here: what follows needs a draw that would be charged."""


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


class RoleWithoutWorkers:
    """A role that has nothing in the memory of workers."""

    async def close(self) -> None:
        """Do nothing."""


def required(value: T | None) -> T:
    """A value that an earlier step has set, which the step order guarantees."""
    assert value is not None
    return value


def empty_result() -> control_pb2.StepResult:
    """The result of a step that returns no data."""
    return result(setup_pb2.Done())


class Scratch:
    """Opens unnamed files, and closes all of them with the session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[IO[bytes]] = []

    def file(self) -> IO[bytes]:
        """A new, empty file for reading and writing, without a buffer; its user may close it earlier."""
        self._files = [file for file in self._files if not file.closed]
        made = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - closed below
        self._files.append(made)
        return made

    def close(self) -> None:
        """Close all files, which deletes them."""
        for file in self._files:
            file.close()
        self._files.clear()
