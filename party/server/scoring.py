"""The two servers for clients that `[serve]` configures: gRPC, and HTTP with JSON. They run as long as the party.

While no model is served they answer with an error that says so, which differs from a process that is down.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from party.config import PartyConfig
from party.server.http_json import IDLE_S, MOST_BODY
from party.server.own_paths import outward
from party.server.services import register_for_clients
from party.serving.registry import ServedModels
from treetap.errors import BadInput
from treetap.wire import rpc
from treetap.wire.callers import Callers
from treetap.wire.hello import serve_health
from treetap.wire.tls import Insecure

if TYPE_CHECKING:
    import grpc.aio
    from aiohttp.web import AppRunner

log = logging.getLogger(__name__)


class ScoringServers:
    """The servers listen from `open` on; without `[serve]` there are none."""

    def __init__(self) -> None:
        self._server: grpc.aio.Server | None = None
        self._runner: AppRunner | None = None

    async def open(self, config: PartyConfig, served_models: ServedModels) -> None:
        """Listen, and enter the addresses in the registry of served models.

        Raises:
            BadInput: listening fails, or HTTP is configured and its library is not installed.
        """
        served = config.serve
        if served is None:
            return
        callers = Callers(config.name, config.transport(), outward(config))
        if served.listen is not None:
            self._server, credentials = rpc.server(callers, MOST_BODY, served.queue, IDLE_S)
            register_for_clients(self._server, callers, served_models)
            serve_health(self._server, callers)
            number = rpc.bind(self._server, credentials, served.listen, "serve.listen")
            await self._server.start()
            served_models.grpc = f"{served.listen.rpartition(':')[0]}:{number}"
        if served.http is not None:
            try:
                from party.server import http
            except ModuleNotFoundError as missing:
                raise BadInput(
                    f"serve.http: HTTP needs {missing.name}, which is not installed: pip install 'treetap[serve]', or "
                    "leave http out"
                ) from None
            transport = config.transport()
            plain = served.plain_http or isinstance(transport, Insecure)
            if plain:
                log.warning(
                    "serve.http %s: no encryption, and any process on this host can pose as any client", served.http
                )
            made = http.HttpScoring(served_models, served, None if plain else callers, callers.outward)
            files = None if isinstance(transport, Insecure) or plain else transport
            self._runner, served_models.http = await http.start(made, served, files)

    async def close(self, grace_s: float) -> None:
        """Stop; calls under way may take `grace_s` seconds to end."""
        if self._server is not None:
            await self._server.stop(grace_s)
        if self._runner is not None:
            await self._runner.cleanup()
