"""The coordinator's gRPC face towards operators. No logic, no state."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NoReturn

import grpc
import grpc.aio

from coordinator.jobs import Jobs
from treetap.errors import Refused, TreetapError
from treetap.wire.rpc import caller_name
from treetap.wire.status import ERROR_KEY, code_of, details_of
from treetap.wire.v1 import jobs_pb2, jobs_pb2_grpc

Context = grpc.aio.ServicerContext[object, object]


class JobsService(jobs_pb2_grpc.JobsServicer):
    """Operator to coordinator; only operators that the configuration names are heard."""

    def __init__(self, jobs: Jobs, operators: list[str]) -> None:
        self._jobs = jobs
        self._operators = frozenset(operators)

    async def Submit(self, request: jobs_pb2.SubmitRequest, context: Context) -> jobs_pb2.JobAccepted:
        """See jobs.proto."""
        try:
            self._admit(context)
            return jobs_pb2.JobAccepted(job=self._jobs.submit(request))
        except TreetapError as error:
            await _refuse(context, error)

    async def Predict(self, request: jobs_pb2.PredictRequest, context: Context) -> jobs_pb2.JobAccepted:
        """See jobs.proto."""
        try:
            self._admit(context)
            return jobs_pb2.JobAccepted(job=self._jobs.predict(request))
        except TreetapError as error:
            await _refuse(context, error)

    async def Resume(self, request: jobs_pb2.JobName, context: Context) -> jobs_pb2.JobAccepted:
        """See jobs.proto."""
        try:
            self._admit(context)
            return jobs_pb2.JobAccepted(job=self._jobs.resume(request.job))
        except TreetapError as error:
            await _refuse(context, error)

    async def Watch(self, request: jobs_pb2.JobName, context: Context) -> AsyncIterator[jobs_pb2.JobStatus]:
        """See jobs.proto."""
        try:
            self._admit(context)
            async for status in self._jobs.watch(request.job):
                yield status
        except TreetapError as error:
            await _refuse(context, error)

    async def Status(self, request: jobs_pb2.StatusRequest, context: Context) -> jobs_pb2.StatusReply:
        """See jobs.proto."""
        try:
            self._admit(context)
            return jobs_pb2.StatusReply(jobs=self._jobs.status(request.job))
        except TreetapError as error:
            await _refuse(context, error)

    async def Cancel(self, request: jobs_pb2.JobName, context: Context) -> jobs_pb2.JobStatus:
        """See jobs.proto."""
        try:
            self._admit(context)
            return await self._jobs.cancel(request.job)
        except TreetapError as error:
            await _refuse(context, error)

    def _admit(self, context: Context) -> None:
        caller = caller_name(context)
        if caller not in self._operators:
            raise Refused(f"{caller} is not an operator of this coordinator (operators = …)")


def register(server: grpc.aio.Server, jobs: Jobs, operators: list[str]) -> None:
    """Let a server answer for a coordinator."""
    jobs_pb2_grpc.add_JobsServicer_to_server(JobsService(jobs, operators), server)


async def _refuse(context: Context, error: TreetapError) -> NoReturn:
    await context.abort(code_of(error), details_of(error), trailing_metadata=((ERROR_KEY, type(error).__name__),))
    raise AssertionError("abort raises") from error
