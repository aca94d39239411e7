"""Channels, servers and clients over gRPC with mutual TLS: the transport between processes.

`insecure = true` puts plain text on loopback in its place; everything else is the same.

The clients of our own services are here; what answers their calls is with the processes, in `treetap.party.server` and
`treetap.coordinator.server`. All options of channels and servers are here, so that both ends agree.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio

from treetap import version
from treetap.errors import BadInput, Incompatible, Interrupted, Refused, Unanswered, Unreachable
from treetap.wire.admission import MOST_CALLS, Admission
from treetap.wire.callers import Callers, error_of
from treetap.wire.listening import bound
from treetap.wire.ports import Address, Timeouts
from treetap.wire.probe import Diagnosis, examine, refusal, say_hello
from treetap.wire.proxies import way
from treetap.wire.tls import Credentials, CredentialSource, Insecure, Transport, check_near
from treetap.wire.v2 import control_pb2, control_pb2_grpc, exchange_pb2, jobs_pb2_grpc

if TYPE_CHECKING:
    from treetap.wire.v2 import overview_pb2

    JobsStub = jobs_pb2_grpc.JobsAsyncStub
else:
    JobsStub = jobs_pb2_grpc.JobsStub

log = logging.getLogger(__name__)
#: Service and method of messages between parties, which travel as the bytes that the sender has.
EXCHANGE, DELIVER = "treetap.wire.v2.Exchange", "Deliver"
#: Service and method of what a party's people are shown, which few parties are asked for.
OVERVIEW, SHOW = "treetap.wire.v2.Overview", "Show"
Deliver = Callable[[tuple[exchange_pb2.PeerMessage, bytes], Any], Awaitable[exchange_pb2.Receipt]]
#: Most bytes of a message: parties send parts of 1 to 2 MiB.
MESSAGE_LIMIT = 2 * 1024 * 1024
#: Bytes of a message that come before it is read.
WINDOW = 16 * 1024
#: Seconds that a connection may take for its handshakes, from TCP to gRPC's first frame.
HANDSHAKE_S = 10.0
#: Seconds that a connection may stay without a call; a caller's next call opens another. Each takes about 110 kB, so
#: this bounds what one certificate can hold by opening connections as fast as hands can be shaken.
IDLE_S = 1.5
#: Seconds after which a channel without a call gives its connection up, as a rule before the server does, whose word
#: that it is closed takes half a round trip: a call that begins meanwhile fails and is repeated. gRPC takes no less
#: than one second.
GIVE_UP_S = 1.0
#: Connections of a server at once; further ones are closed before their handshakes. Each takes 50 to 70 kB, and a host
#: may allow a process more descriptors than it has memory for.
MOST_CONNECTIONS = 8192
#: Seconds that an operator's short call may take.
ASK_DEADLINE = 30.0

_LONGEST = "grpc.max_receive_message_length"
_COMMON = [
    ("grpc.max_send_message_length", MESSAGE_LIMIT),
    (_LONGEST, MESSAGE_LIMIT),
]
_SERVER = [
    *_COMMON,
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.so_reuseport", 0),  # with port re-use a second process on a used port would seem to start
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # a message that no handler reads yet keeps to its stream's first window, which probing would enlarge
    ("grpc.http2.lookahead_bytes", WINDOW),
    ("grpc.http2.bdp_probe", 0),
]


def channel_options(timeouts: Timeouts, give_up_s: float = GIVE_UP_S) -> list[tuple[str, str | int]]:
    """The options of a channel whose process has these deadlines. `give_up_s`: see `GIVE_UP_S`."""
    return [
        *_COMMON,
        # the quiet of a connection until it is tested, of which servers refuse more than one in 10 s; then the answer
        ("grpc.keepalive_time_ms", int(1000 * max(10.0, min(20.0, timeouts.silence_s / 2)))),
        ("grpc.keepalive_timeout_ms", int(1000 * max(3.0, min(10.0, timeouts.silence_s / 3)))),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", int(1000 * timeouts.connect_s)),  # of an attempt, in spite of its name
        ("grpc.max_reconnect_backoff_ms", 500),  # of the pause between two
        ("grpc.client_idle_timeout_ms", int(1000 * give_up_s)),
        ("grpc.enable_retries", 0),  # steps and messages are repeated by their own rules
    ]


def server(
    callers: Callers,
    most_bytes: int = MESSAGE_LIMIT,
    most_calls: int = MOST_CALLS,
    idle_s: float = IDLE_S,
) -> tuple[grpc.aio.Server, grpc.ServerCredentials | None]:
    """A server without services, and the credentials that demand a client certificate of our authority.

    `callers`: recognises the callers; its own plain text gives no credentials, which `bind` allows on loopback.
    `most_bytes`: of a request; `most_calls`: at once, half of them for one caller (see `admission`); `idle_s`: how long
    a connection may stay without a call.
    """
    credentials = None if callers.credentials is None else server_credentials(callers.credentials)
    limits = {
        _LONGEST: most_bytes,
        "grpc.max_concurrent_streams": max(1, most_calls // 2),  # of one connection
        "grpc.max_allowed_incoming_connections": MOST_CONNECTIONS,
        "grpc.server_handshake_timeout_ms": int(1000 * HANDSHAKE_S),
        "grpc.max_connection_idle_ms": int(1000 * idle_s),
    }
    options = list({**dict(_SERVER), **limits}.items())
    return grpc.aio.server(options=options, interceptors=[Admission(callers, most_calls)]), credentials


def serve_exchange(aio_server: grpc.aio.Server, deliver: Deliver) -> None:
    """Answer messages between parties: they are decoded, and their bytes are there as they came.

    `deliver`: of the message with its bytes, and the call's context.
    """
    handler = grpc.unary_unary_rpc_method_handler(
        deliver,
        request_deserializer=lambda content: (exchange_pb2.PeerMessage.FromString(content), content),
        response_serializer=exchange_pb2.Receipt.SerializeToString,
    )
    aio_server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(EXCHANGE, {DELIVER: handler}),))


def serve_overview(aio_server: grpc.aio.Server, show: Callable[..., Awaitable[overview_pb2.View]]) -> None:
    """Answer a party's people about what goes on there; the messages are imported when one asks."""

    def asked(content: bytes) -> overview_pb2.AskedView:
        from treetap.wire.v2 import overview_pb2

        return overview_pb2.AskedView.FromString(content)

    handler: Any = grpc.unary_unary_rpc_method_handler(
        show, request_deserializer=asked, response_serializer=lambda view: view.SerializeToString()
    )
    aio_server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(OVERVIEW, {SHOW: handler}),))


def server_credentials(source: CredentialSource) -> grpc.ServerCredentials:
    """Credentials that demand a client certificate; each handshake takes the files as they are then."""
    shown = source.now()

    def changed() -> grpc.ServerCertificateConfiguration | None:  # None: as before
        nonlocal shown
        now = source.now()
        if now.number == shown.number:
            return None
        shown = now
        return _configuration(now)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(shown),
        changed,  # type: ignore[arg-type] # gRPC's stubs do not know None
        require_client_authentication=True,
    )


def _configuration(now: Credentials) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(now.key, now.certificate)], root_certificates=now.ca)


def bind(
    aio_server: grpc.aio.Server, credentials: grpc.ServerCredentials | None, listen: str, key: str = "listen"
) -> str:
    """Bind `host:port` (port 0: a free one) and return the address; `BadInput` where that cannot be.

    `key`: the address's key in a file. A plain socket tries first: it knows the cause, and gRPC would put lines
    of its own on standard error.
    """
    if credentials is None:
        check_near(f"{key} =", listen)
    if fault := listening_fault(listen):
        raise BadInput(f"{key} = {listen!r}: cannot listen there: {fault}")
    try:
        if credentials is None:
            port = aio_server.add_insecure_port(listen)
        else:
            port = aio_server.add_secure_port(listen, credentials)
    except RuntimeError as failure:
        raise BadInput(f"{key} = {listen!r}: cannot bind ({failure}); is the port in use?") from failure
    return f"{listen.rpartition(':')[0]}:{port}"


def listening_fault(listen: str) -> str | None:
    """The reason why no process can listen at every address of `host:port` now; None if one can."""
    host, _, number = listen.rpartition(":")
    try:
        for trial in bound(host.strip("[]"), int(number)):
            trial.close()
    except OSError as failure:
        return failure.strerror
    return None


class _Telling:
    """A channel as generated stubs use it, whose every call carries our version of the protocol and more."""

    def __init__(self, channel: grpc.aio.Channel, more: tuple[tuple[str, str], ...]) -> None:
        self._channel, self._metadata = channel, (*version.told(), *more)

    def unary_unary(self, *about: Any, **more: Any) -> Any:
        return partial(self._channel.unary_unary(*about, **more), metadata=self._metadata)

    def unary_stream(self, *about: Any, **more: Any) -> Any:
        return partial(self._channel.unary_stream(*about, **more), metadata=self._metadata)


class GrpcDialer:
    """Reaches processes over mutual TLS; a certificate there must bear the name and the role by which it is called."""

    def __init__(self, transport: Transport, timeouts: Timeouts | None = None, give_up_s: float = GIVE_UP_S) -> None:
        self._transport, self._timeouts = transport, timeouts or Timeouts()
        self.channels = Channels(transport, channel_options(self._timeouts, give_up_s), self._timeouts.diagnosis_s)

    async def step(self, to: Address, request: control_pb2.StepRequest) -> AsyncIterator[control_pb2.StepEvent]:
        async with self.calling(to) as channel:
            async for event in control_pb2_grpc.ControlStub(channel).Step(request):
                yield event

    async def deliver(self, to: Address, message: bytes) -> exchange_pb2.Receipt:
        async with self.calling(to) as channel:
            call: Any = channel.unary_unary(f"/{EXCHANGE}/{DELIVER}", None, exchange_pb2.Receipt.FromString)
            receipt: exchange_pb2.Receipt = await call(message, timeout=self._timeouts.silence_s)
            return receipt

    @asynccontextmanager
    async def jobs(self, to: Address) -> AsyncIterator[JobsStub]:
        """The stub of a coordinator's operator service for one call, whose errors are those of `treetap.errors`."""
        async with self.calling(to) as channel:
            yield jobs_pb2_grpc.JobsStub(channel)

    @asynccontextmanager
    async def calling(self, to: Address, *more: tuple[str, str]) -> AsyncIterator[grpc.aio.Channel]:
        """The channel for one call, whose failure is explained; one that ends for changed files is `Unanswered`.

        `more`: further metadata of the call.
        """
        self.channels.look_on()
        channel = await self.channels.ready(to)
        try:
            own = self._transport.told() if isinstance(self._transport, Insecure) else ()
            yield cast(grpc.aio.Channel, _Telling(channel, (*own, *more)))
        except grpc.aio.AioRpcError as failure:
            raise await self._explained(failure, to) from None
        except asyncio.CancelledError:
            if not self.channels.left(to, channel):
                raise
            changed = f"{to.name}: the channel was closed, since TLS files have changed; it is dialled anew"
            raise Unanswered(changed) from None

    async def _explained(self, failure: grpc.aio.AioRpcError, to: Address) -> Exception:
        """The error of a failed call; the cause of a bare UNAVAILABLE or UNIMPLEMENTED is diagnosed."""
        error = error_of(failure, to.name)
        if failure.code() is grpc.StatusCode.UNIMPLEMENTED:
            return await self._other_version(to) or error
        if not isinstance(error, Unreachable):
            return error
        await self.channels.broken(to)
        if isinstance(self._transport, Insecure):
            return Unanswered(str(error)) if await _listens(to.location, self._timeouts.diagnosis_s) else error
        diagnosis = await asyncio.to_thread(examine, to, self._transport, self._timeouts.diagnosis_s)
        return self.channels.error(diagnosis, f" (gRPC: {' '.join((failure.details() or 'no details').split())})")

    async def _other_version(self, to: Address) -> Incompatible | None:
        """The error of a server that lacks our services since it speaks another version; None where it does not."""
        try:
            heard = await asyncio.to_thread(say_hello, to, self._transport, self._timeouts.diagnosis_s)
            version.check(heard.protocol, to.name, "its caller")
        except Incompatible as error:
            return error
        except (Interrupted, Refused) as failure:
            log.debug("%s: which version it speaks is not known: %s", to.name, failure)
        return None

    async def close(self) -> None:
        await self.channels.close()


async def _listens(location: str, within_s: float) -> bool:
    """True if a process takes connections at `host:port` on this host."""
    host, _, port = location.rpartition(":")
    try:
        async with asyncio.timeout(within_s):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


#: Seconds between two looks at the files, beside the look before every call.
LOOK_S = 5.0
_CONNECTED = (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.CONNECTING)


class Channels:
    """One channel to each process that is called, dialled anew when the TLS files change.

    gRPC in Python takes no list of revoked certificates and does not show the server's certificate. Where there is a
    list, a handshake of Python's `ssl` checks the server before gRPC connects; gRPC repeats an attempt that failed
    without another check. What remains: docs/threats.md.

    Args:
        transport: the process's own credentials.
        options: gRPC's, of every channel.
        look_s: most seconds of a look at a server.
    """

    def __init__(self, transport: Transport, options: Sequence[tuple[str, str | int]], look_s: float) -> None:
        self._transport, self._options, self._look_s = transport, list(options), look_s
        self._credentials: CredentialSource | None = None
        self._number = 0
        self._dialled: grpc.ChannelCredentials | None = None
        self._open: dict[Address, grpc.aio.Channel] = {}
        self._examining: dict[Address, asyncio.Lock] = {}
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    def channel(self, to: Address) -> grpc.aio.Channel:
        """The channel to a process, opened on first use, whatever has changed since."""
        if to not in self._open:
            self._open[to] = self._dial(to)
        return self._open[to]

    async def ready(self, to: Address) -> grpc.aio.Channel:
        """The channel for one more call, by the files as they are now.

        Raises:
            Incompatible, Unanswered, Unreachable: there is a list, no connection, and the server cannot be called.
        """
        self._closed = False
        await self.renew()
        if isinstance(self._transport, Insecure) or self._transport.revoked is None:
            return self.channel(to)
        async with self._examining.setdefault(to, asyncio.Lock()):
            if to not in self._open or self._open[to].get_state() not in _CONNECTED:
                await self._drop(to)
                if fault := await asyncio.to_thread(refusal, to, self._transport, self._look_s):
                    raise self.error(fault)
                self.channel(to).get_state(try_to_connect=True)
        return self.channel(to)

    async def broken(self, to: Address) -> None:
        """Give up a channel that has lost its connection: with a list, gRPC must not connect it again by itself."""
        if isinstance(self._transport, Insecure) or self._transport.revoked is None:
            return
        if to in self._open and self._open[to].get_state() is not grpc.ChannelConnectivity.READY:
            await self._drop(to)

    async def renew(self) -> None:
        """Close all channels if the files have changed: their calls end with `CancelledError`, see `left`."""
        if self._credentials is None or self._credentials.now().number == self._number:
            return
        self._number, self._dialled = self._credentials.now().number, None
        for to in list(self._open):
            await self._drop(to)

    def left(self, to: Address, channel: grpc.aio.Channel) -> bool:
        """True if a call was cancelled because its channel was closed, and not by the task that waits for it."""
        task = asyncio.current_task()
        return not self._closed and self._open.get(to) is not channel and not (task and task.cancelling())

    def error(self, diagnosis: Diagnosis, more: str = "") -> Unreachable | Incompatible:
        """The error of a server that could not be called; while our own files change, a repeat may succeed."""
        changing = diagnosis.own and self._credentials is not None and self._credentials.unsettled
        kind = Unanswered if changing or (diagnosis.there and not diagnosis.lasting) else Unreachable
        return (Incompatible if diagnosis.lasting and not changing else kind)(f"{diagnosis.line}{more}")

    def look_on(self) -> None:
        """Also look at the files while no call begins: calls may last for days."""
        if self._looking is None and not isinstance(self._transport, Insecure):
            self._looking = asyncio.ensure_future(self._look())

    async def close(self) -> None:
        """Close all channels; the next call opens them again."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        for to in list(self._open):
            await self._drop(to)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.renew()

    async def _drop(self, to: Address) -> None:
        if (channel := self._open.pop(to, None)) is not None:
            await channel.close()

    def _dial(self, to: Address) -> grpc.aio.Channel:
        if isinstance(self._transport, Insecure):
            check_near(f"{to.name} at", to.location)
            target, options = way(to.location, proxied=False)
            return grpc.aio.insecure_channel(target, options=[*self._options, *options])
        if self._credentials is None:
            self._credentials = CredentialSource(self._transport)
        if self._dialled is None:
            now = self._credentials.now()
            self._number = now.number
            self._dialled = grpc.ssl_channel_credentials(now.ca, now.key, now.certificate)
        target, options = way(to.location, proxied=self._transport.proxied)
        options = [*self._options, *options, ("grpc.ssl_target_name_override", to.dns)]
        return grpc.aio.secure_channel(target, self._dialled, options=options)
