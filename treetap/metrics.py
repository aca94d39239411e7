"""A serving process's measures of itself, for Prometheus over plain HTTP: off unless configured.

Labels are of bounded number: names of certificates, steps, classes and operations of the protocol. Names of jobs are
not labels, since every job would add series for good. Nothing here is a value, an id or a key.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from treetap.errors import ConfigError, cannot
from treetap.names import host_of, on_loopback
from treetap.version import PROTOCOL_VERSION, install, package_version
from treetap.wire.listening import bound
from treetap.wire.tls import Insecure, Transport

if TYPE_CHECKING:
    from treetap.process.config import TelemetryConfig
    from treetap.process.spans import Spans

log = logging.getLogger(__name__)
#: Connections that the system holds until they are accepted.
BACKLOG = 16
#: Seconds that a connection may take in all, from its first byte to the last of the answer.
SLOWEST_S = 10.0
#: Most requests at once; further ones are closed.
MOST_REQUESTS = 16
#: Most bytes of a request's first line.
MOST_LINE = 8192


class ProcessMetrics:
    """The registry of one process, with the metrics that party and coordinator share.

    Attributes:
        spans: of its jobs, where its file has them exported.
    """

    spans: Spans | None = None

    def __init__(self, kind: str, name: str) -> None:
        self._name = name
        self.registry = CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        build = self.gauge("treetap_build_info", "Release and protocol version; always 1.", *_BUILD)
        build.labels(kind, name, package_version(), str(PROTOCOL_VERSION)).set(1)
        # Series are kept by their labels, here and below: to find one, the library takes longer than to count.
        self._sent = cache(
            self.counter(
                "treetap_sent_bytes_total", "Bytes of messages sent, by receiver and class.", "peer", "disclosure"
            ).labels
        )
        self._messages = cache(
            self.counter(
                "treetap_sent_messages_total", "Messages sent that have bytes of the class.", "peer", "disclosure"
            ).labels
        )

    def counter(self, name: str, help_text: str, *labels: str) -> Counter:
        """A new counter of this process."""
        return Counter(name, help_text, labels, registry=self.registry)

    def gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        """A new gauge of this process."""
        return Gauge(name, help_text, labels, registry=self.registry)

    def histogram(self, name: str, help_text: str, buckets: Sequence[float]) -> Histogram:
        """A new histogram of this process."""
        return Histogram(name, help_text, registry=self.registry, buckets=buckets)

    def certificates(self, transport: Transport) -> None:
        """Show when the process's TLS files end, as they are at each scrape; nothing of plain text."""
        if isinstance(transport, Insecure):
            return
        gauge = self.gauge(
            "treetap_certificate_end_timestamp_seconds",
            "Unix time at which the own certificate, the first authority or the list of revoked ones ends; NaN: the "
            "file cannot be read.",
            "what",
        )
        for what in transport.holds:
            gauge.labels(what).set_function(partial(transport.first_end, what))

    def samples(self, *names: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """The series of these names: name, labels and value."""
        for metric in self.registry.restricted_registry(names).collect():
            for sample in metric.samples:
                yield sample.name, sample.labels, sample.value

    def sent(self, to: str, disclosure: str, size: int) -> None:
        """Count a message to `to` with a number of bytes of a class."""
        self._sent(to, disclosure).inc(size)
        self._messages(to, disclosure).inc()

    def export_spans(self, config: TelemetryConfig | None) -> None:
        """Export spans of jobs from here on; None: do not. `ConfigError` where that is not possible."""
        if config is None:
            return
        try:
            from treetap.process.spans import Spans  # most processes export none
        except ModuleNotFoundError as missing:
            raise ConfigError(
                f"[telemetry] needs {missing.name}: {install('telemetry')}; or leave the table out", party=self._name
            ) from None
        dropped = self.counter("treetap_dropped_spans_total", "Spans that the collector has not taken in time.")
        self.spans = Spans(self._name, config, dropped.inc)

    def close(self) -> None:
        """Export the last spans, within seconds; nothing else runs any more."""
        if self.spans:
            self.spans.close()

    def serve(self, listen: str | None) -> str | None:
        """Answer `GET /metrics` at `host:port` from threads until the process ends; returns the address. None: do not.

        The host's name may have several addresses: each is listened at. Port 0 takes a free one. `BadInput` where that
        is not possible.
        """
        if listen is None:
            return None
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call] # a useless second series for each
        host, _, port = listen.rpartition(":")
        with cannot("listen there", f"metrics = {listen!r}", more="; choose a free port of this host"):
            listeners = bound(host.strip("[]"), int(port), BACKLOG)
        answer = prometheus_client.make_wsgi_app(self.registry)
        if on_loopback(listen):
            answer = _asked_near(answer)
        for listener in listeners:
            server = _Scraped(listener)
            server.set_app(answer)
            threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"{host}:{listeners[0].getsockname()[1]}"
        log.info("metrics at http://%s/metrics", address)
        return address


def _asked_near(answer: Any) -> Any:
    """The application for requests to a name of loopback only: a foreign page in a browser asks by its own name."""

    def check(environ: dict[str, Any], start: Any) -> Any:
        if on_loopback(f"{host_of(environ.get('HTTP_HOST', ''))}:0"):
            return answer(environ, start)
        start("421 Misdirected Request", [("Content-Type", "text/plain")])
        return [b"metrics are asked for at this host's own address\n"]

    return check


class _Scraped(ThreadingMixIn, WSGIServer):
    """Server of a listening socket: each request has a thread, and the number of threads is limited."""

    daemon_threads = True

    def __init__(self, listener: socket.socket) -> None:
        place = listener.getsockname()
        super().__init__(place[:2], _Quiet, bind_and_activate=False)
        self.socket.close()
        self.socket, self.server_address = listener, place
        self.server_name, self.server_port = place[:2]
        self.setup_environ()
        self._room = threading.BoundedSemaphore(MOST_REQUESTS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """One deadline holds for the whole request, however slow the peer is."""
        deadline = threading.Timer(SLOWEST_S, _shut, (request,))
        deadline.daemon = True
        deadline.start()
        try:
            super().finish_request(request, client_address)
        finally:
            deadline.cancel()


def _shut(connection: socket.socket) -> None:
    """End a connection, which ends every wait for it; its thread closes it."""
    with suppress(OSError):  # it has ended by itself
        connection.shutdown(socket.SHUT_RDWR)


class _Quiet(WSGIRequestHandler):
    """Handler that logs no line for each request and names no library in its answers."""

    def handle(self) -> None:
        try:
            self.raw_requestline = self.rfile.readline(MOST_LINE + 1)
            if len(self.raw_requestline) > MOST_LINE or not self.parse_request():
                return
            makes: Any = ServerHandler
            handler = makes(self.rfile, self.wfile, self.get_stderr(), self.get_environ(), multithread=False)
            handler.request_handler, handler.server_software = self, ""
            handler.run(self.server.get_app())  # type: ignore[attr-defined]
        except OSError as failure:
            log.debug("metrics: no request: %s", failure)

    def send_response(self, code: int, message: str | None = None) -> None:
        """Of a request that cannot be read."""
        self.send_response_only(code, message)

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent: a scrape is no event."""


_BUILD = ("kind", "name", "version", "protocol")
