"""A process's end of a relay: keeps it registered there, and leads the relay's callers to its own port on this host.

gRPC in Python takes no connection that another has opened, so that a relayed caller seems to come from loopback: with
TLS nothing here goes by where a caller comes from, and `insecure = true` excludes a relay. The relay chooses neither
the port nor what is said to it; a hostile one can withhold, repeat and cut bytes, which ends the TLS inside.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cryptography import x509

from treetap.errors import ConfigError, Incompatible, Malformed, Refused, TreetapError, visible
from treetap.wire.ports import Address
from treetap.wire.probe import connect_problem
from treetap.wire.proxies import MOST_HEADER, ProxyRefuses, check_connected, proxy_to
from treetap.wire.relay.control import (
    GREETING,
    MOST_LINE,
    OPEN,
    PING,
    PONG,
    READY,
    REFUSED,
    REPLACED,
    SILENT_S,
    data_line,
    is_token,
    read_line,
    say,
)
from treetap.wire.relay.splicing import End, Share
from treetap.wire.tls import TlsFiles

log = logging.getLogger(__name__)
#: Connections of callers at once; the relay's further ones are not fetched.
MOST_CONNECTIONS = 1024
#: Seconds for one attempt to dial, to shake hands and to be answered.
DIAL_S = 10.0
#: Seconds between two attempts to register: the first, and the longest.
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 5.0
#: Seconds after which a connection without a byte is closed, in case the relay does not.
IDLE_S = 600.0
#: Seconds for last answers to leave.
CLOSE_S = 2.0
_REPLACED = "another process has registered with a certificate of this name, which ends this registration"


@dataclass(frozen=True)
class Times:
    """Waits of a forwarder, in seconds."""

    dial_s: float = DIAL_S
    first_wait_s: float = FIRST_WAIT_S
    longest_wait_s: float = LONGEST_WAIT_S
    silent_s: float = SILENT_S
    close_s: float = CLOSE_S


class Forwarder:
    """Registers one process at a relay, and fetches its callers.

    Args:
        relay: the relay's address, name and role.
        files: the process's own TLS files, which also say if dialling goes through a proxy.
        own_port: `host:port` of the process's own gRPC server, on this host.
        times: waits.
    """

    def __init__(self, relay: Address, files: TlsFiles, own_port: str, times: Times | None = None) -> None:
        self._relay, self._files, self._own_port, self._times = relay, files, own_port, times or Times()
        self._keeping: asyncio.Task[None] | None = None
        self._fetching: set[asyncio.Task[None]] = set()
        self._ends: set[End] = set()
        self._none_open = asyncio.Event()  # set while there are no ends
        self._none_open.set()
        self._registered_at = self._complained_at = -math.inf  # of the loop's clock
        self.registered = asyncio.Event()  #: set while the relay leads callers here

    def begin(self) -> None:
        """Register, and stay registered until `close`: after each end of a registration another one begins."""
        self._keeping = asyncio.ensure_future(self._keep())

    async def close(self) -> None:
        """End the registration, and all connections once what a stopped server has said last has left."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        for task in list(self._fetching):
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._times.close_s):
                await self._none_open.wait()
        for end in list(self._ends):
            end.close(abrupt=True)

    async def _keep(self) -> None:
        loop, wait, said = asyncio.get_running_loop(), self._times.first_wait_s, ""
        while True:
            reason = await self._attempt()
            if self.registered.is_set():
                self.registered.clear()
                if loop.time() - self._registered_at > self._times.longest_wait_s:  # it is not one that ends at once
                    wait, said = self._times.first_wait_s, ""
            if reason != said:
                log.warning("%s: %s; it is tried again", self._where, visible(reason))
                said = reason
            if reason == _REPLACED:
                wait = self._times.longest_wait_s  # two processes of one name must not drive each other out at once
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - not all processes at one moment
            wait = min(2 * wait, self._times.longest_wait_s)

    @property
    def _where(self) -> str:
        return f"relay {self._relay.name} at {self._relay.location}"

    async def _attempt(self) -> str:
        """Register and stay registered; returns why that ended."""
        try:
            await self._register()
        except ssl.SSLCertVerificationError as fault:
            return f"its certificate is refused: {fault.verify_message}; renew it, or correct relay and relay_name"
        except TimeoutError:
            if self.registered.is_set():
                return f"no ping within {self._times.silent_s:g} s"
            return f"no answer within {self._times.dial_s:g} s; is a relay of treetap at this address?"
        except (OSError, TreetapError) as fault:
            return f"{fault}"
        except Exception as defect:
            log.exception("%s: a defect", self._where)
            return f"a defect: {type(defect).__name__}"
        return _REPLACED

    async def _register(self) -> None:
        """Register, and fetch callers until another registration replaces this one.

        Raises:
            OSError, TimeoutError: the relay is away, or silent.
            Refused, Malformed, Incompatible, ConfigError: it refuses us, or is not the relay.
        """
        reader = asyncio.StreamReader(limit=MOST_LINE)
        protocol, loop = asyncio.StreamReaderProtocol(reader), asyncio.get_running_loop()
        context = _context(self._files)
        async with asyncio.timeout(self._times.dial_s):
            dialled = await dial(self._relay.location, self._times.dial_s, proxied=self._files.proxied)
            transport, _ = await loop.create_connection(
                lambda: protocol, sock=dialled, ssl=context, server_hostname=self._relay.dns
            )
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            self._check(transport.get_extra_info("ssl_object"))
            say(writer, GREETING)
            answer, _, reason = (await read_line(reader, self._times.dial_s)).partition(" ")
            if answer == REFUSED:
                raise Refused(f"it refuses us: {reason}")
            if answer != READY:
                raise Malformed(f"it answers {answer[:40]!r}, as no relay does")
            self.registered.set()
            log.info("%s: registered; callers come through it", self._where)
            self._registered_at = pinged = loop.time()
            while (line := await read_line(reader, pinged + self._times.silent_s - loop.time())) != REPLACED:
                if line == PING:
                    self._check(transport.get_extra_info("ssl_object"))  # it may have been revoked meanwhile
                    pinged = loop.time()
                self._obey(line, writer)
        finally:
            writer.transport.abort()

    def _check(self, secured: ssl.SSLObject) -> None:
        """Refuse a relay whose certificate is not the right one, or revoked."""
        shown = x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")
        if fault := self._files.fault(shown, self._relay.name, self._relay.role):
            raise Incompatible(f"its certificate is refused: {fault}")

    def _obey(self, line: str, writer: asyncio.StreamWriter) -> None:
        """Do what a line of the relay says. Raises Malformed, also where pings come faster than they are answered."""
        word, _, rest = line.partition(" ")
        if line == PING:
            if writer.transport.get_write_buffer_size() > MOST_LINE:
                raise Malformed("it does not read what we answer")
            say(writer, PONG)
        elif word == OPEN and is_token(rest):
            if len(self._fetching) + len(self._ends) // 2 >= MOST_CONNECTIONS:
                self._complain(f"{MOST_CONNECTIONS} connections are open, one more is not fetched")
                return
            task = asyncio.ensure_future(self._fetch(rest))
            self._fetching.add(task)
            task.add_done_callback(self._fetching.discard)
        elif word == REFUSED:  # as where our certificate has been revoked since
            raise Refused(f"it refuses us: {rest}")
        else:
            raise Malformed(f"it says {line[:40]!r}, as no relay does")

    async def _fetch(self, token: str) -> None:
        """Dial a data connection, and join it with one to our own port."""
        loop, own, data, limit = asyncio.get_running_loop(), End(), End(), self._times.dial_s
        try:
            async with asyncio.timeout(limit):
                await loop.create_connection(lambda: own, sock=await dial(self._own_port, limit, proxied=False))
                self._note(own)
                own.hold("joined")
                there = await dial(self._relay.location, limit, proxied=self._files.proxied)
                await loop.create_connection(lambda: data, sock=there)
                self._note(data)
        except (OSError, TimeoutError, ConfigError) as fault:
            self._complain(f"a connection is not fetched: {fault or 'too slow'}")
            own.close(abrupt=True)
            return
        data.join(own, Share(), IDLE_S, data_line(token))
        own.free("joined")

    def _complain(self, fault: str) -> None:
        """Log a fault of a connection, but not each of thousands that a hostile relay or caller can cause."""
        now = asyncio.get_running_loop().time()
        if now - self._complained_at >= self._times.longest_wait_s:
            self._complained_at = now
            log.warning("%s: %s", self._where, visible(fault))

    def _note(self, end: End) -> None:
        self._ends.add(end)
        self._none_open.clear()
        end.on_lost(lambda: self._forget(end))

    def _forget(self, end: End) -> None:
        self._ends.discard(end)
        if not self._ends:
            self._none_open.set()


def _context(files: TlsFiles) -> ssl.SSLContext:
    """TLS of a client with these files as they are now. Raises ConfigError: they cannot be used."""
    files.inspect(None)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(files.ca)
    files.load_into(context)
    return context


async def _places(host: str, port: int) -> list[tuple[Any, ...]]:
    """The answer of `getaddrinfo` about a host; of an address at once, without the thread that looks names up."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        pass
    try:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as fault:
        raise OSError(f"the name {host!r} cannot be looked up ({fault}); correct it or the name service") from None


async def dial(location: str, within_s: float, *, proxied: bool) -> socket.socket:
    """A connection to `host:port`, through the environment's proxy where `proxied` and it names one.

    Each address of a host has its part of `within_s` seconds, so that one that never answers leaves time for the next.

    Raises:
        OSError: there is no such name, or nothing takes the connection; with a remedy.
        ConfigError: the environment's proxy is no address.
    """
    proxy, loop = (proxy_to(location) if proxied else None), asyncio.get_running_loop()
    host, _, port = (location if proxy is None else proxy.location).rpartition(":")
    places, failure = await _places(host.strip("[]"), int(port)), ""
    for family, _, _, _, place in places:
        dialled = socket.socket(family, socket.SOCK_STREAM)
        dialled.setblocking(False)
        try:
            async with asyncio.timeout(within_s / (len(places) + 1)):
                await loop.sock_connect(dialled, place)
            if proxy is not None:
                await loop.sock_sendall(dialled, proxy.connect_to(location))
                said = b""
                while b"\r\n\r\n" not in said and len(said) < MOST_HEADER:
                    if not (byte := await loop.sock_recv(dialled, 1)):
                        break
                    said += byte  # no more than the header: what follows is the relay's
                check_connected(said)
        except ProxyRefuses as refusal:
            dialled.close()
            raise OSError(f"{proxy}: {refusal}") from None
        except OSError as fault:
            dialled.close()
            failure = connect_problem(fault)
        except BaseException:
            dialled.close()
            raise
        else:
            return dialled
    raise OSError(failure)
