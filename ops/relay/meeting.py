"""The relay itself: routes connections by the server name in their ClientHello to whoever is registered for it.

It terminates TLS for its own name alone, where a process shows the certificate of the name that it registers: it states
no name beside that. Of two registrations for one name the newer stays, since a process whose connection has died
silently must get in again. What passes through is neither read nor kept; only names, sizes and times are seen.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from treetap.errors import Malformed, Refused, TreetapError, cannot, visible
from treetap.names import holder_of
from treetap.ops.relay.client_hello import ClientHello
from treetap.process.together import ended
from treetap.wire.callers import Callers
from treetap.wire.listening import bound
from treetap.wire.ports import Identity, Role
from treetap.wire.relay.control import (
    DATA,
    DATA_LINE,
    GREETING,
    MOST_LINE,
    OPEN,
    PING,
    PING_S,
    PONG,
    READY,
    REFUSED,
    REPLACED,
    SILENT_S,
    new_token,
    read_line,
    say,
    token_of,
)
from treetap.wire.relay.splicing import LINGER_S, MOST_UNPROVEN, MOST_UNPROVEN_S, End, Share
from treetap.wire.tls import Secured

log = logging.getLogger(__name__)
#: Connections at once of which it is not known where they lead; one address has half of them at most. The oldest makes
#: room for a new one, so that who says nothing keeps nobody out.
MOST_WAITING = 1024
#: Answers of a process after which its caller has shown a certificate: without one it has the one to its hello, and the
#: one to a second hello that the first may have led to (RFC 8446, 4.1.4).
ANSWERS = 3
#: Connections that the system holds until they are accepted.
BACKLOG = 1024
#: Most bytes that wait for a process to read its control connection.
MOST_UNREAD = 64 * 1024
#: Fatal alerts of TLS, as records (RFC 8446, 6): the name is not registered; the relay cannot reach it now.
UNKNOWN_NAME, NOT_REACHED = b"\x15\x03\x03\x00\x02\x02\x70", b"\x15\x03\x03\x00\x02\x02\x50"
#: Reasons for which a connection is turned away.
REASONS = ("no hello", "unknown name", "share", "not fetched", "unknown token")
#: Roles that register.
_REGISTERED = (Role.PARTY, Role.COORDINATOR)


@dataclass(frozen=True)
class Bounds:
    """Bounds of what the relay lets processes have.

    Attributes:
        names: the processes that may register; None: all with a certificate of the authority.
        connections: of callers to one name, at once; one address has half of them at most. Where all are taken, a new
            one has the place of the oldest that has not shown a certificate, of the address with most of these.
        bytes_s: bytes of one name in a second; None: any number. Callers that have not shown a certificate spend none
            of them: they share as many as a tenth, or 64 KiB, and each sends 64 KiB at most.
        idle_s: seconds after which a connection without a byte is closed.
        hello_s: seconds for a hello, a registration, and a process's dialling of a data connection.
    """

    names: frozenset[str] | None = None
    connections: int = 256
    bytes_s: int | None = None
    idle_s: float = 120.0
    hello_s: float = 10.0


@dataclass
class Name:
    """A process that has registered since the relay began: its share, and its callers' connections by address.

    Attributes:
        unproven_share: of callers that have not shown a certificate yet.
        unproven: of these connections those whose callers have not shown a certificate yet, the oldest first.
    """

    process: Identity
    share: Share
    unproven_share: Share
    open: Counter[str] = field(default_factory=Counter)
    unproven: dict[_Arrival, None] = field(default_factory=dict)
    control: asyncio.StreamWriter | None = None


class Relay:
    """A relay of one identity.

    Args:
        own: the relay's name and role, which the processes dial.
        secured: TLS for registrations.
        callers: recognises those who register.
        bounds: what they may have.
        known: called with every name that registers for the first time.
    """

    def __init__(
        self,
        own: Identity,
        secured: Secured,
        callers: Callers,
        bounds: Bounds,
        known: Callable[[Name], None] = lambda _: None,
    ) -> None:
        self._own, self._secured, self._callers, self._bounds, self._known = own, secured, callers, bounds, known
        self.names: dict[str, Name] = {}  #: by DNS name
        #: Bytes of a caller before its certificate is known.
        self.most_unproven = math.inf if bounds.bytes_s is None else MOST_UNPROVEN
        self.turned_away: Counter[str] = Counter()
        self._arriving: Counter[str] = Counter()
        self._unsettled: dict[_Arrival, None] = {}  # the same, the oldest first
        self._unfetched: dict[str, tuple[_Arrival, Name]] = {}
        self._registering: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._ends: set[_Arrival] = set()

    async def start(self, listen: str) -> str:
        """Listen at every address of `host:port` (port 0: a free one); returns the address. Raises BadInput."""
        host, _, port = listen.rpartition(":")
        with cannot("listen there", f"listen = {listen!r}"):
            listeners = bound(host.strip("[]"), int(port), BACKLOG)
        number = listeners[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        for listener in listeners:
            self._servers.append(await loop.create_server(lambda: _Arrival(self), sock=listener, backlog=BACKLOG))
        return f"{host}:{number}"

    async def close(self) -> None:
        """End all connections."""
        for server in self._servers:
            server.close()
        await ended(self._registering)
        for end in list(self._ends):
            end.close(abrupt=True)

    def arrived(self, end: _Arrival) -> None:
        """Count a connection; one that is too many of its address is closed, of all the one that has waited longest."""
        self._ends.add(end)
        end.on_lost(lambda: self._ends.discard(end))
        self._arriving[end.address] += 1
        self._unsettled[end] = None
        if self._arriving[end.address] > MOST_WAITING // 2:
            self.turn_away(end, "no hello")
            return
        if len(self._unsettled) > MOST_WAITING:
            self.turn_away(next(iter(self._unsettled)), "no hello")
        end.waits(self._bounds.hello_s, lambda: self.turn_away(end, "no hello"))

    def settled(self, end: _Arrival) -> None:
        """Count it no longer among those of which nothing is known."""
        self._arriving -= Counter([end.address])
        self._unsettled.pop(end, None)

    def turn_away(self, end: _Arrival, reason: str, alert: bytes = b"") -> None:
        """Close a connection, with an alert by which a caller's TLS names the cause."""
        self.turned_away[reason] += 1
        log.debug("a connection of %s is turned away: %s", end.address, reason)
        end.settle()
        if alert and end.transport is not None:
            end.transport.write(alert)
        end.close(abrupt=not alert)

    def routed(self, end: _Arrival, name: str) -> None:
        """Lead a connection on, whose ClientHello names a server."""
        if name == self._own.dns:
            end.hold("routed")
            task = asyncio.ensure_future(self._register(end))
            self._registering.add(task)
            task.add_done_callback(self._registering.discard)
            return
        known = self.names.get(name)
        if known is None or known.control is None:
            self.turn_away(end, "unknown name", UNKNOWN_NAME)
            return
        if len(end.hello.content) > self.most_unproven:
            self.turn_away(end, "share")
            return
        most = self._bounds.connections
        full = known.open.total() >= most
        if known.open[end.address] >= max(1, most // 2) or (full and not self._make_room(known)):
            self.turn_away(end, "share", NOT_REACHED)
            return
        if known.control.transport.get_write_buffer_size() > MOST_UNREAD:
            self.turn_away(end, "not fetched", NOT_REACHED)
            return
        end.settle()
        end.hold("routed")
        known.open[end.address] += 1
        known.unproven[end] = None
        end.on_lost(lambda: self._leaves(known, end))
        token = new_token()
        self._unfetched[token] = (end, known)
        end.on_lost(lambda: self._unfetched.pop(token, None))

        def late() -> None:
            if self._unfetched.pop(token, None) is not None:
                self.turn_away(end, "not fetched", NOT_REACHED)

        end.waits(self._bounds.hello_s, late)
        say(known.control, OPEN, token)

    def fetched(self, data: _Arrival, token: str, early: bytes) -> None:
        """Join a data connection with the caller that its token stands for. `early`: what it has sent already."""
        caller, known = self._unfetched.pop(token, (None, None))
        if caller is None or known is None or caller.transport is None:
            self.turn_away(data, "unknown token")
            return
        data.settle()
        for end in (data, caller):
            end.waits(None)
        caller.talk = data.talk = _Talk(caller, lambda: self._proves(known, caller), len(caller.hello.content))
        data.join(caller, known.unproven_share, self._bounds.idle_s, bytes(caller.hello.content))
        caller.transport.write(early)
        caller.free("routed")
        caller.free(known.unproven_share)  # it is read on, as below
        log.debug("%s: a connection of %s begins", known.process, caller.address)

    @staticmethod
    def _proves(known: Name, end: _Arrival) -> None:
        known.unproven.pop(end, None)
        end.spend(known.share)

    @staticmethod
    def _leaves(known: Name, end: _Arrival) -> None:
        known.open -= Counter([end.address])
        known.unproven.pop(end, None)

    def _make_room(self, known: Name) -> bool:
        """Close the oldest connection to a name that has not shown a certificate, of the address with most of them.

        False if all have shown one.
        """
        if not known.unproven:
            return False
        ((address, _),) = Counter(end.address for end in known.unproven).most_common(1)
        oldest = next(end for end in known.unproven if end.address == address)
        del known.unproven[oldest]
        self.turn_away(oldest, "share")
        return True

    async def _register(self, end: _Arrival) -> None:
        """Shake hands with a process, and keep its registration until it ends."""
        loop, limit = asyncio.get_running_loop(), self._bounds.hello_s
        near, far = socket.socketpair()
        inner, reader = End(), asyncio.StreamReader(limit=MOST_LINE)
        protocol = asyncio.StreamReaderProtocol(reader)
        writer: asyncio.StreamWriter | None = None
        try:
            await loop.connect_accepted_socket(lambda: inner, near)
            inner.join(end, Share(), SILENT_S + PING_S, bytes(end.hello.content))
            end.free("routed")
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, far, ssl=self._secured.context(), ssl_handshake_timeout=limit
            )
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            secured: ssl.SSLObject = transport.get_extra_info("ssl_object")
            try:
                await self._hold(end, secured.getpeercert(binary_form=True), reader, writer)
            except TreetapError as fault:
                say(writer, REFUSED, str(fault))
                log.warning("a registration from %s is refused: %s", end.address, visible(str(fault)))
        except (OSError, TimeoutError) as failure:  # no certificate, an untrusted one, too slow, or gone
            log.debug("a registration from %s ends: %s", end.address, failure)
        finally:
            end.settle()
            if writer is not None:
                writer.close()
            loop.call_later(LINGER_S, partial(end.close, abrupt=True))  # what was said last is on its way

    async def _hold(
        self, end: _Arrival, certificate: bytes | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Register the process of a certificate, and look after it until its connection ends.

        Raises:
            Refused: the certificate is not one that registers here, or no longer.
            Malformed: it says something else than the protocol has.
            OSError, TimeoutError: it has gone, or is silent.
        """
        process = self._callers.identity(certificate, *_REGISTERED)
        self._callers.shown(certificate, *_REGISTERED)
        if self._bounds.names is not None and process.name not in self._bounds.names:
            raise Refused(f"{process} is not among the names of this relay (names = ...)")
        if (said := await read_line(reader, self._bounds.hello_s)) != GREETING:
            raise Malformed(f"{process} says {said[:40]!r}, not {GREETING!r}: install one release of treetap on both")
        end.waits(None)
        end.settle()
        if (known := self.names.get(process.dns)) is None:
            most = self._bounds.bytes_s
            shares = Share(most), Share(None if most is None else max(most / 10, MOST_UNPROVEN), MOST_UNPROVEN_S)
            known = self.names[process.dns] = Name(process, *shares)
            self._known(known)
        if known.control is not None:
            log.warning("%s registers again, from %s: the older registration ends", process, end.address)
            say(known.control, REPLACED)
            known.control.close()
        known.control = writer
        log.info("%s registers, from %s", process, end.address)
        say(writer, READY)
        loop = asyncio.get_running_loop()
        heard, asked = loop.time(), 0
        try:
            while known.control is writer:
                try:
                    line = await read_line(reader, PING_S)
                except TimeoutError:
                    if loop.time() - heard > SILENT_S:
                        raise
                    self._callers.shown(certificate, *_REGISTERED)
                    say(writer, PING)
                    asked += 1
                else:
                    if line != PONG or not asked:  # who speaks unasked would not be looked at again
                        raise Malformed(f"{process} says {line[:40]!r} on its control connection")
                    heard, asked = loop.time(), asked - 1
        finally:
            if known.control is writer:
                known.control = None
                log.info("%s is registered no longer", process)


@dataclass
class _Talk:
    """A count of the answers of a process to its caller, until the caller is `proven`: see `ANSWERS`.

    Attributes:
        sent: bytes of the caller, those of its hello among them.
    """

    caller: _Arrival
    proven: Callable[[], object]
    sent: int
    answers: int = 0
    asked: bool = True  # by the hello

    def heard(self, end: _Arrival, size: int) -> bool:
        """Count what an end has said; True once the caller is proven."""
        if end is self.caller:
            self.asked = True
            self.sent += size
        elif self.asked:
            self.asked, self.answers = False, self.answers + 1
        if self.answers < ANSWERS:
            return False
        self.proven()
        return True


class _Arrival(End):
    """A connection that has been accepted: a caller, a process that registers, or a data connection.

    Attributes:
        address: of the other side, see `holder_of`.
        hello: what it has said.
        talk: of the two ends, until the caller has shown a certificate.
    """

    def __init__(self, relay: Relay) -> None:
        super().__init__()
        self._relay = relay
        self.address = "-"
        self.hello = ClientHello()
        self.talk: _Talk | None = None
        self._line = bytearray()
        self._deadline: asyncio.TimerHandle | None = None
        self._settled = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.address = holder_of(str((transport.get_extra_info("peername") or ("-",))[0]))
        self.on_lost(lambda: self.waits(None))
        self.on_lost(self.settle)
        self._relay.arrived(self)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            if self.talk is not None and self.talk.heard(self, len(data)):
                self.talk = None
            super().data_received(data)
            if self.talk is not None and self.talk.caller is self:
                self.free(self._share)  # it is read on: who has gone, or sends too much, waits no longer
                if self.talk.sent > self._relay.most_unproven:
                    self._relay.turn_away(self, "share")
            return
        if self.transport is None or self.transport.is_closing():
            return
        if self._line or (not self.hello.content and data[0] == DATA[0]):
            self._line += data
            if len(self._line) < DATA_LINE:
                return
        try:
            if self._line:
                line, rest = bytes(self._line[:DATA_LINE]), bytes(self._line[DATA_LINE:])
                self._relay.fetched(self, token_of(line), rest)
            elif (name := self.hello.feed(data)) is not None:
                self._relay.routed(self, name)
        except Malformed as fault:
            log.debug("%s: %s", self.address, fault)
            self._relay.turn_away(self, "no hello")

    def waits(self, within_s: float | None, late: Callable[[], None] = lambda: None) -> None:
        """Call `late` unless this is called again within so many seconds; None: no deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if within_s is not None:
            self._deadline = asyncio.get_running_loop().call_later(within_s, late)

    def settle(self) -> None:
        """Tell the relay once that it is known where this connection leads, or that it is lost."""
        if not self._settled:
            self._settled = True
            self._relay.settled(self)
