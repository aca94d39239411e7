"""HTTP connections: limited in number, and closed when idle for too long; bodies: of bounded length, few at once.



No answer has a `Server` header, which would name the library and its version. Until the turn of a request's body has
come its connection holds `BUFFER` bytes or a few times as many; the client has to wait.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from ipaddress import ip_address, ip_network
from typing import Any
from weakref import WeakValueDictionary

from aiohttp import hdrs, web
from pydantic import BaseModel

from treetap.errors import Overloaded, Refused
from treetap.names import holder_of
from treetap.ops.gateway.http_json import (
    ID_CHARACTERS,
    IDLE_S,
    MOST_BODY,
    PROBLEMS,
    SLOWEST_S,
    PredictRequest,
    Problem,
    predict_request,
)
from treetap.process.together import ended
from treetap.wire.callers import Callers
from treetap.wire.listening import bound
from treetap.wire.ports import Identity

#: Seconds after which a client that was turned away may retry.
RETRY_AFTER_S = 1


class Answer(web.Response):
    """A response without a header that names the server's software."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()  # aiohttp adds its own header here, whatever the response has
        self.headers.popall(hdrs.SERVER, None)


def respond(
    status: int, body: BaseModel | str, kind: str = "application/json", headers: dict[str, str] | None = None
) -> Answer:
    """A JSON answer."""
    text = body if isinstance(body, str) else body.model_dump_json(exclude_none=True)
    return Answer(status=status, text=text, content_type=kind, headers=headers)


def problem(status: int, detail: str, headers: dict[str, Any] | None = None, **more: Any) -> Answer:
    """The reason why there is no answer (RFC 9457); `more`: further members."""
    made = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, **more)
    kept = {name: value for name, value in (headers or {}).items() if name.lower() == "allow"}
    if status in (429, 503):
        kept["Retry-After"] = str(RETRY_AFTER_S)
    return respond(status, made, PROBLEMS, kept)


#: Bodies of one client that are read at once; further ones wait.
AT_ONCE = 4
#: Bytes of a request that a connection takes before a handler reads them.
BUFFER = 16 * 1024
#: Most bytes of a character in JSON: two escapes of six.
_CHARACTER = 12
#: Bytes for everything beside the ids.
_REST = 4096


def longest_body(most_ids: int) -> int:
    """Most bytes of a request's body: what its longest ids take, if that is less than `MOST_BODY`."""
    return min(MOST_BODY, _REST + most_ids * (ID_CHARACTERS * _CHARACTER + len('"", ')))


class Bodies:
    """Reads and parses the bodies of requests with at most `most_ids` ids."""

    def __init__(self, most_ids: int) -> None:
        self.form: type[PredictRequest] = predict_request(most_ids)
        self._longest = longest_body(most_ids)
        self._turns = WeakValueDictionary[str, asyncio.Semaphore]()  # of clients whose bodies are read

    async def read(self, client: str, request: web.Request) -> PredictRequest:
        """The request in the body, which is gone from memory then.

        Raises:
            HTTPRequestEntityTooLarge: the body is too long.
            Overloaded: other bodies of the client take too long.
            TimeoutError: this one takes too long.
            ValidationError: it is no request for predictions.
        """
        if (request.content_length or 0) > self._longest:
            raise self._too_long(request.content_length or 0)
        turn = self._turns.setdefault(client, asyncio.Semaphore(AT_ONCE))
        try:
            async with asyncio.timeout(SLOWEST_S):
                await turn.acquire()
        except TimeoutError:
            raise Overloaded(f"{AT_ONCE} bodies of {client} are being read already, for {SLOWEST_S:g} s") from None
        try:
            body = bytearray()
            async with asyncio.timeout(SLOWEST_S):
                while piece := await request.content.readany():
                    body += piece
                    if len(body) > self._longest:
                        raise self._too_long(len(body))
            return self.form.model_validate_json(body)
        finally:
            turn.release()

    def _too_long(self, size: int) -> web.HTTPRequestEntityTooLarge:
        return web.HTTPRequestEntityTooLarge(self._longest, size)


log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: Headers of an application's own answers, which those that are given in its place have too.
HEADERS = web.AppKey("HEADERS", Mapping[str, str])
#: Most connections at once that have shaken hands; further ones are turned away.
MOST_CONNECTIONS = 512
#: Most of them of one certificate.
MOST_OF_ONE = 64
#: Most connections at once that have not shaken hands.
MOST_WAITING = 4096
#: Limits on the part of a request that a connection holds before a handler reads it; bodies stay as they come.
_SETTINGS: dict[str, Any] = {
    "access_log": None,
    "auto_decompress": False,
    "read_bufsize": BUFFER,
    "max_headers": 32,
    "max_line_size": 2048,
}
#: Bytes of one header of a request.
MOST_FIELD = 2048
#: Requests that may have come while an earlier one of their connection is answered; aiohttp would queue 32 heads.
MOST_AHEAD = 4
#: Connections that the operating system queues until they are accepted.
BACKLOG = 1024
#: Seconds until the next try if the process has no file descriptor for a connection.
SHORT_S = 1.0


class Waiting:
    """Connections that have not shaken hands yet, or without TLS sent no request: each address has a share of them.

    The oldest makes room for a new one, so that who says nothing keeps nobody out.

    Args:
        share: the most of one address.
        proxies: addresses and networks that have all of them.
    """

    def __init__(self, share: int, proxies: Iterable[str] = ()) -> None:
        self._share, self._proxies = share, [ip_network(block) for block in proxies]
        self._silent: dict[Callable[[], None], str] = {}  # what ends it → its address, the oldest first
        self._by_address: Counter[str] = Counter()

    @contextmanager
    def one(self, address: str, end: Callable[[], None]) -> Iterator[None]:
        """Count a connection; `end` is called if it is to make room."""
        caller, address = ip_address(address.partition("%")[0]), holder_of(address)
        full = self._by_address[address] >= self._share and not any(caller in block for block in self._proxies)
        if full or len(self._silent) >= MOST_WAITING:
            oldest = next(one for one, of in self._silent.items() if of == address or not full)
            self._forget(oldest)
            oldest()
        self._silent[end] = address
        self._by_address[address] += 1
        try:
            yield
        finally:
            self._forget(end)

    def _forget(self, end: Callable[[], None]) -> None:
        if (address := self._silent.pop(end, None)) is not None:
            self._by_address -= Counter([address])


class HttpConnection(web.RequestHandler):
    """One connection; it is closed if the head of a request does not arrive in time, or if too many come ahead."""

    def __init__(self, server: web.Server, most_field: int, always: Mapping[str, str]) -> None:
        """`always`: headers of answers to what is no request."""
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, max_field_size=most_field, **_SETTINGS)
        self.lost: asyncio.Future[None] = loop.create_future()
        self.asked: asyncio.Future[None] = loop.create_future()  #: done with the first request, or when it is lost
        self._end: asyncio.TimerHandle | None = None
        self._always = always

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.expect(SLOWEST_S)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.expect(None)
        super().connection_lost(exc)
        self._messages.clear()
        for future in (self.asked, self.lost):
            if not future.done():
                future.set_result(None)

    def data_received(self, data: bytes) -> None:
        """End a connection whose requests run ahead of their answers."""
        for first in range(0, max(len(data), 1), BUFFER):  # piece by piece, since each may hold many heads
            super().data_received(data[first : first + BUFFER])
            if len(self._messages) > MOST_AHEAD and isinstance(self.transport, asyncio.Transport):
                log.warning("HTTP: a connection is closed that asks more than %d requests ahead", MOST_AHEAD)
                self.transport.abort()
                return

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The answer to what is no request."""
        del request, exc, message
        refusal = problem(status, "this is no request of HTTP that can be answered")
        refusal.headers.update(self._always)
        refusal.force_close()
        return refusal

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer, in the place of which aiohttp may have put one of its own, as to an unknown `Expect`."""
        own = resp if isinstance(resp, Answer) else self.handle_error(request, resp.status)
        return await super().finish_response(request, own, start_time)

    def expect(self, within_s: float | None) -> None:
        """Close the connection unless a request arrives within `within_s` seconds; None: remove the limit."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
        if within_s is not None and isinstance(self.transport, asyncio.Transport):
            self._end = asyncio.get_running_loop().call_later(within_s, self.transport.abort)


def certificate_of(connection: asyncio.BaseTransport | web.BaseRequest) -> bytes | None:
    """The other side's certificate (DER); None without one."""
    secured: ssl.SSLObject | None = connection.get_extra_info("ssl_object")
    return None if secured is None else secured.getpeercert(binary_form=True)


@web.middleware
async def awaits_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Suspend the connection's time limit while a request is answered, and restart it afterwards."""
    connection = request.protocol
    assert isinstance(connection, HttpConnection)
    connection.expect(None)
    if not connection.asked.done():
        connection.asked.set_result(None)
    try:
        return await handler(request)
    finally:
        connection.expect(IDLE_S)


class HttpListener(web.BaseSite):
    """Accepts the connections of a runner; `port` is valid after `start`. `most_field`: bytes of one header."""

    def __init__(
        self,
        runner: web.AppRunner,
        host: str,
        port: int,
        secured: Callable[[], ssl.SSLContext] | None,
        callers: Callers | None,
        waiting: Waiting,
        most_field: int = MOST_FIELD,
    ) -> None:
        super().__init__(runner)
        assert runner.server is not None
        self._host, self.port, self._secured, self._web = host, port, secured, runner.server
        self._waiting, self._shaken, self._full = waiting, Counter[Identity | None](), False
        self._most_field, self._always = most_field, runner.app.get(HEADERS, {})
        self._callers = callers
        self._listeners: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._open: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        return f"{self._host}:{self.port}"

    async def start(self) -> None:
        """Listen at every address of the host; raises `OSError` if that fails."""
        await super().start()
        self._listeners = await asyncio.to_thread(bound, self._host, self.port, BACKLOG)
        self.port = self._listeners[0].getsockname()[1]
        for listener in self._listeners:
            listener.setblocking(False)
            self._accepting.append(asyncio.ensure_future(self._accept(listener)))

    async def stop(self) -> None:
        """Accept no further connections; the runner closes the open ones."""
        await ended([*self._open, *self._accepting])
        for listener in self._listeners:
            listener.close()
        await super().stop()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                taken, (address, *_) = await loop.sock_accept(listener)
            except OSError as failure:  # no file descriptor is free until a connection ends
                log.warning("HTTP: no connection can be accepted: %s", failure.strerror)
                await asyncio.sleep(SHORT_S)
                continue
            task = asyncio.ensure_future(self._hold(taken, address))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    async def _hold(self, taken: socket.socket, address: str) -> None:
        """Do the TLS handshake, and count the connection as open until it is lost."""
        connection = HttpConnection(self._web, self._most_field, self._always)
        limit, task = None if self._secured is None else SLOWEST_S, asyncio.current_task()
        assert task is not None

        def end() -> None:
            if connection.transport is None:  # it shakes hands
                task.cancel()
            else:
                connection.expect(0.0)

        with self._waiting.one(address, end):
            try:
                transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: connection, taken, ssl=self._secured and self._secured(), ssl_handshake_timeout=limit
                )
            except OSError as failure:  # no certificate, an untrusted one, too slow, or gone
                log.debug("HTTP: no connection: %s", failure)
                return
            if self._secured is None:
                await connection.asked
        try:
            caller = None if self._callers is None else self._callers.identity(certificate_of(transport))
        except Refused as fault:
            log.warning("HTTP: no connection: %s", fault)
            transport.abort()
            return
        if not self._has_room(caller):
            transport.abort()
            return
        self._shaken[caller] += 1
        try:
            await connection.lost
        finally:
            self._shaken -= Counter([caller])

    def _has_room(self, caller: Identity | None) -> bool:
        """True if one more connection may stay open; the first that may not is logged."""
        full = self._shaken.total() >= MOST_CONNECTIONS
        if full and not self._full:
            log.warning("HTTP: %d connections are open, more are turned away", MOST_CONNECTIONS)
        self._full = full
        return not full and (caller is None or self._shaken[caller] < MOST_OF_ONE)
