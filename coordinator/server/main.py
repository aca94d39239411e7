"""`treetap coordinator`: serve operators and conduct jobs until SIGTERM."""

from __future__ import annotations

import asyncio
from pathlib import Path

from grpc_health.v1 import health_pb2

from coordinator.config import CoordinatorConfig, read
from coordinator.jobs import Jobs
from coordinator.retention import keep_for
from coordinator.runtime.journal import Journal
from coordinator.runtime.metrics import CoordinatorMetrics
from coordinator.server.service import register
from treetap.process.lifecycle import serve_until_stopped, sole_user
from treetap.process.limits import leave_out_pandas, raise_descriptors, share_heaps
from treetap.wire import rpc
from treetap.wire.callers import Callers
from treetap.wire.hello import serve_health
from treetap.wire.roles import Role
from treetap.wire.timeouts import Timeouts

#: Seconds that calls under way may take to end when the coordinator stops.
GRACE_S = 2.0


def run(config_path: Path, *, until_stdin_closes: bool) -> None:
    """Serve; returns after SIGTERM, SIGINT or, if asked, when standard input closes."""
    leave_out_pandas()
    config = read(config_path)
    config.transport().check(config.name, Role.COORDINATOR)
    raise_descriptors()
    share_heaps()
    with sole_user(config.state):
        asyncio.run(_serve(config, until_stdin_closes))


async def _serve(config: CoordinatorConfig, until_stdin_closes: bool) -> None:
    dialer = rpc.GrpcDialer(config.transport(), Timeouts(config.silence_s))
    journal = Journal(config.state / "journal")
    metrics = CoordinatorMetrics(config.name)
    measured = metrics.serve(config.metrics)
    jobs = Jobs(
        config.name, config.parties, dialer, journal, config.silence_s, metrics, config.most_jobs, config.waiting_s
    )
    if measured:
        jobs.count()
    callers = Callers("the coordinator", config.transport())
    server, credentials = rpc.server(callers)
    register(server, callers, jobs, config.operators)
    status = serve_health(server, callers)
    number = rpc.bind(server, credentials, config.listen)
    address = f"{config.listen.rpartition(':')[0]}:{number}"
    keeping: asyncio.Task[None] | None = None
    try:
        jobs.go_on()  # before operators can connect
        await server.start()
        await status.set("", health_pb2.HealthCheckResponse.SERVING)
        where = {"name": config.name, "address": address, **({"metrics": measured} if measured else {})}
        if config.keep_days is not None:
            days = config.keep_days
            keeping = asyncio.ensure_future(keep_for(lambda: jobs.prune((), days, dry_run=False), days))
        await serve_until_stopped("coordinator", where, until_stdin_closes=until_stdin_closes)
    finally:
        if keeping is not None:
            keeping.cancel()
        await status.enter_graceful_shutdown()
        await jobs.close()
        await server.stop(GRACE_S)
        await dialer.close()
