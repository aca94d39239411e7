"""A serving process's measures of itself, for Prometheus over plain HTTP: off unless configured.

Labels are of bounded number: names of certificates, steps, classes and operations of the protocol. Names of jobs are
not labels, since every job would add series for good. Nothing here is a value, an id or a key.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Sequence
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from treetap.errors import BadInput
from treetap.version import PROTOCOL_VERSION, package_version
from treetap.wire.listening import bound

log = logging.getLogger(__name__)
#: Connections that the system holds until they are accepted.
BACKLOG = 16


class ProcessMetrics:
    """The registry of one process, with the metrics that party and coordinator share."""

    def __init__(self, kind: str, name: str) -> None:
        self.registry = CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        build = self.gauge("treetap_build_info", "Release and protocol version; always 1.", *_BUILD)
        build.labels(kind, name, package_version(), str(PROTOCOL_VERSION)).set(1)
        self._sent = self.counter(
            "treetap_sent_bytes_total", "Bytes of messages sent, by receiver and class.", "peer", "disclosure"
        )
        self._messages = self.counter(
            "treetap_sent_messages_total", "Messages sent that have bytes of the class.", "peer", "disclosure"
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

    def sent(self, to: str, disclosure: str, size: int) -> None:
        """Count a message to `to` with a number of bytes of a class."""
        self._sent.labels(to, disclosure).inc(size)
        self._messages.labels(to, disclosure).inc()

    def serve(self, listen: str | None) -> str | None:
        """Answer `GET /metrics` at `host:port` from threads until the process ends; returns the address. None: do not.

        The host's name may have several addresses: each is listened at. Port 0 takes a free one. `BadInput` where that
        is not possible.
        """
        if listen is None:
            return None
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call] # a useless second series for each
        host, _, port = listen.rpartition(":")
        try:
            listeners = bound(host.strip("[]"), int(port), BACKLOG)
        except OSError as failure:
            raise BadInput(
                f"metrics = {listen!r}: cannot listen there: {failure.strerror}; choose a free port of this host"
            ) from None
        answer = prometheus_client.make_wsgi_app(self.registry)
        for listener in listeners:
            server = _Scraped(listener)
            server.set_app(answer)
            threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"{host}:{listeners[0].getsockname()[1]}"
        log.info("metrics at http://%s/metrics", address)
        return address


class _Scraped(ThreadingMixIn, WSGIServer):
    """Answers at a listening socket, each request in a thread."""

    daemon_threads = True

    def __init__(self, listener: socket.socket) -> None:
        place = listener.getsockname()
        super().__init__(place[:2], _Quiet, bind_and_activate=False)
        self.socket.close()
        self.socket, self.server_address = listener, place
        self.server_name, self.server_port = place[:2]
        self.setup_environ()


class _Quiet(WSGIRequestHandler):
    """No line on standard error for each request."""

    def log_message(self, format: str, *args: Any) -> None:
        """See `BaseHTTPRequestHandler`."""


_BUILD = ("kind", "name", "version", "protocol")
