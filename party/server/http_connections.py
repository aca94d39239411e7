"""HTTP connections: so many and no more, and none that stays open for nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from party.server.http_json import IDLE_S, SLOWEST_S
from treetap.wire.listening import bound

log = logging.getLogger(__name__)
#: Connections that are open at once; whoever comes then is turned away.
MOST_CONNECTIONS = 512
#: Connections that the system holds until they are accepted.
BACKLOG = 1024
#: Seconds until the next try where the system has no descriptor for a connection.
SHORT_S = 1.0


class HttpConnection(web.RequestHandler):
    """One connection. It is closed when the head of a request does not come in time, whatever else comes."""

    def __init__(self, server: web.Server) -> None:
        loop = asyncio.get_running_loop()
        quiet: dict[str, Any] = {"access_log": None}
        super().__init__(server, loop=loop, **quiet)
        self.lost: asyncio.Future[None] = loop.create_future()
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self.expect(SLOWEST_S)

    def connection_lost(self, exc: BaseException | None) -> None:
        """See `asyncio.Protocol`."""
        self.expect(None)
        super().connection_lost(exc)
        if not self.lost.done():
            self.lost.set_result(None)

    def expect(self, within_s: float | None) -> None:
        """A request is to come within so many seconds; None: one is being answered."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
        if within_s is not None and isinstance(self.transport, asyncio.Transport):
            self._end = asyncio.get_running_loop().call_later(within_s, self.transport.abort)


@web.middleware
async def awaits_requests(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """The head of a request has come: its connection may stay until the answer, and a while longer."""
    line = request.protocol
    assert isinstance(line, HttpConnection)
    line.expect(None)
    try:
        return await handler(request)
    finally:
        line.expect(IDLE_S)


class HttpListener(web.BaseSite):
    """Accepts the connections of a runner; the port is there from `start` on."""

    def __init__(self, runner: web.AppRunner, host: str, port: int, secured: ssl.SSLContext | None) -> None:
        super().__init__(runner)
        assert runner.server is not None
        self._host, self.port, self._secured, self._web = host, port, secured, runner.server
        self._listeners: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._open: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        """See `web.BaseSite`."""
        return f"{self._host}:{self.port}"

    async def start(self) -> None:
        """Listen at every address of the host; `OSError` where one cannot."""
        await super().start()
        self._listeners = await asyncio.to_thread(bound, self._host, self.port, BACKLOG)
        self.port = self._listeners[0].getsockname()[1]
        for listener in self._listeners:
            listener.setblocking(False)
            self._accepting.append(asyncio.ensure_future(self._accept(listener)))

    async def stop(self) -> None:
        """Accept nobody any more; the runner closes what is open."""
        tasks = [*self._open, *self._accepting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._listeners:
            listener.close()
        await super().stop()

    async def _accept(self, listener: socket.socket) -> None:
        loop, full = asyncio.get_running_loop(), False
        while True:
            try:
                taken, _ = await loop.sock_accept(listener)
            except OSError as failure:  # the system has no more descriptors, until some connection ends
                log.warning("serve.http: no connection can be accepted: %s", failure.strerror)
                await asyncio.sleep(SHORT_S)
                continue
            if len(self._open) >= MOST_CONNECTIONS:
                taken.close()
                if not full:
                    log.warning("serve.http: %d connections are open, more are turned away", MOST_CONNECTIONS)
                full = True
                continue
            full = False
            task = asyncio.ensure_future(self._hold(taken))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    async def _hold(self, taken: socket.socket) -> None:
        """Shake hands, and count the connection until it is lost."""
        line = HttpConnection(self._web)
        limit = None if self._secured is None else SLOWEST_S
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: line, taken, ssl=self._secured, ssl_handshake_timeout=limit
            )
        except OSError as failure:  # no certificate, or none of ours, or too slow, or gone
            log.debug("serve.http: no connection: %s", failure)
            return
        await line.lost
