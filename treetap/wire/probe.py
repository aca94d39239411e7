"""Diagnosis of a failed connection: one line that names the cause and the remedy; the health check of a server.

gRPC answers every failed connection with a bare UNAVAILABLE. After that, :func:`examine` repeats the steps
by hand (look the name up, connect, shake hands, wait for the first HTTP/2 frame) and reports the one that failed.
:func:`look` ends with the handshake: two round trips, before gRPC connects to a server that may be revoked.

Health check of a server: gRPC's health service, whose answer also contains versions and the server's clock.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import grpc.aio
from cryptography import x509
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from treetap import version
from treetap.errors import ConfigError, Refused, Silent, TreetapError, Unreachable, visible
from treetap.wire.certificates import common_name, fingerprint, read_certificates
from treetap.wire.ports import Address
from treetap.wire.proxies import MOST_HEADER, Proxy, ProxyRefuses, check_connected, not_used, proxy_to, way
from treetap.wire.tls import Insecure, TlsFiles, Transport, check_near

_ADDRESS = re.compile(r"(?:dns:/{0,3}|ipv4:|ipv6:)?(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:/\[\]]+)):(?P<port>[0-9]{1,5})")
_NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)
_CLOSED = "closed the connection during the handshake: not a TLS server, or it is stopping; start it with TLS"
# TLS alerts with which a server turns down the client's certificate
_ABOUT_OURS = ("certificate", "unknown ca", "access denied", "decrypt error")
# TLS alerts of a relay, which has no certificate of the process
_UNKNOWN_NAME = "TLSV1_UNRECOGNIZED_NAME"  # as OpenSSL calls it
_OF_RELAY = {
    "unrecognized name": "no process of this name is registered: start it with this relay in its file, or read its log",
    "internal error": "the process did not fetch the connection, or its share of connections is used up: repeat later",
}


@dataclass
class Diagnosis:
    """One line of cause and remedy. ``lasting``: certificates do not fit, so that no repeat helps before that is
    repaired; other causes may pass by themselves. ``there``: a process takes connections and no fault of it was found,
    so that a repeat may succeed at once. ``trusted``: its certificate is the right one, and not revoked. ``own``: it is
    our own files that do not fit."""

    line: str = ""
    lasting: bool = False
    there: bool = False
    trusted: bool = False
    own: bool = False


def examine(to: Address, tls: TlsFiles, timeout: float = 3.0, *, further: bool = True) -> Diagnosis:
    """The cause why a process could not be reached at its location (``host:port``), and the remedy.

    Takes ``timeout`` seconds at most (a name look-up that hangs is left to its thread), and never raises. The other
    side's certificate is only described, not trusted: no content is exchanged with a peer that is not the process.

    `further`: than to the server's certificate, to see whether it takes ours.
    """
    probe = _Probe(to, tls, time.monotonic() + timeout, further)
    thread = threading.Thread(target=probe.run, name="treetap-probe", daemon=True)
    thread.start()
    thread.join(timeout + 0.25)  # the sockets' own deadlines, with more precise messages, come first
    finding = probe.seen.line or f"{probe.where}: no answer within {timeout:g} s while {probe.phase}"
    line = visible(" ".join(finding.split()))
    return replace(probe.seen, line=line) if probe.seen.line else Diagnosis(line)


def refusal(to: Address, tls: TlsFiles, timeout: float) -> Diagnosis | None:
    """With a list of revoked certificates, the look at a server that gRPC is not let connect to; None if it is."""
    if tls.revoked is None:
        return None
    diagnosis = examine(to, tls, timeout, further=False)
    return diagnosis if diagnosis.lasting or not diagnosis.trusted else None


@dataclass
class _Probe:
    to: Address
    tls: TlsFiles
    deadline: float  # on the monotonic clock
    further: bool = True  # than to the server's certificate
    phase: str = "starting"
    seen: Diagnosis = field(default_factory=Diagnosis)
    proxy: Proxy | None = None

    @property
    def where(self) -> str:
        """The process, its location, and the way to it unless that is direct."""
        return f"{self.to.name} at {self.to.location}{'' if self.proxy is None else f' through {self.proxy}'}"

    def run(self) -> None:
        try:
            finding = self._find()
            self.seen.line = f"{self.where}: {finding}"
        except ConfigError as error:
            self.seen.lasting = self.seen.own = True
            self.seen.line = f"our own TLS files cannot be used: {error}"
        except Exception as error:  # noqa: BLE001  # a diagnosis must not become the next failure
            self.seen.line = f"{self.where}: {type(error).__name__} while {self.phase}: {error}"

    def _find(self) -> str:
        self.tls.inspect(None)
        parsed = _ADDRESS.fullmatch(self.to.location)
        if parsed is None or not 0 < int(parsed["port"]) < 65_536:
            return "not an address of the form host:port; correct the configuration"
        host, port = parsed["six"] or parsed["host"], int(parsed["port"])
        try:
            self.proxy = proxy_to(self.to.location) if self.tls.proxied else None
        except ConfigError as fault:
            self.seen.lasting = self.seen.own = True
            return str(fault)
        if self.proxy is not None:
            host, port = self.proxy.host, self.proxy.port
        # From here on `phase` says how far the look came, should the time run out.
        unused = "" if self.tls.proxied else not_used(self.to.location)
        self.phase = f"looking up the name {host!r}"
        try:
            places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError, OverflowError) as error:
            return f"the name {host!r} cannot be looked up ({error}); correct the address or the name service{unused}"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols(["h2"])
        context.load_verify_locations(self.tls.ca)
        self.tls.load_into(context)
        problems = []
        for family, _, _, _, place in places:
            self.phase = f"connecting to {place[0]}"
            try:
                connection = self._connect(context, family, place)
            except OSError as error:
                problems.append(str(error) if isinstance(error, ProxyRefuses) else connect_problem(error))
            else:
                with connection:
                    return self._handshake(connection, family, place)
        return "; ".join(dict.fromkeys(problems)) + unused

    def _connect(self, context: ssl.SSLContext, family: int, place: tuple[Any, ...]) -> ssl.SSLSocket:
        """A connection on which no hands have been shaken yet.

        Wrapped before it is connected: wrapping one that the peer has reset meanwhile loses the socket, unclosed.
        """
        if self.proxy is not None:
            return self._connect_through(self.proxy, context, family, place)
        connection = context.wrap_socket(
            socket.socket(family, socket.SOCK_STREAM), server_hostname=self.to.dns, do_handshake_on_connect=False
        )
        try:
            self._bound(connection)
            connection.connect(place)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_through(
        self, proxy: Proxy, context: ssl.SSLContext, family: int, place: tuple[Any, ...]
    ) -> ssl.SSLSocket:
        """A connection that the proxy at `place` has made, as gRPC asks for one."""
        plain = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._bound(plain)
            plain.connect(place)
            self.phase = f"waiting for {proxy}"
            plain.sendall(proxy.connect_to(self.to.location))
            said = b""
            while b"\r\n\r\n" not in said and len(said) < MOST_HEADER and (byte := plain.recv(1)):
                said += byte  # no more than the header: what follows is the server's
            check_connected(said)
            return context.wrap_socket(plain, server_hostname=self.to.dns, do_handshake_on_connect=False)
        except BaseException:
            plain.close()
            raise

    def _bound(self, connection: socket.socket) -> None:
        connection.settimeout(max(0.05, self.deadline - time.monotonic()))

    def _handshake(self, connection: ssl.SSLSocket, family: int, place: tuple[Any, ...]) -> str:
        self.phase = "shaking hands"
        try:
            self._bound(connection)
            connection.do_handshake()
            return self._first_frame(connection)
        except ssl.SSLCertVerificationError as error:
            shown = self._shown_certificate(family, place)
            fault = shown and self.tls.fault(shown, self.to.name, self.to.role)
            self.seen.lasting = bool(fault)
            return f"its certificate is refused: {fault or error.verify_message}"
        except TimeoutError:
            self.seen.there = True
            return "accepts connections but does not shake hands: not a TLS server, or its process is suspended"
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
            return _CLOSED
        except ssl.SSLError as error:
            if any(word in (error.reason or "") for word in ("ALERT", _UNKNOWN_NAME)):
                return self._alert(error)
            return f"answers, but not in TLS ({error.reason}); start it with TLS or correct the address"

    def _first_frame(self, secured: ssl.SSLSocket) -> str:
        """After a successful handshake: check that the server accepts our certificate and sends a frame.

        In TLS 1.3 the client is through before the server has looked at the client's certificate, so a refusal
        arrives with the first read.
        """
        self.phase = "waiting for the first frame"
        shown = x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")
        if fault := self.tls.fault(shown, self.to.name, self.to.role):
            self.seen.lasting = True
            return f"its certificate is refused: {fault}"
        self.seen.trusted = True
        if not self.further:
            return "its certificate is the right one"
        self._bound(secured)
        try:
            # A gRPC server speaks first. Sending now could turn the alert into a reset connection.
            answered = secured.recv(1) != b""
        except TimeoutError:
            self.seen.there = True
            return "the TLS handshake works: the process is there but did not answer; it may be suspended or overloaded"
        except ssl.SSLError as error:
            return self._alert(error)
        except ConnectionError:
            answered = False
        if not answered:
            return f"closed the connection right after the handshake, as gRPC does without an alert: {self._refused()}"
        self.seen.there = True
        return "the TLS handshake works: the process is there but did not answer the call; try again, or read its log"

    def _shown_certificate(self, family: int, place: tuple[Any, ...]) -> x509.Certificate | None:
        """The certificate that the server shows, unverified: to be described, not trusted. Ours is not shown."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        try:
            with self._connect(context, family, place) as connection:
                self._bound(connection)
                connection.do_handshake()
                return x509.load_der_x509_certificate(connection.getpeercert(binary_form=True) or b"")
        except (OSError, ValueError):
            return None

    def _alert(self, error: ssl.SSLError) -> str:
        reason = (error.reason or str(error)).rpartition("ALERT_")[2].removeprefix("TLSV1_").lower().replace("_", " ")
        if any(word in reason for word in _ABOUT_OURS):
            self.seen.lasting = True
            return f"TLS alert '{reason}': {self._refused()}"
        if (said := _OF_RELAY.get(reason)) is not None:
            return f"TLS alert '{reason}', as a relay there gives it: {said}"
        return f"ended the handshake with the TLS alert '{reason}'; compare the two sides' versions and settings"

    def _refused(self) -> str:
        ours = read_certificates(self.tls.certificate)[0]
        return (
            f"it seems to refuse our certificate, that of {common_name(ours)!r} (SHA-256 {fingerprint(ours)}); "
            f"give both sides certificates of one authority (ours: SHA-256 "
            f"{fingerprint(read_certificates(self.tls.ca)[0])}), and see that the other host's clock is right"
        )


def connect_problem(error: OSError) -> str:
    """The cause why a connection was not taken, and the remedy."""
    if isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError):
        return _CLOSED  # reset before the call to connect had returned
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: no process listens there; start the process or correct the port"
    if isinstance(error, TimeoutError):
        return "no answer to the connection attempt in time; check the address, the firewall and that the host is up"
    if error.errno in _NO_ROUTE:
        return f"no route to the host ({error.strerror}); check the address and the network"
    return f"cannot connect ({error.strerror or error}); check the address"


RELEASE_KEY = "treetap-version"
TIME_KEY = "treetap-time"
#: The service whose health is whether a party serves a model to clients.
SERVING = "treetap.wire.v2.Serving"
Context = grpc.aio.ServicerContext[object, object]


@dataclass(frozen=True)
class Hello:
    """A server's answer: its release, protocol version and clock, None where they are absent.

    `skew_s`: how far its clock is ahead of ours, give or take `within_s`, half of the call's time.
    """

    serving: bool
    release: str | None
    protocol: str | None
    skew_s: float | None
    within_s: float


class Health(health.aio.HealthServicer):  # type: ignore[misc] # the package has no types
    """gRPC's health service; the initial metadata of each check contains versions and time.

    Every holder of a certificate with a role may ask. `serves`: tells the health of `SERVING`, where that is known.
    """

    def __init__(self, serves: Callable[[], bool] | None = None) -> None:
        super().__init__()
        self._serves = serves

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Context) -> health_pb2.HealthCheckResponse:
        await context.send_initial_metadata(
            (*version.told(), (RELEASE_KEY, version.package_version()), (TIME_KEY, f"{time.time():.6f}"))
        )
        if request.service == SERVING and self._serves is not None:
            answer = health_pb2.HealthCheckResponse
            return answer(status=answer.SERVING if self._serves() else answer.NOT_SERVING)
        return await super().Check(request, context)

    async def Watch(self, _request: health_pb2.HealthCheckRequest, context: Context) -> None:
        """Refuse: a watch would outlast its caller's certificate, and nothing here needs one."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "health is checked call by call: use Check")


def serve_health(server: grpc.aio.Server, serves: Callable[[], bool] | None = None) -> Health:
    """Let a server answer health checks. `serves`: see `Health`."""
    service = Health(serves)
    health_pb2_grpc.add_HealthServicer_to_server(service, server)
    return service


def say_hello(to: Address, transport: Transport, timeout: float) -> Hello:
    """Make one check, for `timeout` seconds at most. Blocks; without an answer `Silent`, `Unreachable` or `Refused`."""
    if not isinstance(transport, Insecure) and (fault := refusal(to, transport, timeout)):
        raise Unreachable(fault.line)
    with _channel(to, transport) as channel:
        began, began_at = time.monotonic(), time.time()
        try:
            answer, call = health_pb2_grpc.HealthStub(channel).Check.with_call(
                health_pb2.HealthCheckRequest(), timeout=timeout
            )
        except grpc.RpcError as failure:
            raise _error(failure, to.name, timeout) from None
        took = time.monotonic() - began
        metadata = dict(call.initial_metadata())
    return Hello(
        serving=answer.status == health_pb2.HealthCheckResponse.SERVING,
        release=_text(metadata.get(RELEASE_KEY)),
        protocol=_text(metadata.get(version.PROTOCOL_KEY)),
        skew_s=_skew(_text(metadata.get(TIME_KEY)), began_at + took / 2),
        within_s=took / 2,
    )


def _channel(to: Address, transport: Transport) -> grpc.Channel:
    proxied = not isinstance(transport, Insecure) and transport.proxied
    target, options = way(to.location, proxied=proxied)
    options.append(("grpc.enable_retries", 0))
    if isinstance(transport, Insecure):
        check_near(f"{to.name} at", to.location)
        return grpc.insecure_channel(target, options)
    ca, certificate, key = transport.read()
    options.append(("grpc.ssl_target_name_override", to.dns))
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(ca, key, certificate), options)


def _error(failure: grpc.RpcError, name: str, timeout: float) -> TreetapError:
    code = failure.code() if isinstance(failure, grpc.Call) else None
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Silent(f"{name} did not answer within {timeout:g} s")
    if code is grpc.StatusCode.PERMISSION_DENIED and isinstance(failure, grpc.Call):
        return Refused(f"{name} refuses our health check: {visible(failure.details() or '')}")
    return Unreachable(f"{name} does not answer a health check ({code.name if code else failure})")


def _text(value: str | bytes | None) -> str | None:
    return visible(value) if isinstance(value, str) else None


def _skew(sent: str | None, now: float) -> float | None:
    try:
        return None if sent is None else float(sent) - now
    except ValueError:
        return None
