"""The coordinator's gRPC service for operators, without logic or state of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import grpc.aio

from coordinator.jobs import Jobs
from treetap.errors import Refused
from treetap.wire.callers import Callers
from treetap.wire.roles import Role
from treetap.wire.status import answering, refuse_other_versions
from treetap.wire.status_parts import pages, parts
from treetap.wire.v2 import jobs_pb2, jobs_pb2_grpc

Context = grpc.aio.ServicerContext[object, object]


class JobsService(jobs_pb2_grpc.JobsServicer):
    """Operator to coordinator; callers that the configuration does not name as operators are refused."""

    def __init__(self, callers: Callers, jobs: Jobs, operators: list[str]) -> None:
        self._callers, self._jobs = callers, jobs
        self._operators = frozenset(operators)

    async def Submit(self, request: jobs_pb2.SubmitRequest, context: Context) -> jobs_pb2.JobAccepted:
        """See jobs.proto."""
        async with answering(context, self._callers):
            return jobs_pb2.JobAccepted(job=self._jobs.submit(request, self._admit(context)))

    async def Predict(self, request: jobs_pb2.PredictRequest, context: Context) -> jobs_pb2.JobAccepted:
        """See jobs.proto."""
        async with answering(context, self._callers):
            return jobs_pb2.JobAccepted(job=self._jobs.predict(request, self._admit(context)))

    async def Resume(self, request: jobs_pb2.JobName, context: Context) -> jobs_pb2.JobAccepted:
        """See jobs.proto."""
        async with answering(context, self._callers):
            return jobs_pb2.JobAccepted(job=self._jobs.resume(request.job, self._admit(context)))

    async def Watch(self, request: jobs_pb2.JobName, context: Context) -> AsyncIterator[jobs_pb2.JobStatus]:
        """See jobs.proto."""
        async with answering(context, self._callers):
            self._admit(context)
            async for status in self._jobs.watch(request.job):
                self._admit(context)  # a job may outlast its watcher's certificate
                for part in parts(status):
                    yield part

    async def Status(self, request: jobs_pb2.StatusRequest, context: Context) -> AsyncIterator[jobs_pb2.StatusReply]:
        """See jobs.proto."""
        async with answering(context, self._callers):
            self._admit(context)
            for page in pages(self._jobs.status(request.job)):
                yield page

    async def Cancel(self, request: jobs_pb2.JobName, context: Context) -> jobs_pb2.JobStatus:
        """See jobs.proto."""
        async with answering(context, self._callers):
            self._admit(context)
            return await self._jobs.cancel(request.job)

    async def Prune(self, request: jobs_pb2.PruneRequest, context: Context) -> jobs_pb2.PruneReply:
        """See jobs.proto."""
        async with answering(context, self._callers):
            self._admit(context)
            return jobs_pb2.PruneReply(jobs=self._jobs.prune(request.jobs, request.days, dry_run=request.dry_run))

    def _admit(self, context: Context) -> str:
        """The operator who calls."""
        caller = self._callers.named(context, Role.OPERATOR)
        if caller not in self._operators:
            raise Refused(f"{caller} is not an operator of this coordinator (operators = …)")
        return caller


def register(server: grpc.aio.Server, callers: Callers, jobs: Jobs, operators: list[str]) -> None:
    """Register a coordinator's service at a server."""
    jobs_pb2_grpc.add_JobsServicer_to_server(JobsService(callers, jobs, operators), server)
    refuse_other_versions(server, callers)
