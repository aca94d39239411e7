"""`treetap console`: where it listens, from its start to its end.

Who may use a console: tokens that open it once, and the sessions of the browsers that showed one.

Nothing of it is on disk, so that it ends with the process.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import secrets
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from aiohttp import web

from treetap.commands.approvals.client import ApproverConfig, ConsoleConfig, PartyCalls
from treetap.errors import BadInput, ConfigError
from treetap.models.durable import stamp_of
from treetap.names import host_of, on_loopback
from treetap.ops.console.server import Console
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
        try:
            await listener.start()
        except OSError as fault:
            raise BadInput(f"console.listen = {listen!r}: cannot listen there: {fault.strerror}") from None
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


#: Bytes of a token: 128 bits.
TOKEN_BYTES = 16
#: Seconds in which a token can be used, and after whose last request a session ends.
TOKEN_S, IDLE_S = 60.0, 900.0
#: A clock that goes on while the machine sleeps, as CLOCK_MONOTONIC does not on Linux.
_THROUGH_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: Most sessions, and tokens that wait; the oldest one makes room.
MOST = 16


@dataclass
class Session:
    """A browser that showed a token. `form`: the token of its forms; `seen`: the last request, by the clock."""

    form: str
    seen: float


def _seconds() -> float:
    return time.clock_gettime(_THROUGH_SLEEP)


class Sessions:
    """The sessions of one console.

    Args:
        clock: seconds, monotonic, with those for which the machine sleeps.
        draw: random text of a number of bytes, from the operating system.
    """

    def __init__(self, clock: Callable[[], float] = _seconds, draw: Callable[[int], str] = secrets.token_hex) -> None:
        self._clock, self._draw = clock, draw
        self._tokens: dict[bytes, float] = {}
        self._sessions: dict[bytes, Session] = {}

    def token(self) -> str:
        """A new token, which opens one session within `TOKEN_S`."""
        made = self._draw(TOKEN_BYTES)
        _make_room(self._tokens)
        self._tokens[_digest(made)] = self._clock()
        return made

    def enter(self, token: str) -> str | None:
        """The secret of a new session for a token, which is used up by it; None for one that opens none."""
        made = self._tokens.pop(_digest(token), None)
        if made is None or self._clock() - made > TOKEN_S:
            return None
        secret = self._draw(2 * TOKEN_BYTES)
        _make_room(self._sessions)
        self._sessions[_digest(secret)] = Session(self._draw(TOKEN_BYTES), self._clock())
        return secret

    def of(self, secret: str, *, by_hand: bool = True) -> Session | None:
        """The session of a secret; None if there is none, or it was idle for `IDLE_S`.

        `by_hand`: a person asked, which keeps it; a page that refreshes itself does not.
        """
        session, now = self._sessions.get(_digest(secret)), self._clock()
        if session is None:
            return None
        if now - session.seen > IDLE_S:
            self.leave(secret)
            return None
        if by_hand:
            session.seen = now
        return session

    def leave(self, secret: str) -> None:
        """End a session."""
        self._sessions.pop(_digest(secret), None)


def _digest(secret: str) -> bytes:
    """The key by which a secret is looked up, so that no comparison's time tells of it."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _make_room(held: dict[bytes, float] | dict[bytes, Session]) -> None:
    while len(held) >= MOST:
        del held[next(iter(held))]
