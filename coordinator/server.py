"""`treetap coordinator`: serve operators by gRPC and conduct jobs until SIGTERM. The service has no logic or state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from treetap.coordinator.config import CoordinatorConfig
from treetap.coordinator.jobs import Jobs
from treetap.coordinator.retention import keep_for
from treetap.coordinator.runtime.journal import Journal
from treetap.coordinator.runtime.metrics import CoordinatorMetrics
from treetap.process.lifecycle import forwarder_of, serve_until_stopped, sole_user
from treetap.process.limits import collect_rarely, leave_out_pandas, raise_descriptors, share_heaps
from treetap.protocols.agreement import Request
from treetap.wire import rpc
from treetap.wire.callers import CALLER, Callers, refuse_other_versions
from treetap.wire.ports import Role, Timeouts
from treetap.wire.probe import serve_health
from treetap.wire.status_parts import pages, parts
from treetap.wire.v2 import jobs_pb2, jobs_pb2_grpc

Context = grpc.aio.ServicerContext[object, object]
#: Seconds that calls under way may take to end when the coordinator stops.
GRACE_S = 2.0


def run(config_path: Path, *, until_stdin_closes: bool) -> None:
    """Serve; returns after SIGTERM, SIGINT or, if asked, when standard input closes."""
    leave_out_pandas()
    config = CoordinatorConfig.from_file(config_path)
    config.transport().check(config.name, Role.COORDINATOR)
    raise_descriptors()
    share_heaps()
    with sole_user(config.state):
        asyncio.run(_serve(config, until_stdin_closes))


async def _serve(config: CoordinatorConfig, until_stdin_closes: bool) -> None:
    dialer = rpc.GrpcDialer(config.transport(), Timeouts(config.silence_s))
    journal = Journal(config.state / "journal")
    metrics = CoordinatorMetrics(config.name)
    metrics.export_spans(config.telemetry)
    waits_s = {"waiting_s": config.waiting_s, "approval_days": config.approval_days}
    jobs = Jobs(config.name, config.parties, dialer, journal, config.silence_s, metrics, config.most_jobs, **waits_s)
    if config.metrics:
        jobs.count()  # before a scrape, which would see no job and then all of them
    measured = metrics.serve(config.metrics)
    metrics.certificates(config.transport())
    callers = Callers("the coordinator", config.transport(), operators=config.operators)
    server, credentials = rpc.server(callers)
    register(server, callers, jobs)
    status = serve_health(server)
    address = rpc.bind(server, credentials, config.listen)
    forwarder = forwarder_of(config, address)
    keeping: asyncio.Task[None] | None = None
    try:
        collect_rarely()
        jobs.go_on()  # before operators can connect
        await server.start()
        await status.set("", health_pb2.HealthCheckResponse.SERVING)
        where = {"name": config.name, "address": address, **({"metrics": measured} if measured else {})}
        if config.keep_days is not None:
            days = config.keep_days
            keeping = asyncio.ensure_future(keep_for(lambda: jobs.prune((), days, dry_run=False), days))
        if forwarder is not None:
            forwarder.begin()
        await serve_until_stopped("coordinator", where, until_stdin_closes=until_stdin_closes)
    finally:
        if keeping is not None:
            keeping.cancel()
        await status.enter_graceful_shutdown()
        await jobs.close()
        await server.stop(GRACE_S)
        if forwarder is not None:
            await forwarder.close()  # after the last answers have left
        await dialer.close()
        metrics.close()


class JobsService(jobs_pb2_grpc.JobsServicer):
    """Operator to coordinator."""

    def __init__(self, callers: Callers, jobs: Jobs) -> None:
        self._callers, self._jobs = callers, jobs

    async def Submit(self, request: Request, context: Context) -> jobs_pb2.JobAccepted:
        del context
        return jobs_pb2.JobAccepted(job=self._jobs.submit(request, CALLER.get()))

    Predict = Align = Submit

    async def Draft(self, request: jobs_pb2.DraftRequest, _context: Context) -> jobs_pb2.Drafted:
        return self._jobs.submissions.draft(request)

    async def Check(self, request: jobs_pb2.SubmitRequest, _context: Context) -> AsyncIterator[jobs_pb2.CheckReply]:
        async for answer in self._jobs.submissions.check(request):
            yield answer

    async def Resume(self, request: jobs_pb2.JobName, _context: Context) -> jobs_pb2.JobAccepted:
        return jobs_pb2.JobAccepted(job=self._jobs.resume(request.job, CALLER.get()))

    async def Watch(self, request: jobs_pb2.JobName, context: Context) -> AsyncIterator[jobs_pb2.JobStatus]:
        async for status in self._jobs.watch(request.job):
            self._callers.named(context, Role.OPERATOR)  # a job may outlast its watcher's certificate
            for part in parts(status):
                yield part

    async def Status(self, request: jobs_pb2.StatusRequest, _context: Context) -> AsyncIterator[jobs_pb2.StatusReply]:
        for page in pages(self._jobs.status(request.job)):
            yield page

    async def Cancel(self, request: jobs_pb2.JobName, _context: Context) -> jobs_pb2.JobStatus:
        return await self._jobs.cancel(request.job)

    async def Prune(self, request: jobs_pb2.PruneRequest, _context: Context) -> jobs_pb2.PruneReply:
        return jobs_pb2.PruneReply(jobs=self._jobs.prune(request.jobs, request.days, dry_run=request.dry_run))


def register(server: grpc.aio.Server, callers: Callers, jobs: Jobs) -> None:
    jobs_pb2_grpc.add_JobsServicer_to_server(JobsService(callers, jobs), server)
    refuse_other_versions(server, callers)
