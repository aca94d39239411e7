"""`treetap coordinator`: serve operators and conduct jobs until SIGTERM."""

from __future__ import annotations

import asyncio
from pathlib import Path

from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from coordinator.config import CoordinatorConfig, read
from coordinator.jobs import Jobs
from coordinator.journal import Journal
from coordinator.service import register
from treetap.serving import serve_until_stopped, sole_user
from treetap.wire import rpc

#: Seconds that calls under way may take to end when the coordinator is told to stop.
GRACE_S = 2.0


def run(config_path: Path, *, until_stdin_closes: bool) -> None:
    """Serve; returns after SIGTERM, SIGINT or, if asked, when standard input closes."""
    config = read(config_path)
    config.tls.files().check(config.name)
    with sole_user(config.state):
        asyncio.run(_serve(config, until_stdin_closes))


async def _serve(config: CoordinatorConfig, until_stdin_closes: bool) -> None:
    dialer = rpc.GrpcDialer(config.tls.files())
    journal = Journal(config.state / "journal")
    jobs = Jobs(config.name, config.parties, dialer, journal, config.silence_s)
    server, credentials = rpc.server(config.tls.files())
    register(server, jobs, config.operators)
    status = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    number = rpc.bind(server, credentials, config.listen)
    await server.start()
    await status.set("", health_pb2.HealthCheckResponse.SERVING)
    address = f"{config.listen.rpartition(':')[0]}:{number}"
    try:
        await serve_until_stopped(config.name, "coordinator", address, until_stdin_closes=until_stdin_closes)
    finally:
        await status.enter_graceful_shutdown()
        await jobs.close()
        await server.stop(GRACE_S)
        await dialer.close()
