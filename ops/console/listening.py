"""`treetap console`: where it listens, from its start to its end."""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from aiohttp import web

from treetap.commands.approvals.client import ApproverConfig, ConsoleConfig, PartyCalls
from treetap.errors import ConfigError, cannot
from treetap.models.durable import stamp_of
from treetap.names import host_of, on_loopback
from treetap.ops.console.server import Console
from treetap.ops.console.sessions import TOKEN_S, Sessions
from treetap.ops.gateway.http_connections import HttpListener, Waiting, awaits_requests
from treetap.process.config import Secret
from treetap.process.lifecycle import serve_until_stopped
from treetap.wire.certificates import open_key

log = logging.getLogger(__name__)
#: Seconds between two tries to read a certificate and key that could not be used; a command may take ten.
AGAIN_S = 600.0
#: Seconds that a call to the party may take.
CALL_S = 10.0
#: Connections of one address that have asked nothing yet.
SHARE = 64
#: Bytes of one header: a browser sends the cookies of all services of a host, whatever their ports.
MOST_FIELD = 8192
_NEAR = ("localhost", "127.0.0.1", "::1")


def hosts_of(config: ConsoleConfig) -> frozenset[str]:
    """The names under which the pages may be asked for."""
    near = _NEAR if on_loopback(config.listen) else ()
    return frozenset({host_of(config.listen), *near, *(name.lower().rstrip(".") for name in config.hosts)})


def secured_by(config: ConsoleConfig) -> Callable[[], ssl.SSLContext] | None:
    """TLS of a connection, by the certificate of the pages; None without one. Raises ConfigError for other files."""
    if config.certificate is None or config.key is None:
        return None
    return _Pages(config.certificate, config.key, config.passphrase).context


class _Pages:
    """TLS with the certificate of the pages, by the files as they are; unusable ones leave those before in force."""

    def __init__(self, certificate: Path, key: Path, passphrase: Secret | None) -> None:
        self._files, self._passphrase = (certificate, key), passphrase
        self._seen, self._again = self._look(), math.inf
        self._context = self._made()

    def context(self) -> ssl.SSLContext:
        """For one more connection."""
        if (seen := self._look()) != self._seen or monotonic() >= self._again:
            self._seen, self._again = seen, math.inf
            try:
                self._context = self._made()
            except ConfigError as fault:  # the place of the passphrase may be away for a while
                self._again = monotonic() + AGAIN_S
                log.warning("%s; those read before stay in force", fault)
        return self._context

    def _look(self) -> tuple[tuple[int, ...], ...]:
        return tuple(map(stamp_of, self._files))

    def _made(self) -> ssl.SSLContext:
        certificate, key = self._files
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            made.load_cert_chain(certificate, key, open_key(key, self._passphrase)[1])
        except (OSError, ConfigError) as fault:
            reason = (isinstance(fault, OSError) and fault.strerror) or fault
            both = f"console.certificate = {certificate}, console.key = {key}"
            raise ConfigError(f"{both}: they are no certificate and its key: {reason}") from None
        return made


def run(path: Path, *, until_stdin_closes: bool, in_terminal: bool) -> None:
    """Serve the pages of an approver's file until SIGTERM, SIGINT or, if asked, the end of standard input."""
    config = ApproverConfig.from_file(path)
    asyncio.run(_serve(config, until_stdin_closes=until_stdin_closes, in_terminal=in_terminal))


async def _serve(config: ApproverConfig, *, until_stdin_closes: bool, in_terminal: bool) -> None:
    listen, secured = config.console.listen, secured_by(config.console)
    calls = PartyCalls(config, CALL_S)
    hosts = hosts_of(config.console)
    console = Console(calls, config.name, config.party_name, Sessions(), hosts, secured=secured is not None)
    console.application.middlewares.insert(0, awaits_requests)
    runner = web.AppRunner(console.application, access_log=None, handler_cancellation=True, shutdown_timeout=2.0)
    await runner.setup()
    host, _, port = listen.rpartition(":")
    listener = HttpListener(runner, host.strip("[]"), int(port), secured, None, Waiting(SHARE), MOST_FIELD)
    try:
        with cannot("listen there", f"console.listen = {listen!r}"):
            await listener.start()
        address = f"{host}:{listener.port}"
        scheme = "http" if secured is None else "https"

        async def tell() -> None:
            token = console.sessions.token()
            print(f"{scheme}://{address}/ opens once, within {TOKEN_S:g} s, with the token {token}", flush=True)

        await tell()
        await serve_until_stopped(
            "console",
            {"name": config.name, "address": address},
            until_stdin_closes=until_stdin_closes,
            reread=tell,
            in_terminal=in_terminal,
        )
    finally:
        await runner.cleanup()
        await calls.close()
