"""A person who conducts a coordinator that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from tests.campaign import checks
from tests.campaign.checks import Findings
from tests.campaign.rig import Rig
from tests.campaign.stages import stage
from tests.simulator import COORDINATOR
from treetap.errors import TreetapError
from treetap.wire.v2 import jobs_pb2

T = TypeVar("T")
#: Virtual seconds within which a job ends, one way or the other, and most attempts at it by a patient operator.
ENDS_S, MOST_RESUMES = 1500.0, 12
#: Virtual seconds after which an operator gives an order again that was not heard.
AGAIN_S = 1.0


async def bounded(work: Awaitable[T], what: str) -> T:
    """The result of something that must end; a hang is an error that says of what."""
    try:
        async with asyncio.timeout(ENDS_S):
            return await work
    except TimeoutError:
        raise AssertionError(f"{what} hangs: no end within {ENDS_S:g} virtual s") from None


class Operator:
    """A person who asks a coordinator, and repeats what was not heard because the coordinator was away."""

    def __init__(self, rig: Rig, found: Findings, coordinator: str = COORDINATOR) -> None:
        self._rig, self._found, self._name = rig, found, coordinator

    async def ask(self, what: Callable[[], T]) -> T:
        """An order to the coordinator, given again until there is one who takes it."""
        federation = self._rig.federation
        for _ in range(600):
            if federation.alive(self._name):
                with suppress(asyncio.CancelledError, OSError):
                    return federation.process(self._name).within(what)
            await asyncio.sleep(AGAIN_S)
        raise AssertionError(f"{self._name} does not come back")

    async def train(self, job: str = "job") -> None:
        """Submit a training; a repeated submission finds the job there."""
        request = jobs_pb2.SubmitRequest(job=job, spec=stage(self._rig.plan.stage).job)
        await self._submit(job, lambda: self._rig.federation.jobs_of(self._name).submit(request))

    async def predict(self, request: jobs_pb2.PredictRequest) -> None:
        """Submit a prediction."""
        await self._submit(request.job, lambda: self._rig.federation.jobs_of(self._name).predict(request))

    async def _submit(self, job: str, how: Callable[[], str]) -> None:
        for _ in range(60):
            with suppress(TreetapError):  # the disk refuses the journal, or the job is there since the last try
                await self.ask(how)
            if await self.ask(lambda: self._rig.federation.jobs_of(self._name)._journal.has(job)):
                return
            await asyncio.sleep(5.0)
        raise AssertionError(f"job {job} is never accepted")

    async def ended(self, job: str) -> jobs_pb2.JobStatus:
        """Wait until a job does not run any more, also through lives of the coordinator."""

        async def wait() -> jobs_pb2.JobStatus:
            federation = self._rig.federation
            while True:
                if federation.alive(self._name):
                    running = federation.jobs_of(self._name)._running.get(job)
                    if running is None:
                        status = await self.ask(lambda: federation.jobs_of(self._name).status(job)[0])
                        if status.state != "running":
                            return status
                await asyncio.sleep(AGAIN_S)

        status = await bounded(wait(), job)
        checks.named(status, self._found)
        return status

    async def finish(self, job: str) -> jobs_pb2.JobStatus:
        """Resume a job until it is finished; nothing breaks any more."""
        status = await self.ended(job)
        for _ in range(MOST_RESUMES):
            if status.state not in ("interrupted", "failed"):
                return status
            await self.ask(lambda: self._rig.federation.jobs_of(self._name).resume(job))
            status = await self.ended(job)
        self._found.append(f"{job} cannot be finished: {status.state}: {status.error}")
        return status
