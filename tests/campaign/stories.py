"""Requests to a federation while faults happen, and the results that must be there when all faults are over.

- A person who conducts a coordinator that fails.
- Requests to a federation while faults happen, and the results that must be there when all faults are over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from tests.campaign import checks
from tests.campaign.checks import Findings
from tests.campaign.plans import SECOND
from tests.campaign.rig import Rig
from tests.campaign.stages import stage
from tests.serving import served
from tests.simulator import COORDINATOR
from tests.worlds import PARTIES
from treetap.errors import Conflict, TreetapError
from treetap.protocols.prediction import predict_request
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
        await self._submit(request.job, lambda: self._rig.federation.jobs_of(self._name).submit(request))

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


async def train(rig: Rig, found: Findings) -> None:
    """A training, resumed until it is done."""
    operator = Operator(rig, found)
    await operator.train()
    await operator.ended("job")
    await rig.heal()
    await _trained(rig, operator, "job", found)


async def _trained(rig: Rig, operator: Operator, job: str, found: Findings) -> None:
    status = await operator.finish(job)
    found.expect(status.state == "finished", f"{job} is {status.state}: {status.error}")
    if status.state == "finished":
        checks.model(rig.federation, stage(rig.plan.stage), job, found)


async def predict(rig: Rig, found: Findings) -> None:
    """A prediction with a trained model, resumed until its file is there."""
    operator, here = Operator(rig, found), stage(rig.plan.stage)
    asked = rig.plan.asked["prediction"]
    await operator.predict(predict_request(**{"model": "job", "job": "p", "block": 4} | asked))
    await operator.ended("p")
    await rig.heal()
    status = await operator.finish("p")
    found.expect(status.state == "finished", f"the prediction is {status.state}: {status.error}")
    if status.state == "finished":
        checks.scores(here, status.predictions, asked, found)
        if asked.get("attributions"):
            await operator.predict(predict_request(**{"model": "job", "job": "again", "block": 4} | asked))
            checks.attributions(status.attributions, (await operator.finish("again")).attributions, found)


async def cancel(rig: Rig, found: Findings) -> None:
    """A training cancelled at some message: nothing of it is left, or it was finished; another one can follow."""
    operator, federation = Operator(rig, found), rig.federation
    await operator.train()
    await _until(rig, rig.plan.asked["at"], operator, "job")

    async def cancelled() -> str:
        for _ in range(100):
            if not federation.alive(COORDINATOR):
                await asyncio.sleep(AGAIN_S)
                continue
            life = federation.process(COORDINATOR)
            with suppress(asyncio.CancelledError):
                try:
                    status = await life.run(federation.jobs.cancel("job"))
                except Conflict:
                    if (await operator.ended("job")).state == "finished":
                        return "finished"
                except TreetapError:
                    await asyncio.sleep(5.0)
                else:
                    if "did not confirm" not in status.error:
                        return str(status.state)
            await asyncio.sleep(AGAIN_S)
        return "never"

    await bounded(cancelled(), "cancelling")
    await rig.heal()
    state = await bounded(cancelled(), "cancelling")
    found.expect(state in ("cancelled", "finished"), f"a cancelled job is {state}")
    if state == "finished":
        checks.model(federation, stage(rig.plan.stage), "job", found)
    else:
        for party, state_ in federation.states.items():  # a model that is published stays
            found.expect(not (state_ / "jobs" / "job").exists(), f"{party} has kept jobs/job of a cancelled job")
    await operator.train("next")
    await _trained(rig, operator, "next", found)


async def two_jobs(rig: Rig, found: Findings) -> None:
    """Two trainings at once."""
    operator = Operator(rig, found)
    await operator.train("job")
    await operator.train("other")
    await operator.ended("job")
    await operator.ended("other")
    await rig.heal()
    for job in ("job", "other"):
        await _trained(rig, operator, job, found)


async def two_coordinators(rig: Rig, found: Findings) -> None:
    """A second coordinator begins another job of the same name, and may cancel it: the first one's comes out whole."""
    first, second, federation = Operator(rig, found), Operator(rig, Findings(), SECOND), rig.federation
    await first.train()
    await _until(rig, rig.plan.asked["at"], first, "job")
    await second.train()
    if rig.plan.asked["cancels"] and federation.alive(SECOND):
        with suppress(TreetapError, asyncio.CancelledError):
            await federation.process(SECOND).run(federation.jobs_of(SECOND).cancel("job"))
    await first.ended("job")
    await second.ended("job")
    await rig.heal()
    patient = Operator(rig, Findings())
    if (await patient.finish("job")).state != "finished":  # some parties, or all, hold the name for the second
        status = await second.ended("job")
        if status.state == "interrupted":
            status = await second.finish("job")
        if status.state != "finished":
            await bounded(federation.process(SECOND).run(federation.jobs_of(SECOND).cancel("job")), "cancelling")
            status = await first.finish("job")
        found.expect(status.state == "finished", f"neither coordinator's job is finished: {status.error}")
    checks.model(federation, stage(rig.plan.stage), "job", found)


async def _until(rig: Rig, message: int, operator: Operator, job: str) -> None:
    """Wait until a message of the job is under way, or the job does not run."""
    begun = len(rig.federation.log)
    while len(rig.federation.log) < begun + message:
        alive = rig.federation.alive(COORDINATOR)
        if alive and job not in rig.federation.jobs_of(COORDINATOR)._running:
            return
        await asyncio.sleep(0.02)


async def serve(rig: Rig, found: Findings) -> None:
    """A served model, asked all the while: whatever is answered is right, and after everything it is answered again."""
    operator, federation = Operator(rig, found), rig.federation
    asked = rig.plan.asked["prediction"]
    within = served.tolerance(asked["protocol"])
    await operator.predict(predict_request(**{"model": "job", "job": "s", "serve": True} | asked))

    async def client(times: int, pause_s: float) -> int:
        answered = 0
        for number in range(times):
            k = number % len(served.IDS)
            await asyncio.sleep(pause_s)
            if not federation.alive(PARTIES[0]):
                continue
            with suppress(TreetapError, asyncio.CancelledError):
                request = federation.process(PARTIES[0]).within(
                    lambda k=k: served.ask(federation, served.IDS[k], within_s=10.0)
                )
                score = (await bounded(request, "a client's request")).predictions[0].scores[0]
                found.expect(abs(score - served.EXACT[k]) <= within, f"a client got {score}, not {served.EXACT[k]}")
                answered += 1
        return answered

    await asyncio.gather(client(12, 0.5), client(6, 3.0))
    await rig.heal()
    for _ in range(MOST_RESUMES):
        status = await operator.ask(lambda: federation.jobs.status("s")[0])
        if status.state == "running" and await client(len(served.IDS), 0.2) == len(served.IDS):
            break
        if status.state in ("interrupted", "failed"):
            checks.named(status, found)
            await operator.ask(lambda: federation.jobs.resume("s"))
        await asyncio.sleep(30.0)
    else:
        found.append(f"the model is not served again: {status.state}: {status.error}")
    await bounded(federation.process(COORDINATOR).run(federation.jobs.cancel("s")), "the end of serving")


STORIES: dict[str, Callable[[Rig, Findings], Awaitable[None]]] = {
    "train": train,
    "predict": predict,
    "cancel": cancel,
    "two-jobs": two_jobs,
    "two-coordinators": two_coordinators,
    "serve": serve,
}


def needs_a_model(story: str) -> bool:
    """True if the story begins with a trained model."""
    return story in ("predict", "serve")
