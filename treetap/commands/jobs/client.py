"""An operator's side of `jobs.proto`: submit, watch, query, cancel, resume.

Watching, queries and cancelling are repeated for a bounded time while the coordinator's process runs but does not
answer, and once while it does not seem to run. A call that begins a job is made once only: repeated after a lost
answer, it would begin the job twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from google.protobuf.message import Message

from treetap.commands.ending import run, tell
from treetap.errors import BadInput, Interrupted, Unanswered, Unreachable
from treetap.names import check_name
from treetap.process.config import Process, with_typed
from treetap.protocols.agreement import checked, job_digest, named, statement, to_draft
from treetap.strict import Address as AddressText
from treetap.strict import Name
from treetap.wire import rpc
from treetap.wire.frame import visible_message
from treetap.wire.ports import Address, Reconnects, Role, Timeouts
from treetap.wire.signatures import NANOS_A_DAY, STATEMENT_DAYS, signed
from treetap.wire.status_parts import UNDER_WAY, jobs_of, joined
from treetap.wire.tls import Insecure, Transport
from treetap.wire.v2 import jobs_pb2

M = TypeVar("M", bound=Message)
R = TypeVar("R", jobs_pb2.SubmitRequest, jobs_pb2.PredictRequest, jobs_pb2.AlignRequest)
OnStatus = Callable[[jobs_pb2.JobStatus], None]
#: Deadlines of an operator's calls; a coordinator that sends no status of a running job for `silence_s` has gone.
TIMEOUTS = Timeouts()
#: Fields of a status that name files on a party's disk.
PATHS = ("predictions", "explanations", "attributions", "evaluation", "path")


class OperatorConfig(Process):
    """`operator.toml`: the coordinator to call, and the operator's own name and certificate."""

    coordinator: AddressText
    """The coordinator's address."""
    coordinator_name: Name = "coordinator"
    """The name that the coordinator's certificate must bear."""
    name: Name = "operator"
    """The operator's own name, as in its certificate and among the coordinator's `operators`."""

    def addresses(self) -> dict[str, str]:
        return {"coordinator": self.coordinator}

    def transport(self) -> Transport:
        return with_typed(super().transport())


class Operator:
    """Synchronous calls to a coordinator; errors are those of `treetap.errors`.

    A text that cannot be a job's name is BadInput before any call.
    """

    def __init__(self, config: OperatorConfig, days: float = STATEMENT_DAYS) -> None:
        """`days`: from now, within which each party has to open a job that is signed."""
        self._transport, self._days = config.transport(), days
        self._transport.check(config.name, Role.OPERATOR)
        self._to = Address(config.coordinator_name, config.coordinator, Role.COORDINATOR)

    def submit(self, request: jobs_pb2.SubmitRequest) -> str:
        """Submit a training job; returns its name, made up where the request has none."""
        return self._begin(request, lambda stub, request: stub.Submit(request, timeout=rpc.ASK_DEADLINE))

    def check(self, request: jobs_pb2.SubmitRequest) -> list[jobs_pb2.Checked]:
        """Have every party check a training job, and keep nothing of it; returns their answers."""
        if request.job:
            _check(request.job)

        async def ask(stub: rpc.JobsStub) -> jobs_pb2.CheckReply:
            whole, replies = jobs_pb2.CheckReply(), aiter(stub.Check(request))
            try:
                while True:
                    async with asyncio.timeout(TIMEOUTS.silence_s):
                        whole.answers.extend((await anext(replies)).answers)
            except TimeoutError:
                raise Interrupted("the coordinator sends no more answers; check the job again") from None
            except StopAsyncIteration:
                return whole

        return list(run(self._ask(ask, repeat=True)).answers)

    def predict(self, request: jobs_pb2.PredictRequest) -> str:
        """Submit a prediction; returns its name, made up where the request has none."""
        _check(request.model, "model")
        return self._begin(request, lambda stub, request: stub.Predict(request, timeout=rpc.ASK_DEADLINE))

    def align(self, request: jobs_pb2.AlignRequest) -> str:
        """Ask for a preview of an alignment; returns its name, made up where the request has none."""
        return self._begin(request, lambda stub, request: stub.Align(request, timeout=rpc.ASK_DEADLINE))

    def resume(self, job: str) -> str:
        """Resume an interrupted job."""
        _check(job)
        return self._once(lambda stub: stub.Resume(jobs_pb2.JobName(job=job), timeout=rpc.ASK_DEADLINE), job)

    def cancel(self, job: str) -> jobs_pb2.JobStatus:
        """Stop a job and have every party delete its state."""
        _check(job)
        name = jobs_pb2.JobName(job=job)
        return run(self._ask(lambda stub: stub.Cancel(name, timeout=rpc.ASK_DEADLINE), repeat=True))

    def prune(self, jobs: Sequence[str], days: float, *, dry_run: bool) -> list[str]:
        """Have the coordinator forget these jobs, or all that ended more than `days` ago; returns their names."""
        for job in jobs:
            _check(job)
        request = jobs_pb2.PruneRequest(jobs=jobs, days=days, dry_run=dry_run)
        return list(run(self._ask(lambda stub: stub.Prune(request, timeout=rpc.ASK_DEADLINE), repeat=False)).jobs)

    def status(self, job: str = "") -> list[jobs_pb2.JobStatus]:
        """The status of one job or of all."""
        if job:
            _check(job)
        request = jobs_pb2.StatusRequest(job=job)

        async def ask(stub: rpc.JobsStub) -> jobs_pb2.StatusReply:
            statuses = jobs_of(aiter(stub.Status(request, timeout=rpc.ASK_DEADLINE)))
            return jobs_pb2.StatusReply(jobs=[status async for status in joined(statuses)])

        return list(run(self._ask(ask, repeat=True)).jobs)

    def watch(
        self, job: str, on_status: OnStatus, until: Callable[[jobs_pb2.JobStatus], bool] | None = None
    ) -> jobs_pb2.JobStatus:
        """Follow a job until it does not run any more, or until `until(status)` is true; returns the last status."""
        _check(job)
        return run(self._watch(job, on_status, until or (lambda _status: False)))

    def _begin(self, request: R, call: Callable[[rpc.JobsStub, R], Awaitable[jobs_pb2.JobAccepted]]) -> str:
        """Name a job, sign it unless the federation is in plain text, and submit it; returns its name."""
        if request.job:
            _check(request.job)
        request = named(request)
        if not isinstance(self._transport, Insecure):
            asked = to_draft(request)
            drafted = run(self._ask(lambda stub: stub.Draft(asked, timeout=rpc.ASK_DEADLINE), repeat=True, as_is=True))
            digest = job_digest(request.job, checked(request, drafted))
            now = time.time_ns()
            until = now + int(self._days * NANOS_A_DAY)
            request.signed.CopyFrom(signed(self._transport, statement(digest), "job", now, until))
        return self._once(lambda stub: call(stub, request), request.job)

    def _once(self, call: Callable[[rpc.JobsStub], Awaitable[jobs_pb2.JobAccepted]], job: str) -> str:
        """Call once; returns the name of the job."""
        try:
            return run(self._ask(call, repeat=False)).job
        except Unanswered as failure:
            look = f"treetap status {job}"
            raise Interrupted(f"{failure}; it may have accepted the job all the same; see: {look}") from None

    async def _ask(
        self,
        call: Callable[[rpc.JobsStub], Awaitable[M]],
        *,
        repeat: bool,
        as_is: bool = False,
        reconnects: Reconnects | None = None,
    ) -> M:
        """Call; with `repeat`, again for a bounded time while the coordinator runs but does not answer.

        `reconnects`: counts that time, of a call that hears from it meanwhile.

        Texts of the answer, such as a party's error, are made visible unless `as_is`: they go to the operator's screen.
        """
        dialer, reconnects = rpc.GrpcDialer(self._transport, TIMEOUTS), reconnects or Reconnects(TIMEOUTS)
        try:
            while True:
                try:
                    async with dialer.jobs(self._to) as stub:
                        answer = await call(stub)
                        return answer if as_is else visible_message(answer, PATHS)
                except Unreachable as error:
                    if not (repeat and await _again(error, dialer, reconnects)):
                        raise
        finally:
            await dialer.close()

    async def _watch(
        self, job: str, on_status: OnStatus, until: Callable[[jobs_pb2.JobStatus], bool]
    ) -> jobs_pb2.JobStatus:
        reconnects, status = Reconnects(TIMEOUTS), jobs_pb2.JobStatus()

        async def follow(stub: rpc.JobsStub) -> jobs_pb2.JobStatus:
            nonlocal status
            statuses = joined(aiter(stub.Watch(jobs_pb2.JobName(job=job))))
            while True:
                async with asyncio.timeout(TIMEOUTS.silence_s):
                    status = visible_message(await anext(statuses), PATHS)
                reconnects.heard()
                await tell(on_status, status)
                if status.state not in UNDER_WAY or until(status):
                    return status

        try:
            return await self._ask(follow, repeat=True, as_is=True, reconnects=reconnects)
        except Unreachable as error:
            served = f"{job} serves on by itself (see: treetap status {job}); treetap cancel {job} ends it"
            again = f"treetap {'status' if status.kind == 'align' else 'resume'} {job}"
            back = served if status.kind == "serve" else again
            raise Interrupted(f"{error}; when it is back: {back}") from None
        except (TimeoutError, StopAsyncIteration):
            raise Interrupted(f"the coordinator sends no more status of {job}; see: treetap status {job}") from None


async def _again(error: Unreachable, dialer: rpc.GrpcDialer, reconnects: Reconnects) -> bool:
    """After a failed call: pause and return True if it is to be repeated.

    A coordinator that does not seem to run is called once more: on a busy host even the diagnosis may err.
    """
    if reconnects.repeated and not isinstance(error, Unanswered):
        return False
    await dialer.close()  # a channel that has just failed would fail the next call without an attempt
    return await reconnects.again()


def _check(name: str, what: str = "job") -> None:
    try:
        check_name(name)
    except ValueError as failure:
        raise BadInput(f"{name!r} cannot be a {what}: {failure}") from None
