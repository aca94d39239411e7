"""`treetap gateway`: the process of a gateway, and its metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from treetap.metrics import ProcessMetrics
from treetap.ops.gateway import http
from treetap.ops.gateway.config import GatewayConfig, read
from treetap.ops.gateway.party_calls import PartyCalls
from treetap.process.lifecycle import serve_until_stopped
from treetap.process.limits import collect_rarely, raise_descriptors
from treetap.wire.roles import Role

log = logging.getLogger(__name__)


class GatewayMetrics(ProcessMetrics):
    """Requests by the status of their answer."""

    def __init__(self, name: str) -> None:
        super().__init__("gateway", name)
        self._requests = self.counter("treetap_gateway_requests_total", "Requests, by their answer's status.", "status")

    def answered(self, status: int) -> None:
        """Count a request."""
        self._requests.labels(str(status)).inc()


def run(path: Path, *, until_stdin_closes: bool) -> None:
    """Serve; returns after SIGTERM, SIGINT or, if asked, when standard input closes."""
    config = read(path)
    config.transport().check(config.name, Role.GATEWAY)
    raise_descriptors()
    asyncio.run(_serve(config, until_stdin_closes))


async def _serve(config: GatewayConfig, until_stdin_closes: bool) -> None:
    metrics = GatewayMetrics(config.name)
    measured = metrics.serve(config.metrics)
    metrics.certificates(config.transport())
    collect_rarely()
    async with listening(config, metrics) as address:
        where = {"name": config.name, "address": address, **({"metrics": measured} if measured else {})}
        await serve_until_stopped("gateway", where, until_stdin_closes=until_stdin_closes)


@asynccontextmanager
async def listening(config: GatewayConfig, metrics: GatewayMetrics) -> AsyncIterator[str]:
    """Answer clients while the block runs; yields the address, `host:port`. `BadInput` if it cannot listen."""
    if config.secured is None:
        log.warning("listen %s: no encryption, and any process on this host can pose as any client", config.listen)
    party = PartyCalls(config.transport(), config.asked)
    runner, address = await http.start(http.HttpScoring(party, config, metrics.answered), config)
    try:
        yield address
    finally:
        await runner.cleanup()
        await party.close()
