"""A gateway and its party's server for clients, both of production and in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from treetap.metrics import ProcessMetrics
from treetap.ops.gateway.config import GatewayConfig
from treetap.ops.gateway.http import listening
from treetap.party.config import PartyConfig
from treetap.party.runtime.metrics import PartyMetrics
from treetap.party.server.services import ScoringServer
from treetap.party.serving.registry import ServedModels

GATEWAY = "gateway"
#: Keys of a party's table `[serve]` beside its clients.
SERVED = {"listen": "127.0.0.1:0", "gateway": GATEWAY}


def clear(folder: Path, name: str = "bank", **serve: object) -> PartyConfig:
    """A party that serves clients without certificates. `serve`: further keys of its table."""
    served = {"clients": ["app", "batch"], **SERVED, **serve}
    return PartyConfig.model_validate({"name": name, "state": folder / "state", "serve": served, "insecure": True})


@asynccontextmanager
async def in_the_clear(folder: Path, **gateway: object) -> AsyncIterator[int]:
    """The port of a gateway's HTTP endpoint without certificates, for two clients. `gateway`: keys of its file."""
    async with behind_gateway(clear(folder), **gateway) as address:
        yield int(address.rpartition(":")[2])


@asynccontextmanager
async def behind_gateway(config: PartyConfig, models: ServedModels | None = None, **keys: Any) -> AsyncIterator[str]:
    """The gateway's address. `keys`: of its file; without `tls` it is insecure, as the party is then."""
    server, models = ScoringServer(), models or ServedModels(config, PartyMetrics(config.name))
    await server.open(config, models)
    party = {"name": config.name, "address": models.address}
    given = {"listen": "127.0.0.1:0", "party": party, **({} if "tls" in keys else {"insecure": True}), **keys}
    try:
        async with listening(GatewayConfig.model_validate(given), ProcessMetrics("gateway", GATEWAY)) as address:
            yield address
    finally:
        await server.close(0)
